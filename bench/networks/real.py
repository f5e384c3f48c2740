"""Real architectures with random weights, as Relax modules from ``torch.export`` and from ONNX.

In: a model's name and a way of import. Out: an :class:`Imported`: the Relax module, an input, and what torch itself
makes of that input. Nothing is downloaded. Needs the dependency group ``bench``.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

if TYPE_CHECKING:  # peers run where there is no TVM
    import tvm

SEED = 0
WAYS = ("export", "onnx")


@dataclass(frozen=True)
class Imported:
    """A Relax module ``main``, one input as arrays in the order of its parameters, and torch's own results."""

    module: tvm.IRModule
    inputs: tuple[np.ndarray, ...]
    expected: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Model:
    """How an architecture is made and what it is given."""

    make: Callable[[], nn.Module]
    sample: Callable[[int], tuple[torch.Tensor, ...]]
    title: str


def load(name: str, way: str, batch: int = 1) -> Imported:
    """Makes model ``name`` and imports it by ``way``, "export" or "onnx"."""
    network, sample = network_of(name, batch)
    with torch.no_grad(), quiet():
        expected = tuple(t.numpy() for t in tensors(network(*sample)))
        module = _from_export(network, sample) if way == "export" else _from_onnx(network, sample)
    return Imported(module, tuple(t.numpy() for t in sample), expected)


def network_of(name: str, batch: int = 1) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Model ``name`` and a sample of that many inputs: the same in every process."""
    model = MODELS[name]
    torch.manual_seed(SEED)
    network = model.make().eval()
    sample = model.sample(batch)
    with torch.no_grad(), quiet():
        settle(network, sample)
    return network, sample


def save_onnx(name: str, batch: int, path: Path) -> None:
    """Writes model ``name`` as an ONNX file."""
    network, sample = network_of(name, batch)
    with torch.no_grad(), quiet():
        torch.onnx.export(network, sample, path, dynamo=True, external_data=False, verbose=False)


def _from_export(network: nn.Module, sample: tuple[torch.Tensor, ...]) -> tvm.IRModule:
    from tvm.relax.frontend.torch import from_exported_program

    return from_exported_program(torch.export.export(network, sample), keep_params_as_input=False)


def _from_onnx(network: nn.Module, sample: tuple[torch.Tensor, ...]) -> tvm.IRModule:
    import onnx
    from tvm.relax.frontend.onnx import from_onnx

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        torch.onnx.export(network, sample, path, dynamo=True, external_data=False, verbose=False)
        return from_onnx(onnx.load(path), keep_params_in_input=False)


def settle(network: nn.Module, sample: tuple[torch.Tensor, ...]) -> None:
    """Gives batch norms random weights and the statistics of the sample, and heads that start as 0 some weights.

    As they are made, the signal dies out on its way, and a comparison of results would be one of biases.
    """
    for parameter in network.parameters():
        if parameter.ndim > 1 and not parameter.any():
            nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
    norms = [module for module in network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.uniform_(norm.bias, -0.5, 0.5)
        norm.momentum = None  # statistics are averages of what has been seen
        norm.train()
    if norms:
        network(*sample)
    for norm in norms:
        norm.eval()


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """All tensors of what a network gives, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif hasattr(value, "values"):
        yield from tensors(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors(item)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Exporters and frontends talk a lot."""
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)


# ---- architectures ----------------------------------------------------------------------------------------------


def _image(size: int) -> Callable[[int], tuple[torch.Tensor, ...]]:
    return lambda batch: (torch.randn(batch, 3, size, size),)


def _tokens(length: int) -> Callable[[int], tuple[torch.Tensor, ...]]:
    return lambda batch: (torch.randint(0, 30000, (batch, length)),)


def _vision(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        return getattr(torchvision().models, name)(weights=None)

    return make


def torchvision() -> Any:
    """torchvision; beside a torch that is built otherwise its native ops are missing, and only detection needs them."""
    try:
        import torchvision as library
    except RuntimeError:
        fragment = torch.library.Library("torchvision", "FRAGMENT")
        for op in ("nms", "qnms"):
            fragment.define(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision as library
    return library


def _bert() -> nn.Module:
    os.environ.setdefault("USE_TORCHVISION", "0")
    with contextlib.suppress(ImportError):
        torchvision()  # transformers imports it where it is installed
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(attn_implementation="eager", return_dict=False))


class UNet(nn.Module):
    """U-Net as in its paper but for "same" padding, batch norms and fewer channels; transposed convolutions go up."""

    def __init__(self, channels: int = 32, depth: int = 4, classes: int = 2):
        super().__init__()
        widths = [channels << level for level in range(depth + 1)]
        self.down = nn.ModuleList(_double(i, o) for i, o in zip([3, *widths], widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(w * 2, w, 2, stride=2) for w in reversed(widths[:-1]))
        self.join = nn.ModuleList(_double(w * 2, w) for w in reversed(widths[:-1]))
        self.head = nn.Conv2d(channels, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips: list[torch.Tensor] = []
        for level, block in enumerate(self.down):
            x = block(nn.functional.max_pool2d(x, 2) if level else x)
            skips.append(x)
        skips.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([skips.pop(), up(x)], dim=1))
        return self.head(x)


def _double(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for source in (inputs, outputs):
        layers += [nn.Conv2d(source, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


def make_small() -> None:
    """Inputs for devices that are simulated: images of 64, Inception's of 139, and 32 tokens."""
    sizes = {name: 64 for name in MODELS if name != "bert"} | {"inception_v3": 139}
    for name, size in sizes.items():
        MODELS[name] = replace(MODELS[name], sample=_image(size))
    MODELS["bert"] = replace(MODELS["bert"], sample=_tokens(32))
    MODELS["vit_b_16"] = replace(MODELS["vit_b_16"], make=lambda: torchvision().models.vit_b_16(image_size=64))
    MODELS["maxvit_t"] = replace(MODELS["maxvit_t"], make=_small_maxvit)


def _small_maxvit() -> nn.Module:
    """MaxViT-T for images of 64, whose parts have an edge of 2 instead of 7."""
    shape = {"stem_channels": 64, "block_channels": [64, 128, 256, 512], "block_layers": [2, 2, 5, 2], "head_dim": 32}
    make = torchvision().models.MaxVit
    return make(input_size=(64, 64), partition_size=2, stochastic_depth_prob=0.2, **shape)


MODELS = {
    "resnet50": Model(_vision("resnet50"), _image(224), "ResNet-50"),
    "mobilenet_v2": Model(_vision("mobilenet_v2"), _image(224), "MobileNetV2"),
    "densenet121": Model(_vision("densenet121"), _image(224), "DenseNet-121"),
    "efficientnet_b0": Model(_vision("efficientnet_b0"), _image(224), "EfficientNet-B0"),
    "convnext_tiny": Model(_vision("convnext_tiny"), _image(224), "ConvNeXt-T"),
    "inception_v3": Model(_vision("inception_v3"), _image(299), "Inception-v3"),
    "unet": Model(UNet, _image(256), "U-Net 256"),
    "maxvit_t": Model(_vision("maxvit_t"), _image(224), "MaxViT-T"),
    "vit_b_16": Model(_vision("vit_b_16"), _image(224), "ViT-B/16"),
    "bert": Model(_bert, _tokens(128), "BERT-base 128"),
}
"""By name: the architecture, and the input that it is given."""
