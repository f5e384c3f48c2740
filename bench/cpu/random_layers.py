"""Layers of sizes drawn at random beside ONNX Runtime and OpenVINO: what a family of kernels was not made for.

``python -m bench.cpu.random_layers [FAMILY ...] --count 20 --seed 1``: each layer has weights of its own, reads and
writes channels first, is compiled as users do, and is run in turns with one thread, by processor time. Printed are the
better peer's time over ours, slowest first. Needs the dependency group ``bench``.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from torch import nn

from bench.cpu.odd_ops import ROUNDS, Case, run_all

LEAST, MOST = 1e6, 6e8
"""Floating-point operations of a layer: fewer are a call and little else, more take long to measure."""

Drawn = tuple[str, nn.Module, tuple[int, ...], float]
"""The name, the layer, the shape of its data, and its operations."""


def _convolution(rng: random.Random) -> Drawn:
    inputs, outputs = (
        rng.choice((3, 8, 16, 24, 40, 64, 100, 160, 256, 512)),
        rng.choice((8, 10, 21, 48, 64, 96, 200, 256)),
    )
    window = rng.choice(((1, 1), (1, 1), (2, 2), (3, 3), (3, 3), (4, 4), (5, 5), (7, 7), (1, 3), (3, 1), (1, 7)))
    return _windowed(rng, nn.Conv2d, inputs, outputs, window, strides=(1, 1, 1, 2, 2, 4))


def _grouped(rng: random.Random) -> Drawn:
    groups, members = rng.choice((2, 3, 4, 8, 16, 32)), rng.choice((2, 3, 4, 8, 12, 24))
    window = rng.choice(((1, 1), (3, 3), (3, 3), (5, 5)))
    outputs = groups * members * rng.choice((1, 1, 2))
    return _windowed(rng, nn.Conv2d, groups * members, outputs, window, strides=(1, 1, 2), groups=groups)


def _depthwise(rng: random.Random) -> Drawn:
    channels = rng.choice((8, 16, 30, 40, 72, 96, 144, 200, 320))
    window = rng.choice(((3, 3), (3, 3), (5, 5), (7, 7), (9, 9), (1, 5), (5, 1), (1, 11)))
    return _windowed(rng, nn.Conv2d, channels, channels, window, strides=(1, 1, 2), groups=channels)


def _sequence(rng: random.Random) -> Drawn:
    inputs, outputs = rng.choice((1, 8, 16, 40, 80, 128, 256)), rng.choice((8, 16, 32, 64, 100, 256))
    return _windowed(rng, nn.Conv1d, inputs, outputs, (rng.choice((1, 3, 5, 8, 15, 25)),), strides=(1, 1, 2, 4))


def _volume(rng: random.Random) -> Drawn:
    inputs, outputs = rng.choice((1, 3, 8, 16, 32, 48)), rng.choice((8, 16, 24, 32, 64))
    window = rng.choice(((1, 1, 1), (3, 3, 3), (1, 3, 3), (3, 1, 1), (2, 2, 2)))
    return _windowed(rng, nn.Conv3d, inputs, outputs, window, strides=(1, 1, 2))


def _windowed(
    rng: random.Random,
    layer: Callable[..., nn.Module],
    inputs: int,
    outputs: int,
    window: tuple[int, ...],
    *,
    strides: tuple[int, ...],
    groups: int = 1,
) -> Drawn:
    """A convolution whose results are as large as its data where strides are 1."""
    rank = len(window)
    batch, stride, dilation = rng.choice((1, 1, 1, 2, 4)), rng.choice(strides), rng.choice((1,) * 6 + (2,))
    extent = rng.choice({1: (50, 301, 1000, 4000), 2: (7, 14, 15, 28, 37, 56, 75, 112), 3: (7, 8, 14, 16, 20)}[rank])
    around = tuple(w // 2 * dilation for w in window)
    made = layer(inputs, outputs, window, stride, around, dilation=dilation, groups=groups)
    products = batch * inputs // groups * outputs * math.prod(window) * (extent / stride) ** rank
    kind, width = f"groups {groups}" if groups > 1 else f"{rank}-D", "x".join(map(str, window))
    name = f"{kind} {batch}x{inputs}->{outputs} window {width} stride {stride} dilation {dilation} of {extent}"
    return name, made, (batch, inputs, *(extent,) * rank), 2 * products


def _transposed(rng: random.Random) -> Drawn:
    inputs, outputs = rng.choice((8, 16, 32, 64, 100, 256)), rng.choice((3, 8, 16, 24, 64, 128))
    width, stride = rng.choice((2, 3, 4, 5, 8)), rng.choice((1, 2, 2, 2, 3, 4))
    extent, batch = rng.choice((1, 4, 7, 8, 14, 20, 32)), rng.choice((1, 1, 2))
    made = nn.ConvTranspose2d(inputs, outputs, width, stride, max(0, width - stride) // 2)
    name = f"transposed {batch}x{inputs}->{outputs} window {width} stride {stride} of {extent}"
    return name, made, (batch, inputs, extent, extent), 2.0 * batch * inputs * outputs * (width * extent) ** 2


def _linear(rng: random.Random) -> Drawn:
    rows = rng.choice((1, 1, 2, 4, 7, 16, 49, 50, 128, 197, 577))
    inputs, outputs = rng.choice((32, 100, 192, 300, 384, 768, 2048)), rng.choice((10, 65, 128, 192, 384, 1000, 3072))
    return (
        f"linear {rows}x{inputs}->{outputs}",
        nn.Linear(inputs, outputs),
        (rows, inputs),
        2.0 * rows * inputs * outputs,
    )


FAMILIES: Final[dict[str, Callable[[random.Random], Drawn]]] = {
    "convolution": _convolution,
    "grouped": _grouped,
    "depthwise": _depthwise,
    "sequence": _sequence,
    "volume": _volume,
    "transposed": _transposed,
    "linear": _linear,
}


def cases(families: list[str], count: int, seed: int) -> Iterator[Case]:
    """``count`` layers of each family; of the same sizes for the same seed."""
    for family in families:
        rng = random.Random(f"{family} {seed}")
        found = 0
        while found < count:
            name, layer, shape, operations = FAMILIES[family](rng)
            if LEAST <= operations <= MOST:
                found += 1
                yield name, layer.eval(), [shape]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=f"of {', '.join(FAMILIES)}; default: all")
    parser.add_argument("--count", type=int, default=10, help="layers of a family")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    options: Any = parser.parse_args()
    if unknown := set(options.families) - set(FAMILIES):
        parser.error(f"no families: {', '.join(sorted(unknown))}; there are {', '.join(FAMILIES)}")
    run_all(cases(options.families or list(FAMILIES), options.count, options.seed), options.rounds, options.json)


if __name__ == "__main__":
    main()
