"""Command: sizes, costs and seconds of the selection solver on synthetic networks, beside the greedy solver.

python -m bench.planning.extraction [--ops 200,2000,20000] [--nets resnet,densenet,...] [--limit SECONDS]
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections.abc import Callable, Sequence

from eqsat_layout.extract.solver.frontier import solve
from eqsat_layout.extract.solver.greedy import solve_greedy
from eqsat_layout.extract.solver.problem import AliasClass, ENode, Problem

FORMATS = 4
ROW, NHWC, C4, C16 = range(FORMATS)
FREE = -1


def main() -> None:
    """Print one line for each network and size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", default="200,2000,20000")
    parser.add_argument("--nets", default=",".join(n for n in NETS if n != "wide"))
    parser.add_argument("--limit", type=float, default=None)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(f"{'net':12} {'ops':>6} {'classes':>8} {'nodes':>8} {'kinds':>6} {'widest':>6} {'cost us':>12} "
          f"{'gap':>8} {'greedy':>8} {'method':>9} {'s':>7} {'s greedy':>8}")  # fmt: skip
    for name in args.nets.split(","):
        for ops in map(int, args.ops.split(",")):
            problem = network(name, ops, args.seed)
            nodes = sum(len(ways) for alias_class in problem.classes for ways in alias_class.nodes)
            gc.collect()
            start = time.perf_counter()
            found = solve(problem, time_limit=args.limit)
            middle = time.perf_counter()
            greedy = solve_greedy(problem)
            end = time.perf_counter()
            print(
                f"{name:12} {ops:6} {len(problem.classes):8} {nodes:8} {found.stats.distinct_classes:6} "
                f"{found.stats.widest:6} {found.cost * 1e6:12.2f} {found.gap:8.2%} "
                f"{greedy.cost / found.cost - 1:+8.2%} {found.stats.method:>9} "
                f"{middle - start:7.3f} {end - middle:8.3f}",
                flush=True,
            )


def network(name: str, ops: int, seed: int = 0) -> Problem:
    """The selection problem of a synthetic network of about so many ops, 4 formats a tensor (constants not counted)."""
    net = _Net(random.Random(f"{name} {seed}"))
    NETS[name](net, ops)
    return Problem(tuple(net.classes), ((len(net.classes) - 1, ROW),))


