"""Blocks of networks whose kind, widths, norms and activations are drawn at random: networks that nobody has seen.

Each block reads and writes images channels first, of any number of channels; what it has of rows, tokens or heads is
its own. The ideas are those of published networks; sizes are not.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional as F

from bench.networks.architectures.own import Residual

ACTIVATIONS: Final = (nn.ReLU, nn.ReLU, nn.SiLU, nn.GELU, nn.Hardswish, nn.ReLU6, nn.LeakyReLU, nn.Mish, nn.PReLU)


class Draw:
    """Choices of one network, which has one activation and one norm as published ones do."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.activation = rng.choice(ACTIVATIONS)
        self.is_batch_norm = rng.random() < 0.8

    def act(self) -> nn.Module:
        return self.activation()

    def norm(self, channels: int) -> nn.Module:
        if self.is_batch_norm:
            made = nn.BatchNorm2d(channels)
            nn.init.uniform_(made.running_mean, -0.1, 0.1)
            nn.init.uniform_(made.running_var, 0.5, 1.5)
            return made
        return nn.GroupNorm(next(g for g in (8, 4, 5, 3, 2, 1) if channels % g == 0), channels)

    def unit(self, inputs: int, outputs: int, window: int | tuple[int, int] = 1, **more: Any) -> nn.Sequential:
        """A convolution that keeps the size (but for strides), its norm and the activation."""
        sides = (window, window) if isinstance(window, int) else window
        dilation = more.get("dilation", 1)
        around = tuple((side - 1) * dilation // 2 for side in sides)
        convolution = nn.Conv2d(inputs, outputs, sides, padding=around, bias=not self.is_batch_norm, **more)
        return nn.Sequential(convolution, self.norm(outputs), self.act())


class Apply(nn.Module):
    """A function of modules and data."""

    def __init__(self, function: Callable[..., torch.Tensor], *modules: nn.Module):
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(modules)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, *self.parts)


