"""Small networks of kinds that no other of the zoo has: what they are made of shows which kernels are missing.

In: nothing. Out: ``torch.nn`` modules with random weights, each a few known blocks in a row.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from bench.networks.architectures.own import Residual


class GatedWave(nn.Module):
    """Dilated windows whose results are gated, and skips that are summed (WaveNet, van den Oord et al. 2016)."""

    def __init__(self, channels: int = 48, levels: int = 8):
        super().__init__()
        self.first = nn.Conv1d(1, channels, 1)
        steps = [1 << level for level in range(levels)]
        self.windows = nn.ModuleList(nn.Conv1d(channels, 2 * channels, 2, dilation=step) for step in steps)
        self.mixes = nn.ModuleList(nn.Conv1d(channels, 2 * channels, 1) for _ in steps)
        self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(channels, 64, 1), nn.ReLU(), nn.Conv1d(64, 64, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, total = self.first(x), torch.zeros(())
        for window, mix in zip(self.windows, self.mixes, strict=True):
            values, gates = window(nn.functional.pad(x, (window.dilation[0], 0))).chunk(2, 1)
            more, skip = mix(torch.tanh(values) * torch.sigmoid(gates)).chunk(2, 1)
            x, total = x + more, total + skip
        return self.last(total)


class Involution(nn.Module):
    """Windows whose weights are made of the pixel in their middle (Li et al. 2021)."""

    def __init__(self, channels: int, window: int = 5, groups: int = 4):
        super().__init__()
        self.window, self.groups = window, groups
        self.weights = nn.Sequential(
            nn.Conv2d(channels, channels // 4, 1), nn.ReLU(), nn.Conv2d(channels // 4, window**2 * groups, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, channels, height, width = x.shape
        weights = self.weights(x).view(batch, self.groups, 1, self.window**2, height, width)
        edge = self.window // 2
        padded = nn.functional.pad(x, (edge, edge, edge, edge))
        places = [(i, j) for i in range(self.window) for j in range(self.window)]
        shifted = torch.stack([padded[:, :, i : i + height, j : j + width] for i, j in places], 2)
        split = shifted.view(batch, self.groups, channels // self.groups, len(places), height, width)
        return (weights * split).sum(3).view(batch, channels, height, width)


def involution_net(channels: int = 32) -> nn.Module:
    """Involutions between convolutions of one pixel."""
    blocks = [
        Residual(nn.Conv2d(channels, channels, 1), nn.ReLU(), Involution(channels), nn.Conv2d(channels, channels, 1))
        for _ in range(3)
    ]
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))
    return nn.Sequential(nn.Conv2d(3, channels, 3, stride=2, padding=1), *blocks, *head)


class Attention(nn.Module):
    """Of rows over other rows, in four heads."""

    def __init__(self, width: int, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.queries, self.both, self.out = (nn.Linear(width, n * width) for n in (1, 2, 1))

    def forward(self, x: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            t.unflatten(-1, (self.heads, -1)).transpose(-3, -2)
            for t in (self.queries(x), *self.both(others).chunk(2, -1))
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        return self.out((scores.softmax(-1) @ v).transpose(-3, -2).flatten(-2))


class AxialAttention(nn.Module):
    """Pixels attend to their column, then to their row (Ho et al. 2019)."""

    def __init__(self, width: int = 64, depth: int = 2):
        super().__init__()
        self.first = nn.Conv2d(3, width, 4, stride=4)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth))
        self.layers = nn.ModuleList(Attention(width) for _ in range(2 * depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).permute(0, 2, 3, 1)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            y = norm(x)
            x = (x + layer(y, y)).transpose(1, 2)
        return x


class Latents(nn.Module):
    """A few latent rows attend to many inputs, then to each other (Perceiver, Jaegle et al. 2021)."""

    def __init__(self, width: int = 128, latents: int = 48, depth: int = 3):
        super().__init__()
        self.latents = nn.Parameter(torch.randn(1, latents, width))
        self.inputs = nn.Linear(32, width)
        self.cross = nn.ModuleList(Attention(width) for _ in range(depth))
        self.own = nn.ModuleList(Attention(width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given, x = self.inputs(x), self.latents
        for i, (cross, own) in enumerate(zip(self.cross, self.own, strict=True)):
            x = x + cross(self.norms[2 * i](x), given)
            y = self.norms[2 * i + 1](x)
            x = x + own(y, y)
        return x.mean(1)


class FourierMix(nn.Module):
    """Filters over whole rows, in frequencies: products with cosines and sines (as in global filter networks)."""

    def __init__(self, length: int = 256, width: int = 64, depth: int = 3):
        super().__init__()
        angles = 2 * math.pi * torch.outer(torch.arange(length // 2 + 1), torch.arange(length)) / length
        self.register_buffer("cosines", torch.cos(angles))
        self.register_buffer("sines", torch.sin(angles))
        self.filters = nn.ParameterList(torch.randn(2, length // 2 + 1, width) for _ in range(depth))
        self.mixes = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for own, mix in zip(self.filters, self.mixes, strict=True):
            real, imaginary = self.cosines @ x, self.sines @ x
            a, b = real * own[0] - imaginary * own[1], real * own[1] + imaginary * own[0]
            x = x + mix((self.cosines.T @ a + self.sines.T @ b) / len(self.cosines))
        return x


class GatedSteps(nn.Module):
    """Gated recurrent units over a few steps, written out (Cho et al. 2014)."""

    def __init__(self, width: int = 128, layers: int = 2):
        super().__init__()
        self.given = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.held = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for given, held in zip(self.given, self.held, strict=True):
            state, states = torch.zeros_like(x[:, 0]), []
            for inputs in given(x).unbind(1):
                (reset, update, new), (own_reset, own_update, own_new) = inputs.chunk(3, -1), held(state).chunk(3, -1)
                keep = torch.sigmoid(update + own_update)
                new = torch.tanh(new + torch.sigmoid(reset + own_reset) * own_new)
                state = keep * state + (1 - keep) * new
                states.append(state)
            x = torch.stack(states, 1)
        return x
