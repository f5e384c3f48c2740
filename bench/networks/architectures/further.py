"""Small networks for tasks that no other of the zoo is for: what comes before and after convolutions and products.

In: nothing. Out: ``torch.nn`` modules with random weights, each a few known blocks in a row.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from bench.networks.architectures.own import Residual


class Recommender(nn.Module):
    """Tables of embeddings, bags that are summed, products of all pairs, and a tower (DLRM, Naumov et al. 2019)."""

    def __init__(self, tables: int = 8, rows: int = 5000, width: int = 64):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 256), nn.ReLU(), nn.Linear(256, 1), nn.Sigmoid())
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, dense: torch.Tensor, bags: torch.Tensor) -> torch.Tensor:
        x = self.bottom(dense)
        parts = torch.stack([x, *(table(bags[:, i]).sum(1) for i, table in enumerate(self.tables))], 1)
        products = parts @ parts.transpose(1, 2)
        return self.top(torch.cat([x, products[:, self.pairs[0], self.pairs[1]]], 1))


class Segmenter(nn.Module):
    """Dilated branches and the mean of the image, resized and joined, and the class of each pixel (DeepLab)."""

    def __init__(self, width: int = 48, classes: int = 19):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1), nn.ReLU(), nn.Conv2d(24, width, 3, 2, 1), nn.ReLU())
        self.branches = nn.ModuleList(nn.Conv2d(width, width, 3, padding=d, dilation=d) for d in (1, 3, 6, 9))
        self.whole = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width, 1), nn.ReLU())
        self.low, self.join = nn.Conv2d(24, 16, 1), nn.Conv2d(5 * width, width, 1)
        self.head = nn.Conv2d(width + 16, classes, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low = self.stem[:2](x)
        y = self.stem[2:](low)
        parts = [torch.relu(branch(y)) for branch in self.branches]
        parts.append(F.interpolate(self.whole(y), y.shape[-2:]))
        y = F.interpolate(self.join(torch.cat(parts, 1)), low.shape[-2:], mode="bilinear")
        y = self.head(torch.cat([y, self.low(low)], 1))
        return F.interpolate(y, x.shape[-2:], mode="bilinear").argmax(1).float()


def vocoder(channels: int = 64) -> nn.Module:
    """Spectra to waves: transposed convolutions along time, dilated residuals between (HiFi-GAN, Kong et al. 2020)."""
    layers: list[nn.Module] = [nn.Conv1d(80, channels, 7, padding=3)]
    for rate in (8, 3, 2):
        layers += [nn.LeakyReLU(0.1), nn.ConvTranspose1d(channels, channels // 2, 2 * rate, rate, (rate + 1) // 2)]
        channels //= 2
        for step in (1, 3):
            window = nn.Conv1d(channels, channels, 3, padding=step, dilation=step)
            layers.append(Residual(nn.LeakyReLU(0.1), window))
    return nn.Sequential(*layers, nn.LeakyReLU(), nn.Conv1d(channels, 1, 7, padding=3), nn.Tanh())


class Points(nn.Module):
    """The same layers for every point, the largest of all of them, and a label for each (PointNet, Qi et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv1d(3, 64, 1), nn.BatchNorm1d(64), nn.ReLU())
        self.second = nn.Sequential(nn.Conv1d(64, 256, 1), nn.BatchNorm1d(256), nn.ReLU())
        self.head = nn.Sequential(nn.Conv1d(320, 128, 1), nn.ReLU(), nn.Conv1d(128, 13, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own = self.first(x)
        whole = self.second(own).amax(2, keepdim=True)
        return self.head(torch.cat([own, whole.expand(-1, -1, x.shape[2])], 1)).log_softmax(1)


class Decoder(nn.Module):
    """Pre-norm blocks of today's language models: RMS norms, turned pairs, shared keys, gated layers."""

    def __init__(self, width: int = 192, heads: int = 6, groups: int = 2, depth: int = 2, length: int = 96):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.norms = nn.ParameterList(torch.rand(width) for _ in range(2 * depth))
        both = width + 2 * groups * self.size
        self.inputs = nn.ModuleList(nn.Linear(width, both, bias=False) for _ in range(depth))
        self.outputs = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(depth))
        self.gates = nn.ModuleList(nn.Linear(width, 4 * width, bias=False) for _ in range(depth))
        self.downs = nn.ModuleList(nn.Linear(2 * width, width, bias=False) for _ in range(depth))
        angles = torch.outer(torch.arange(length), 1e4 ** (-torch.arange(0, self.size, 2) / self.size))
        self.register_buffer("cosines", angles.cos())
        self.register_buffer("sines", angles.sin())
        self.register_buffer("mask", torch.full((length, length), -1e9).triu(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, (given, out, gate, down) in enumerate(
            zip(self.inputs, self.outputs, self.gates, self.downs, strict=True)
        ):
            x = x + out(self._attended(given(self._norm(x, 2 * i))))
            a, b = gate(self._norm(x, 2 * i + 1)).chunk(2, -1)
            x = x + down(F.silu(a) * b)
        return x

    def _norm(self, x: torch.Tensor, number: int) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.norms[number]

    def _turned(self, x: torch.Tensor) -> torch.Tensor:
        even, odd = x[..., ::2], x[..., 1::2]
        turned = even * self.cosines - odd * self.sines, even * self.sines + odd * self.cosines
        return torch.stack(turned, -1).flatten(-2)

    def _attended(self, x: torch.Tensor) -> torch.Tensor:
        split = x.unflatten(-1, (-1, self.size)).transpose(1, 2)
        q, k, v = split.split([self.heads, self.groups, self.groups], 1)
        k, v = (t.repeat_interleave(self.heads // self.groups, 1) for t in (self._turned(k), v))
        scores = self._turned(q) @ k.transpose(-1, -2) / math.sqrt(self.size) + self.mask
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class Keypoints(nn.Module):
    """Heat maps, and where they are highest on average (integral regression), for a few images at once."""

    def __init__(self, joints: int = 17):
        super().__init__()
        layers: list[nn.Module] = []
        for i, o in ((3, 32), (32, 64), (64, 128)):
            layers += [nn.Conv2d(i, o, 3, 2, 1), nn.BatchNorm2d(o), nn.SiLU()]
        layers += [nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, joints, 1)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = self.layers(x)
        height, width = maps.shape[-2:]
        heat = maps.flatten(2).softmax(-1).unflatten(2, (height, width))
        across = (heat.sum(2) * torch.arange(width)).sum(-1)
        return torch.stack([across, (heat.sum(3) * torch.arange(height)).sum(-1)], -1)


class Context(nn.Module):
    """What the whole image says, by attention of one query, and gates of channels and places (GCNet, CBAM)."""

    def __init__(self, channels: int = 48):
        super().__init__()
        self.key = nn.Conv2d(channels, 1, 1)
        self.turn = nn.Sequential(nn.Conv2d(channels, 12, 1), nn.LayerNorm([12, 1, 1]), nn.ReLU())
        self.back, self.place = nn.Conv2d(12, channels, 1), nn.Conv2d(2, 1, 7, padding=3)
        self.mix = nn.Conv2d(channels, channels, 3, padding=1, groups=4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.key(x).flatten(2).softmax(-1)
        context = (x.flatten(2) @ weights.transpose(1, 2)).unsqueeze(-1)
        x = x + self.back(self.turn(context))
        gates = torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)
        return torch.relu(self.mix(x * torch.sigmoid(self.place(gates))))


def context_net() -> nn.Module:
    """Such blocks at odd sizes."""
    return nn.Sequential(nn.Conv2d(3, 48, 3, 2, 1), nn.ReLU(), *(Context() for _ in range(3)), nn.AvgPool2d(2))


class Scan(nn.Module):
    """Decayed sums along time, by running sums, gated (as in linear recurrences), then group norms of heads."""

    def __init__(self, width: int = 128, depth: int = 3):
        super().__init__()
        self.inputs = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(depth))
        self.outputs = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.windows = nn.ModuleList(nn.Conv1d(width, width, 4, padding=3, groups=width) for _ in range(depth))
        self.norm = nn.GroupNorm(8, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for given, out, window in zip(self.inputs, self.outputs, self.windows, strict=True):
            values, decay, gate = given(x).chunk(3, -1)
            values = F.silu(window(values.transpose(1, 2))[..., : x.shape[1]]).transpose(1, 2)
            total = torch.cumsum(-F.softplus(decay) / 64, 1)
            state = torch.cumsum(values * torch.exp(-total), 1) * torch.exp(total)
            state = self.norm(state.transpose(1, 2)).transpose(1, 2)
            x = x + out(state * F.silu(gate))
        return x


def shuffled_groups(channels: int = 96) -> nn.Module:
    """Grouped convolutions of one pixel, channels that take turns, depthwise windows (Zhang et al. 2017)."""

    def block() -> nn.Module:
        return Residual(
            *(nn.Conv2d(channels, channels, 1, groups=3), nn.BatchNorm2d(channels), nn.ReLU(), nn.ChannelShuffle(3)),
            *(nn.Conv2d(channels, channels, 3, padding=1, groups=channels), nn.BatchNorm2d(channels)),
            *(nn.Conv2d(channels, channels, 1, groups=3), nn.BatchNorm2d(channels)),
        )

    stem = (nn.Conv2d(3, channels, 3, 2, 1), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(*stem, *(block() for _ in range(4)), nn.AdaptiveAvgPool2d(1), nn.Flatten())


class Warped(nn.Module):
    """Features of one image where the flow to another says, and their products (as in optical flow networks)."""

    def __init__(self, width: int = 32):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.LeakyReLU(0.1), nn.Conv2d(width, width, 3, 2, 1))
        self.flow = nn.Sequential(nn.Conv2d(2 * width, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 2, 3, padding=1))
        self.last = nn.Conv2d(width + 25, 2, 3, padding=1)

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        a, b = self.features(first), self.features(second)
        height, width = a.shape[-2:]
        flow = torch.tanh(self.flow(torch.cat([a, b], 1))) * 0.1
        rows, columns = torch.linspace(-1, 1, height), torch.linspace(-1, 1, width)
        grid = torch.stack([columns.expand(height, width), rows[:, None].expand(height, width)], -1)
        b = F.grid_sample(b, grid + flow.permute(0, 2, 3, 1), align_corners=True)
        padded = F.pad(b, (2, 2, 2, 2))
        shifts = [padded[..., i : i + height, j : j + width] for i in range(5) for j in range(5)]
        costs = torch.cat([(a * shift).mean(1, keepdim=True) for shift in shifts], 1)
        return F.interpolate(self.last(torch.cat([a, costs], 1)), scale_factor=4, mode="bilinear")
