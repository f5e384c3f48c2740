"""Architectures that nobody tunes to, by name, in families: with random weights, nothing is downloaded.

In: a name. Out: a network and a sample of its input. A third of them, by the hash of the name, is kept back: it is not
looked at while kernels are worked on. Needs torchvision, timm and transformers, each for its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from bench.networks import real
from bench.networks.architectures import further, own, unusual

KEPT_BACK = 3
"""One in so many."""
SEEN = {
    *("resnext50_32x4d", "regnet_y_400mf", "mobilenet_v3_large", "deeplabv3_mobilenet_v3_large", "fcn_resnet50"),
    *("r3d_18", "ghostnet_100", "signal_net", "shufflenet_v2_x1_0", "squeezenet1_1", "hrnet_w18_small", "swin_t"),
    *("recommender", "segmenter", "vocoder", "points", "decoder", "keypoints", "context_net", "scan"),
    *("shuffled_groups", "warped", "mixnet_s"),
}
"""Those that were worked on before there was a zoo, or since: they can't be kept back any more."""

Sample = Callable[[int], tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class Architecture:
    """How a network is made, and the input that it is given; ``batch``: how many of these."""

    family: str
    make: Callable[[], nn.Module]
    sample: Sample
    batch: int = 1


def is_kept_back(name: str) -> bool:
    """Whether it belongs to those that are run once, at the end."""
    return name not in SEEN and hashlib.sha256(name.encode()).digest()[0] % KEPT_BACK == 0


def network_of(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """One of the zoo, the same in every process."""
    return sampled(ARCHITECTURES[name])


def of_timm(name: str, edge: int) -> Architecture:
    """Any model of timm, for images of that size."""
    return Architecture("of timm", _timm(name), _image(edge))


def sampled(own: Architecture) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A network and its input, the same in every process."""
    torch.manual_seed(real.SEED)
    network = own.make().eval()
    sample = own.sample(own.batch)
    with torch.no_grad(), real.quiet():
        real.settle(network, tuple(_doubled(t) for t in sample))
    return network, sample


def _doubled(tensor: torch.Tensor) -> torch.Tensor:
    """With another input behind it: statistics of one are none where an image shrinks to a point."""
    other = torch.randn_like(tensor) if tensor.is_floating_point() else tensor.flip(-1)
    return torch.cat([tensor, other])


# ---- where they come from ----------------------------------------------------------------------------------------


def _torchvision(name: str) -> Callable[[], nn.Module]:
    return lambda: getattr(real.torchvision().models, name)(weights=None)


def _video(name: str) -> Callable[[], nn.Module]:
    return lambda: getattr(real.torchvision().models.video, name)(weights=None)


def _segmentation(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        return _Only(getattr(real.torchvision().models.segmentation, name)(weights=None, weights_backbone=None), "out")

    return make


def _timm(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        real.torchvision()
        import timm

        timm.layers.set_fused_attn(False)  # torch's ONNX exporter knows attention over four axes only
        return timm.create_model(name)

    return make


def _transformer(model: str, config: str, **sizes: Any) -> Callable[[], nn.Module]:
    """A small one of a kind that transformers knows."""

    def make() -> nn.Module:
        real.torchvision()
        import transformers

        own = getattr(transformers, config)(attn_implementation="eager", **sizes)
        own.use_cache = False
        return _Only(getattr(transformers, model)(own), "last_hidden_state")

    return make


class _Only(nn.Module):
    """One of the results of a network that gives several by name."""

    def __init__(self, network: nn.Module, name: str):
        super().__init__()
        self.network, self.name = network, name

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.network(*inputs)[self.name]


def _random(*shape: int) -> Sample:
    return lambda batch: (torch.randn(batch, *shape),)


def _image(size: int = 224) -> Sample:
    return _random(3, size, size)


def _tokens(length: int, vocabulary: int = 1000) -> Sample:
    return lambda batch: (torch.randint(0, vocabulary, (batch, length)),)


def _pair(*shape: int) -> Sample:
    return lambda batch: (torch.randn(batch, *shape), torch.randn(batch, *shape))


def _bags(tables: int, size: int, rows: int) -> Sample:
    return lambda batch: (torch.randn(16 * batch, 13), torch.randint(0, rows, (16 * batch, tables, size)))


# ---- the zoo -----------------------------------------------------------------------------------------------------


def _all() -> Iterator[tuple[str, Architecture]]:
    for family, source, names in _BY_LIBRARY:
        for text in names.split():
            name, _, size = text.partition("@")
            name, _, batch = name.partition("*")
            yield name, Architecture(family, source(name), _image(int(size or 224)), int(batch or 1))
    for family, name, make, sample in _OTHERS:
        yield name, Architecture(family, make, sample)


_BY_LIBRARY: tuple[tuple[str, Callable[[str], Callable[[], nn.Module]], str], ...] = (
    ("grouped", _torchvision, "resnext50_32x4d regnet_y_400mf regnet_x_800mf@193"),
    ("grouped", _timm, "seresnext26d_32x4d res2net50_26w_4s resnest14d"),
    ("dilated", _segmentation, "deeplabv3_mobilenet_v3_large@256 lraspp_mobilenet_v3_large@255 fcn_resnet50@161"),
    ("plain", _torchvision, "alexnet vgg11 squeezenet1_1 googlenet*4"),
    ("plain", _timm, "repvgg_a0 darknet53@160 resnetv2_50@161 selecsls42"),
    ("separable", _timm, "inception_v4@299 xception41@193 inception_next_tiny"),
    ("squeeze and excite", _torchvision, "mobilenet_v3_large mobilenet_v3_small*8 efficientnet_v2_s@193"),
    ("squeeze and excite", _timm, "legacy_seresnet18 gcresnet33ts lcnet_100 rexnet_100 skresnet18"),
    ("activations", _timm, "hardcorenas_a tinynet_e efficientnet_lite0 mixnet_s mobilenetv4_conv_small"),
    ("shuffle and ghost", _torchvision, "shufflenet_v2_x1_0 mnasnet1_0"),
    ("shuffle and ghost", _timm, "ghostnet_100 ghostnetv2_100 hgnetv2_b0"),
    ("dense", _torchvision, "densenet169@193"),
    ("dense", _timm, "ese_vovnet19b_dw dla34 dpn68 cspdarknet53@160"),
    ("several resolutions", _timm, "hrnet_w18_small crossvit_tiny_240@240"),
    ("windowed attention", _torchvision, "swin_t swin_v2_t@256"),
    ("windowed attention", _timm, "twins_svt_small nest_tiny focalnet_tiny_srf davit_tiny tiny_vit_5m_224"),
    ("hierarchical attention", _timm, "pvt_v2_b0 mobilevit_xs@256 mobilevitv2_050@256 edgenext_xx_small levit_128"),
    ("hierarchical attention", _timm, "coatnet_nano_rw_224 poolformer_s12 efficientformer_l1 caformer_s18"),
    ("attention", _timm, "deit_tiny_patch16_224*4 cait_xxs24_224 convit_tiny"),
    ("linear attention", _timm, "xcit_nano_12_p16_224 efficientvit_b0 efficientvit_m0 mambaout_femto"),
    ("mixers", _timm, "mixer_s32_224 gmixer_24_224 resmlp_12_224 gmlp_ti16_224 convmixer_768_32@112"),
)
"""Family, library, and names, as ``name``, ``name@edge of the image`` or ``name*batch``."""

_BERT = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
_GPT = {"n_embd": 256, "n_layer": 4, "n_head": 4, "vocab_size": 1000}
_LLAMA = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 688}

_OTHERS: tuple[tuple[str, str, Callable[[], nn.Module], Sample], ...] = (
    ("language", "bert_small", _transformer("BertModel", "BertConfig", **_BERT), _tokens(96)),
    ("language", "electra_small", _transformer("ElectraModel", "ElectraConfig", **_BERT), _tokens(77)),
    ("language", "gpt2_small", _transformer("GPT2Model", "GPT2Config", **_GPT), _tokens(64)),
    ("language", "llama_small", _transformer("LlamaModel", "LlamaConfig", vocab_size=1000, **_LLAMA), _tokens(64)),
    ("linear attention", "linear_attention", own.LinearAttention, _random(512, 256)),
    ("speech", "wav2vec2_small", _transformer("Wav2Vec2Model", "Wav2Vec2Config", **_BERT), _random(16000)),
    ("speech", "keyword_net", own.keyword_net, _random(64, 128)),
    ("signals", "signal_net", own.signal_net, _random(1, 16384)),
    ("signals", "temporal_net", own.temporal_net, _random(1, 4000)),
    ("video", "r3d_18", _video("r3d_18"), _random(3, 8, 112, 112)),
    ("video", "mc3_18", _video("mc3_18"), _random(3, 8, 112, 112)),
    ("video", "r2plus1d_18", _video("r2plus1d_18"), _random(3, 8, 112, 112)),
    ("video", "s3d", _video("s3d"), _random(3, 16, 224, 224)),
    ("volumes", "unet3d", own.UNet3d, _random(1, 32, 48, 48)),
    ("super-resolution", "sub_pixel_net", own.sub_pixel_net, _image(120)),
    ("super-resolution", "residual_upscaler", own.residual_upscaler, _image(99)),
    ("super-resolution", "transposed_upscaler", own.transposed_upscaler, _random(1, 128, 128)),
    ("generators", "dcgan", own.generator, _random(100, 1, 1)),
    ("generators", "style_transfer", own.style_transfer, _image(200)),
    ("detection", "pyramid", own.Pyramid, _image(320)),
    ("signals", "gated_wave", unusual.GatedWave, _random(1, 2000)),
    ("unusual", "involution_net", unusual.involution_net, _image(96)),
    ("unusual", "axial_attention", unusual.AxialAttention, _image(128)),
    ("unusual", "latent_attention", unusual.Latents, _random(1024, 32)),
    ("unusual", "fourier_mix", unusual.FourierMix, _random(256, 64)),
    ("tasks", "recommender", further.Recommender, _bags(8, 20, 5000)),
    ("tasks", "segmenter", further.Segmenter, _random(3, 193, 257)),
    ("tasks", "vocoder", further.vocoder, _random(80, 100)),
    ("tasks", "points", further.Points, _random(3, 1024)),
    ("tasks", "decoder", further.Decoder, _random(96, 192)),
    ("tasks", "keypoints", further.Keypoints, _image(192)),
    ("tasks", "context_net", further.context_net, _random(3, 113, 75)),
    ("tasks", "scan", further.Scan, _random(256, 128)),
    ("tasks", "shuffled_groups", further.shuffled_groups, _image(160)),
    ("tasks", "warped", further.Warped, _pair(3, 128, 160)),
    ("recurrent", "gated_steps", unusual.GatedSteps, _random(12, 128)),
)

ARCHITECTURES = dict(_all())
"""By name."""
