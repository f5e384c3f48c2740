"""Small networks of kinds that no library of architectures has: signals, volumes, generators, super-resolution.

In: nothing. Out: ``torch.nn`` modules with random weights, each a few known blocks in a row.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn


class Residual(nn.Module):
    """What a block adds to its input."""

    def __init__(self, *layers: nn.Module):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x)


def signal_net(widths: tuple[int, ...] = (1, 32, 64, 128, 128)) -> nn.Module:
    """Long rows: strided and dilated convolutions along one axis, group norms between."""
    layers: list[nn.Module] = []
    for i, o in pairwise(widths):
        layers += [nn.Conv1d(i, o, 9, stride=2, padding=4), nn.GroupNorm(8, o), nn.GELU()]
        layers += [nn.Conv1d(o, o, 5, padding=4, dilation=2), nn.GroupNorm(8, o), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(widths[-1], 10))


def temporal_net(channels: int = 64, levels: int = 6) -> nn.Module:
    """A temporal convolutional network: windows dilated by powers of two (Bai et al. 2018)."""
    layers: list[nn.Module] = [nn.Conv1d(1, channels, 1)]
    for level in range(levels):
        step = 1 << level
        convolutions = [nn.Conv1d(channels, channels, 3, padding=step, dilation=step) for _ in range(2)]
        layers.append(Residual(convolutions[0], nn.ReLU(), convolutions[1], nn.ReLU()))
    return nn.Sequential(*layers, nn.Conv1d(channels, 10, 1))


def keyword_net(channels: int = 96, depth: int = 5) -> nn.Module:
    """Spectra of speech: depthwise along time, pointwise across (as in MatchboxNet)."""
    layers: list[nn.Module] = [nn.Conv1d(64, channels, 11, padding=5), nn.BatchNorm1d(channels), nn.ReLU()]
    for level in range(depth):
        window = 13 + 2 * level
        layers += [nn.Conv1d(channels, channels, window, padding=window // 2, groups=channels)]
        layers += [nn.Conv1d(channels, channels, 1), nn.BatchNorm1d(channels), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(channels, 35))


class UNet3d(nn.Module):
    """Volumes down and up again, three levels."""

    def __init__(self, channels: int = 16):
        super().__init__()
        widths = [channels, channels * 2, channels * 4]
        self.down = nn.ModuleList(_volume(i, o) for i, o in pairwise([1, *widths]))
        self.up = nn.ModuleList(nn.ConvTranspose3d(o, i, 2, stride=2) for i, o in reversed(list(pairwise(widths))))
        self.join = nn.ModuleList(_volume(w * 2, w) for w in reversed(widths[:-1]))
        self.head = nn.Conv3d(channels, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips: list[torch.Tensor] = []
        for level, block in enumerate(self.down):
            x = block(nn.functional.max_pool3d(x, 2) if level else x)
            skips.append(x)
        skips.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([skips.pop(), up(x)], dim=1))
        return self.head(x)


def _volume(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Conv3d(inputs, outputs, 3, padding=1), nn.InstanceNorm3d(outputs), nn.LeakyReLU(0.01))


def sub_pixel_net(channels: int = 64, scale: int = 3) -> nn.Module:
    """ESPCN: the last convolution makes all pixels of a place at once (Shi et al. 2016)."""
    return nn.Sequential(
        *(nn.Conv2d(3, channels, 5, padding=2), nn.Tanh(), nn.Conv2d(channels, 32, 3, padding=1), nn.Tanh()),
        *(nn.Conv2d(32, 3 * scale**2, 3, padding=1), nn.PixelShuffle(scale)),
    )


def residual_upscaler(channels: int = 32, blocks: int = 4) -> nn.Module:
    """EDSR, small: residual blocks without norms, twice as large."""
    body = [
        Residual(nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1))
        for _ in range(blocks)
    ]
    tail = [nn.Conv2d(channels, channels * 4, 3, padding=1), nn.PixelShuffle(2), nn.Conv2d(channels, 3, 3, padding=1)]
    return nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), *body, *tail)


def transposed_upscaler() -> nn.Module:
    """FSRCNN: thin convolutions, and one wide transposed one."""
    layers: list[nn.Module] = [nn.Conv2d(1, 56, 5, padding=2), nn.PReLU(56), nn.Conv2d(56, 12, 1), nn.PReLU(12)]
    for _ in range(4):
        layers += [nn.Conv2d(12, 12, 3, padding=1), nn.PReLU(12)]
    return nn.Sequential(*layers, nn.Conv2d(12, 56, 1), nn.PReLU(56), nn.ConvTranspose2d(56, 1, 9, 3, 4, 2))


def generator(latent: int = 100, channels: int = 64) -> nn.Module:
    """DCGAN: from a vector to an image of 64 by transposed convolutions."""
    widths = [channels * 8, channels * 4, channels * 2, channels]
    layers: list[nn.Module] = [nn.ConvTranspose2d(latent, widths[0], 4), nn.BatchNorm2d(widths[0]), nn.ReLU()]
    for i, o in pairwise(widths):
        layers += [nn.ConvTranspose2d(i, o, 4, stride=2, padding=1), nn.BatchNorm2d(o), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(channels, 3, 4, stride=2, padding=1), nn.Tanh())


def style_transfer(channels: int = 32, blocks: int = 5) -> nn.Module:
    """Johnson et al. 2016: down, residual blocks, up by resizing, instance norms."""

    def block(i: int, o: int, window: int = 3, stride: int = 1) -> list[nn.Module]:
        return [nn.ReflectionPad2d(window // 2), nn.Conv2d(i, o, window, stride), nn.InstanceNorm2d(o, affine=True)]

    layers: list[nn.Module] = [*block(3, channels, 9), nn.ReLU(), *block(channels, channels * 2, 3, 2), nn.ReLU()]
    layers += [Residual(*block(channels * 2, channels * 2), nn.ReLU()) for _ in range(blocks)]
    layers += [nn.Upsample(scale_factor=2), *block(channels * 2, channels), nn.ReLU()]
    return nn.Sequential(*layers, nn.ReflectionPad2d(4), nn.Conv2d(channels, 3, 9))


class LinearAttention(nn.Module):
    """Attention without a softmax: keys and values meet first (Katharopoulos et al. 2020), in pre-norm blocks."""

    def __init__(self, width: int = 256, heads: int = 4, depth: int = 4):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth))
        self.inputs = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(depth))
        self.outputs = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(depth)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for level, mlp in enumerate(self.mlps):
            x = x + self.outputs[level](self._attended(self.inputs[level](self.norms[2 * level](x))))
            x = x + mlp(self.norms[2 * level + 1](x))
        return x

    def _attended(self, projected: torch.Tensor) -> torch.Tensor:
        batch, length, width = projected.shape
        split = projected.reshape(batch, length, 3, self.heads, width // 3 // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = nn.functional.elu(split[0]) + 1, nn.functional.elu(split[1]) + 1, split[2]
        both = key.transpose(-1, -2) @ value
        scale = query @ key.sum(dim=2).unsqueeze(-1)
        return ((query @ both) / scale).transpose(1, 2).reshape(batch, length, width // 3)


class Pyramid(nn.Module):
    """A backbone of four strided stages, a feature pyramid, and a detector's head on each of its levels."""

    def __init__(self, width: int = 64, boxes: int = 9, classes: int = 20):
        super().__init__()
        widths = [32, 64, 128, 256]
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU())
        self.stages = nn.ModuleList(
            nn.Sequential(nn.Conv2d(i, o, 3, 2, 1), nn.BatchNorm2d(o), nn.ReLU(), nn.Conv2d(o, o, 3, 1, 1), nn.ReLU())
            for i, o in pairwise([32, *widths])
        )
        self.lateral = nn.ModuleList(nn.Conv2d(own, width, 1) for own in widths)
        tower = [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()] * 2
        self.head = nn.Sequential(*tower, nn.Conv2d(width, boxes * (4 + classes), 3, padding=1))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        x = self.stem(x)
        levels = [x := stage(x) for stage in self.stages]
        merged = [self.lateral[-1](levels[-1])]
        for lateral, level in zip(reversed(list(self.lateral)[:-1]), reversed(levels[:-1]), strict=True):
            above = nn.functional.interpolate(merged[0], size=level.shape[-2:], mode="nearest")
            merged.insert(0, lateral(level) + above)
        return [self.head(level) for level in merged]