class _Net:
    """Alias classes as they are added; sizes are elements of the tensor, costs follow from the bytes moved."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.classes: list[AliasClass] = []
        self.sizes: list[int] = []
        self.ops = 0
        self.matrices: dict[int, tuple[tuple[float, ...], ...]] = {}

    def _add(self, size: int, nodes: Sequence[Sequence[ENode]]) -> int:
        matrix = self.matrices.get(size)
        if matrix is None:
            factor = ((0, 3, 4, 4), (3, 0, 2, 2.5), (4, 2, 0, 1.5), (4, 2.5, 1.5, 0))
            matrix = self.matrices[size] = tuple(
                tuple((2e-6 + x * 2e-10 * size) * (i != j) for j, x in enumerate(row)) for i, row in enumerate(factor)
            )
        self.classes.append(AliasClass(tuple(map(tuple, nodes)), matrix))
        self.sizes.append(size)
        return len(self.classes) - 1

    def given(self, size: int) -> int:
        return self._add(size, [[ENode(0.0)] if f == ROW else [] for f in range(FORMATS)])

    def const(self, size: int) -> int:
        return self._add(size, [[ENode(0.0)]] * FORMATS)

    def map(self, *operands: int, size: int | None = None, refuse: Sequence[int] = ()) -> int:
        """An op that works in any format, all operands in the same one."""
        self.ops += 1
        size = size or self.sizes[operands[0]]
        cost = 1e-6 + size * 1e-10 * (1 + len(operands))
        nodes: list[list[ENode]] = [
            [] if f in refuse else [ENode(cost, tuple((x, f) for x in operands))] for f in range(FORMATS)
        ]
        return self._add(size, nodes)

    def heavy(self, x: int, size: int, weight: int = 4096) -> int:
        """A convolution or a matmul with its bias: a given format, or any at its own price."""
        self.ops += 1
        w = self.const(weight)
        frozen = self.rng.choice((FREE, NHWC, C4, C16))
        base = 1e-6 + size * 4e-9
        price = (2.5, 1.4, 1.2, 1.0)
        nodes: list[list[ENode]] = [[] for _ in range(FORMATS)]
        for f in range(FORMATS):
            if frozen in (f, FREE):
                nodes[f].append(ENode(base * price[f], ((x, f), (w, f))))
        if frozen == FREE:
            nodes[C16].append(ENode(base * 1.3, ((x, C4), (w, C16))))
        y = self._add(size, nodes)
        self.ops += 1
        b = self.const(64)
        cost = 1e-6 + size * 2e-10
        return self._add(size, [[ENode(cost, ((y, f), (b, f)))] for f in range(FORMATS)])


def resnet(net: _Net, ops: int) -> None:
    size, block = 64 * 56 * 56, 0
    x = net.given(size)
    while net.ops < ops:
        if block and block % 8 == 0:
            size = size // 2 if size > 50_000 else 64 * 56 * 56
            x = net.map(net.heavy(x, size))
        y = net.map(net.heavy(x, size))
        y = net.map(net.heavy(y, size))
        y = net.heavy(y, size)
        x = net.map(net.map(y, x))
        block += 1


def densenet(net: _Net, ops: int) -> None:
    x = net.given(64 * 28 * 28)
    while net.ops < ops:
        channels = 64
        for _ in range(12):
            y = net.map(net.map(net.map(x, net.const(64)), net.const(64)))
            y = net.map(net.heavy(y, 128 * 28 * 28))
            y = net.heavy(y, 32 * 28 * 28)
            channels += 32
            x = net.map(x, y, size=channels * 28 * 28)
        x = net.map(net.heavy(x, 64 * 28 * 28))


def transformer(net: _Net, ops: int) -> None:
    size = 128 * 512
    x = net.given(size)
    while net.ops < ops:
        h = net.map(net.map(x), net.const(512))
        q, k, v = (net.map(net.heavy(h, size)) for _ in range(3))
        a = net.map(net.map(net.map(q, net.map(k), size=8 * 128 * 128)))
        o = net.map(net.map(a, v, size=size))
        x = net.map(x, net.heavy(o, size))
        f = net.map(net.heavy(net.map(net.map(x), net.const(512)), 4 * size))
        x = net.map(x, net.heavy(f, size))


def unet(net: _Net, ops: int) -> None:
    x = net.given(64 * 64 * 64)
    while net.ops < ops:
        skips, size = [], 64 * 64 * 64
        for _ in range(5):
            for _ in range(2):
                x = net.map(net.heavy(x, size))
            skips.append(x)
            size //= 2
            x = net.map(net.heavy(x, size))
        for skip in reversed(skips):
            size *= 2
            x = net.map(skip, net.map(x, size=size), size=2 * size)
            for _ in range(2):
                x = net.map(net.heavy(x, size))


def inception(net: _Net, ops: int) -> None:
    x = net.given(64 * 28 * 28)
    while net.ops < ops:
        branches = []
        for length in range(1, 5):
            y = x
            for _ in range(length):
                y = net.map(net.heavy(y, 32 * 28 * 28))
            branches.append(y)
        y = branches[0]
        for i, branch in enumerate(branches[1:]):
            y = net.map(y, branch, size=(64 + 32 * i) * 28 * 28)
        x = net.map(net.heavy(y, 64 * 28 * 28))


def wide(net: _Net, ops: int, live: int = 8) -> None:
    """Every op reads two random tensors of the last eight: the worst case for a method that needs narrow networks."""
    size = 64 * 28 * 28
    tensors = [net.given(size) for _ in range(live)]
    while net.ops < ops:
        a, b = net.rng.sample(range(live), 2)
        tensors[a] = net.map(net.heavy(net.map(tensors[a], tensors[b]), size))
    x = tensors[0]
    for y in tensors[1:]:
        x = net.map(x, y)


NETS: dict[str, Callable[[_Net, int], None]] = {
    "resnet": resnet,
    "densenet": densenet,
    "transformer": transformer,
    "unet": unet,
    "inception": inception,
    "wide": wide,
}

if __name__ == "__main__":
    main()
