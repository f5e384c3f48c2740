"""Networks of blocks drawn at random beside ONNX Runtime and OpenVINO: networks that nobody has tuned to.

``python -m bench.cpu.random_networks [BLOCK ...] --count 20 --seed 1``: each has a stem, three to six blocks with
strides between them, and a head, of widths and sizes drawn as well; with ``BLOCK`` only of these kinds. It is compiled
as users do, and run in turns with one thread, by processor time. Printed are the better peer's time over ours. Needs
the dependency group ``bench``.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bench.cpu.odd_ops import ROUNDS, Case, run_all
from bench.networks.random_blocks import BLOCKS, Draw


def network(seed: str, kinds: list[str]) -> Case:
    """One, the same for the same seed and kinds."""
    rng = random.Random(seed)
    torch.manual_seed(rng.randrange(1 << 30))
    draw = Draw(rng)
    batch, size = rng.choice((1, 1, 1, 2, 4)), rng.choice((64, 96, 127, 128, 160, 193, 224))
    stem = rng.choice((2, 2, 4))
    width = rng.choice((16, 24, 32, 40, 48, 64))
    layers: list[nn.Module] = [draw.unit(3, width, rng.choice((3, 7)), stride=stem)]
    named = []
    for _ in range(rng.choice((3, 4, 5, 6))):
        named.append(rng.choice(kinds))
        layers.append(BLOCKS[named[-1]](draw, width))
        if rng.random() < 0.4 and width < 200:
            wider = rng.choice((width, 2 * width, width * 3 // 2))
            layers.append(draw.unit(width, wider, rng.choice((1, 2, 3)), stride=2))
            width = wider
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, rng.choice((10, 100, 1000)))]
    name = f"{seed}: {batch}x{size} {width} {draw.activation.__name__} {' '.join(named)}"
    return name, nn.Sequential(*layers).eval(), [(batch, 3, size, size)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="BLOCK", help=f"of {', '.join(BLOCKS)}; default: all")
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="these of the networks of the seed")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    options: Any = parser.parse_args()
    kinds = options.kinds or list(BLOCKS)
    if unknown := set(kinds) - set(BLOCKS):
        parser.error(f"no blocks: {', '.join(sorted(unknown))}; there are {', '.join(BLOCKS)}")
    numbers = options.only or range(options.count)
    run_all((network(f"{options.seed}.{n}", kinds) for n in numbers), options.rounds, options.json)


if __name__ == "__main__":
    main()