def _even(channels: int, factor: float, multiple: int = 4) -> int:
    return max(multiple, int(channels * factor) // multiple * multiple)


# ---- convolutions ------------------------------------------------------------------------------------------------


def basic(draw: Draw, c: int) -> nn.Module:
    return nn.Sequential(Residual(draw.unit(c, c, 3), draw.unit(c, c, 3)[:2]), draw.act())


def bottleneck(draw: Draw, c: int) -> nn.Module:
    inner = _even(c, draw.rng.choice((0.25, 0.5, 1)), 8)
    groups = draw.rng.choice([g for g in (1, 2, 4, 8, inner // 8) if g and inner % g == 0])
    body = (draw.unit(c, inner), draw.unit(inner, inner, 3, groups=groups), draw.unit(inner, c)[:2])
    return nn.Sequential(Residual(*body), draw.act())


def squeezed(draw: Draw, c: int) -> nn.Module:
    """Squeeze and excite."""
    inner = _even(c, draw.rng.choice((0.0625, 0.25)), draw.rng.choice((1, 4, 8)))
    gate = draw.rng.choice((nn.Sigmoid, nn.Hardsigmoid))
    layers = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, inner, 1), draw.act(), nn.Conv2d(inner, c, 1), gate())
    return Apply(lambda x, own: x * own(x), layers)


def inverted(draw: Draw, c: int) -> nn.Module:
    inner, window = _even(c, draw.rng.choice((2, 3, 4, 6))), draw.rng.choice((3, 3, 5, 7))
    parts: list[nn.Module] = [draw.unit(c, inner), draw.unit(inner, inner, window, groups=inner)]
    if draw.rng.random() < 0.5:
        parts.append(squeezed(draw, inner))
    return Residual(nn.Sequential(*parts, draw.unit(inner, c)[:2]))


def next_block(draw: Draw, c: int) -> nn.Module:
    window, factor = draw.rng.choice((5, 7, 7, 9)), draw.rng.choice((2, 3, 4))
    rows = (nn.LayerNorm(c), nn.Linear(c, factor * c), nn.GELU(), nn.Linear(factor * c, c))
    spatial = nn.Conv2d(c, c, window, padding=window // 2, groups=c)
    return Residual(nn.Sequential(spatial, Apply(_in_rows, nn.Sequential(*rows))))


def _in_rows(x: torch.Tensor, own: nn.Module) -> torch.Tensor:
    return own(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def ghost(draw: Draw, c: int) -> nn.Module:
    half = c // 2
    own = (draw.unit(c, half), draw.unit(half, c - half, 3, groups=half if c - half == half else 1))
    return Apply(lambda x, one, cheap: torch.cat((y := one(x), cheap(y)), 1), *own)


def shuffled(draw: Draw, c: int) -> nn.Module:
    if c % 2:
        return basic(draw, c)
    half = c // 2
    own = nn.Sequential(draw.unit(half, half), draw.unit(half, half, 3, groups=half)[:2], draw.unit(half, half))

    def function(x: torch.Tensor, layers: nn.Module) -> torch.Tensor:
        one, other = x.chunk(2, 1)
        y = torch.cat((one, layers(other)), 1)
        return y.view(y.shape[0], 2, half, *y.shape[2:]).transpose(1, 2).flatten(1, 2)

    return Apply(function, own)


def dense(draw: Draw, c: int) -> nn.Module:
    growth, count = draw.rng.choice((8, 12, 24, 32)), draw.rng.choice((2, 3, 4))
    layers = [nn.Sequential(draw.norm(c + i * growth), draw.act(), nn.Conv2d(c + i * growth, growth, 3, padding=1))
              for i in range(count)]  # fmt: skip

    def function(x: torch.Tensor, *own: nn.Module) -> torch.Tensor:
        for layer in own[:-1]:
            x = torch.cat((x, layer(x)), 1)
        return own[-1](x)

    return Apply(function, *layers, draw.unit(c + count * growth, c))


def branches(draw: Draw, c: int) -> nn.Module:
    """Windows of several sizes side by side."""
    part = _even(c, 0.25, 1) or 1
    own = [draw.unit(c, part)]
    windows: tuple[int | tuple[int, int], ...] = (3, 5, (1, 7), (7, 1))
    own += [nn.Sequential(draw.unit(c, part), draw.unit(part, part, w)) for w in draw.rng.sample(windows, 2)]
    pool = draw.rng.choice((nn.AvgPool2d, nn.MaxPool2d))
    own.append(nn.Sequential(pool(3, 1, 1), draw.unit(c, c - 3 * part)))
    return Apply(lambda x, *layers: torch.cat([layer(x) for layer in layers], 1), *own)


def dilated(draw: Draw, c: int) -> nn.Module:
    """A pyramid of dilations, and the mean of the image."""
    part = _even(c, 0.5)
    own = [draw.unit(c, part), *(draw.unit(c, part, 3, dilation=d) for d in draw.rng.sample((2, 3, 4, 6, 12), 2))]
    mean = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, part, 1), draw.act())

    def function(x: torch.Tensor, last: nn.Module, whole: nn.Module, *layers: nn.Module) -> torch.Tensor:
        found = [layer(x) for layer in layers]
        return last(torch.cat((*found, whole(x).expand_as(found[0])), 1))

    return Apply(function, draw.unit(4 * part, c), mean, *own)


def separable(draw: Draw, c: int) -> nn.Module:
    side = draw.rng.choice((3, 5, 7, 11))
    return Residual(
        nn.Sequential(draw.unit(c, c, (1, side), groups=c), draw.unit(c, c, (side, 1), groups=c), draw.unit(c, c))
    )


def large_kernel(draw: Draw, c: int) -> nn.Module:
    layers = nn.Sequential(
        nn.Conv2d(c, c, 5, padding=2, groups=c),
        nn.Conv2d(c, c, 7, padding=9, dilation=3, groups=c),
        nn.Conv2d(c, c, 1),
    )
    return Apply(lambda x, own: x * own(x), layers)


def fire(draw: Draw, c: int) -> nn.Module:
    inner = _even(c, 0.25)
    own = (draw.unit(c, inner), draw.unit(inner, c // 2), draw.unit(inner, c - c // 2, 3))
    return Apply(lambda x, s, one, three: torch.cat((one(y := s(x)), three(y)), 1), *own)


def gated(draw: Draw, c: int) -> nn.Module:
    return Residual(nn.Sequential(nn.Conv2d(c, 2 * c, 3, padding=1), nn.GLU(1), draw.unit(c, c)))


def several_scales(draw: Draw, c: int) -> nn.Module:
    """Down, through, and up again, beside what stays."""
    down = draw.rng.choice((nn.MaxPool2d(2), nn.AvgPool2d(2), nn.Conv2d(c, c, 2, 2), nn.Conv2d(c, c, 3, 2, 1)))
    mode = draw.rng.choice(("nearest", "bilinear"))

    def function(x: torch.Tensor, *own: nn.Module) -> torch.Tensor:
        small = own[1](own[0](x))
        return own[2](torch.cat((x, F.interpolate(small, x.shape[2:], mode=mode)), 1))

    return Apply(function, down, draw.unit(c, c, 3), draw.unit(2 * c, c, draw.rng.choice((1, 3))))


def up_and_down(draw: Draw, c: int) -> nn.Module:
    part = _even(c, 0.5)
    up = draw.rng.choice((nn.ConvTranspose2d(c, part, 2, 2), nn.ConvTranspose2d(c, part, 4, 2, 1)))
    return nn.Sequential(up, draw.act(), draw.unit(part, c, 3, stride=2))


def spatial_gate(draw: Draw, c: int) -> nn.Module:
    layer = nn.Conv2d(2, 1, 7, padding=3)
    return Apply(lambda x, own: x * own(torch.cat((x.mean(1, True), x.amax(1, True)), 1)).sigmoid(), layer)


def coordinates(draw: Draw, c: int) -> nn.Module:
    inner = _even(c, 0.25, 8)

    def function(x: torch.Tensor, *own: nn.Module) -> torch.Tensor:
        high = x.shape[2]
        y = own[0](torch.cat((x.mean(3, True), x.mean(2, True).transpose(2, 3)), 2))
        rows, columns = y[:, :, :high], y[:, :, high:].transpose(2, 3)
        return x * own[1](rows).sigmoid() * own[2](columns).sigmoid()

    return Apply(function, draw.unit(c, inner), nn.Conv2d(inner, c, 1), nn.Conv2d(inner, c, 1))


def channel_line(draw: Draw, c: int) -> nn.Module:
    """A gate of a short convolution over channels."""
    layer = nn.Conv1d(1, 1, 5, padding=2, bias=False)
    return Apply(lambda x, own: x * own(x.mean((2, 3)).unsqueeze(1)).sigmoid().squeeze(1)[..., None, None], layer)


# ---- tokens ------------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Of the tokens of a window, of a row, or of all; with a bias of places, or without."""

    def __init__(self, width: int, heads: int, tokens: int | None, kind: str = "softmax"):
        super().__init__()
        self.heads, self.kind = heads, kind
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(torch.randn(heads, tokens, tokens) * 0.1) if tokens else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, count, width = x.shape
        q, k, v = self.into(x).view(batch, count, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        if self.kind == "linear":
            q, k = F.elu(q) + 1, F.elu(k) + 1
            y = q @ (k.transpose(-1, -2) @ v) / (q @ k.sum(-2, True).transpose(-1, -2))
        elif self.kind == "causal":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = F.scaled_dot_product_attention(q, k, v, self.bias)
        return self.out(y.transpose(1, 2).reshape(batch, count, width))


def _transformer(draw: Draw, c: int, tokens: int | None, kind: str = "softmax") -> nn.Module:
    heads = draw.rng.choice([h for h in (1, 2, 3, 4, 8) if c % h == 0 and c // h >= 8] or [1])
    factor = draw.rng.choice((2, 3, 4))
    rows = (nn.LayerNorm(c), nn.Linear(c, factor * c), nn.GELU(), nn.Linear(factor * c, c))
    attention = nn.Sequential(nn.LayerNorm(c), Attention(c, heads, tokens, kind))
    return nn.Sequential(Residual(attention), Residual(nn.Sequential(*rows)))


def windowed(draw: Draw, c: int) -> nn.Module:
    side, shift = draw.rng.choice((4, 7, 8)), draw.rng.choice((0, 2))

    def function(x: torch.Tensor, own: nn.Module) -> torch.Tensor:
        batch, _, high, wide = x.shape
        y = F.pad(x, (0, -wide % side, 0, -high % side)).permute(0, 2, 3, 1)
        y = torch.roll(y, (-shift, -shift), (1, 2)) if shift else y
        h, w = y.shape[1] // side, y.shape[2] // side
        y = y.view(batch, h, side, w, side, c).transpose(2, 3).reshape(-1, side * side, c)
        y = own(y).view(batch, h, w, side, side, c).transpose(2, 3).reshape(batch, h * side, w * side, c)
        y = torch.roll(y, (shift, shift), (1, 2)) if shift else y
        return y[:, :high, :wide].permute(0, 3, 1, 2)

    return Apply(function, _transformer(draw, c, side * side))


def everywhere(draw: Draw, c: int) -> nn.Module:
    """Attention of all places of an image made small."""
    kind = draw.rng.choice(("softmax", "softmax", "linear", "causal"))
    factor = draw.rng.choice((2, 4)) if kind != "linear" else 1

    def function(x: torch.Tensor, own: nn.Module) -> torch.Tensor:
        small = F.avg_pool2d(x, factor, ceil_mode=True) if factor > 1 else x
        y = own(small.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(small.shape)
        return x + F.interpolate(y, x.shape[2:]) if factor > 1 else y

    return Apply(function, _transformer(draw, c, None, kind))


def axial(draw: Draw, c: int) -> nn.Module:
    def function(x: torch.Tensor, rows: nn.Module, columns: nn.Module) -> torch.Tensor:
        batch, _, high, wide = x.shape
        y = rows(x.permute(0, 2, 3, 1).reshape(-1, wide, c)).view(batch, high, wide, c)
        y = columns(y.transpose(1, 2).reshape(-1, high, c)).view(batch, wide, high, c)
        return y.permute(0, 3, 2, 1)

    return Apply(function, _transformer(draw, c, None), _transformer(draw, c, None))


def pooled(draw: Draw, c: int) -> nn.Module:
    """Pooling in place of attention, and a product of rows."""
    mixing = Apply(lambda x, norm, pool: pool(y := norm(x)) - y, nn.GroupNorm(1, c), nn.AvgPool2d(3, 1, 1))
    rows = nn.Sequential(nn.GroupNorm(1, c), nn.Conv2d(c, 2 * c, 1), nn.GELU(), nn.Conv2d(2 * c, c, 1))
    return nn.Sequential(Residual(mixing), Residual(rows))


def recurrent(draw: Draw, c: int) -> nn.Module:
    """Steps along the columns of an image made one row."""
    layer = draw.rng.choice((nn.GRU, nn.LSTM))(c, c // 2, batch_first=True, bidirectional=True)

    def function(x: torch.Tensor, own: nn.Module) -> torch.Tensor:
        y = own(x.mean(2).transpose(1, 2))[0]
        return torch.cat((x[:, : c - y.shape[2]], x[:, c - y.shape[2] :] + y.transpose(1, 2).unsqueeze(2)), 1)

    return Apply(function, layer)


_KINDS = (
    (basic, bottleneck, squeezed, inverted, next_block, ghost, shuffled, dense, branches, dilated, separable),
    (large_kernel, fire, gated, several_scales, up_and_down, spatial_gate, coordinates, channel_line),
    (windowed, everywhere, axial, pooled, recurrent),
)
BLOCKS: Final[dict[str, Callable[[Draw, int], nn.Module]]] = {own.__name__: own for part in _KINDS for own in part}
