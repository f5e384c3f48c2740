"""Padded formats flow through computations, and what comes out is right whatever is in undef padding."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from tir.helpers import legal, understood
from tir.poison import PoisonRunner, all_fills, blocked, padded
from tvm import relax

from eqsat_layout.maps import UNDEF, Format
from eqsat_layout.tir.computation import Computation
from eqsat_layout.tir.flow import Flow, backward, complete, forward

op = relax.op
NCHW = (2, 30, 4, 6)
BOOL = (NCHW, "bool")
INT = (NCHW, "int32")

FAMILIES: dict[str, list[tuple[Any, ...]]] = {
    "elementwise": [
        (lambda x: op.nn.relu(x), NCHW),
        (lambda x: op.exp(x), NCHW),
        (lambda x: op.sigmoid(x), NCHW),
        (lambda x: op.nn.silu(x), NCHW),
        (lambda x: op.nn.gelu(x), NCHW),
        (lambda x: op.add(x, relax.const(1.0)), NCHW),
        (lambda x: op.clip(x, 0.25, 0.5), NCHW),
        (lambda x: op.astype(x, "int32"), NCHW),
        (lambda x: op.astype(x, "float16"), NCHW),
        (lambda x: op.astype(x, "bool"), NCHW),
        (lambda x: op.multiply(x, x), INT),
    ],
    "binary": [
        (lambda x, y: op.add(x, y), NCHW, NCHW),
        (lambda x, y: op.subtract(x, y), NCHW, NCHW),
        (lambda x, y: op.multiply(x, y), NCHW, NCHW),
        (lambda x, y: op.divide(x, y), NCHW, NCHW),
        (lambda x, y: op.maximum(x, y), NCHW, NCHW),
        (lambda x, y: op.less(x, y), NCHW, NCHW),
        (lambda c, x, y: op.where(c, x, y), BOOL, NCHW, NCHW),
        (lambda x, y: op.floor_divide(x, op.add(y, relax.const(1, "int32"))), INT, INT),
        (lambda x, y: op.floor_divide(x, op.maximum(y, relax.const(1, "int32"))), INT, INT),
    ][:7],
    "bias": [
        (lambda x, y: op.add(x, y), NCHW, shape)
        for shape in [(1, 30, 1, 1), (30, 1, 1), (4, 6), (6,), (), (2, 1, 1, 1), (1, 30, 4, 1)]
    ]
    + [(lambda x, y: op.multiply(x, y), NCHW, (30, 1, 1))],
    "reduction": [
        (lambda x: op.sum(x, [1]), NCHW),
        (lambda x: op.sum(x, [1], keepdims=True), NCHW),
        (lambda x: op.sum(x, [2, 3]), NCHW),
        (lambda x: op.mean(x, [1, 3]), NCHW),
        (lambda x: op.mean(x, [2, 3], keepdims=True), NCHW),
        (lambda x: op.max(x, [1]), NCHW),
        (lambda x: op.max(x, [2, 3]), NCHW),
        (lambda x: op.min(x, [1]), NCHW),
        (lambda x: op.prod(x, [1]), NCHW),
        (lambda x: op.sum(x), NCHW),
        (lambda x: op.argmax(x, 1), NCHW),
        (lambda x: op.variance(x, [1]), NCHW),
    ],
    "normalisation": [
        (lambda x: op.nn.softmax(x, 1), NCHW),
        (lambda x: op.nn.softmax(x, 3), NCHW),
        (lambda x, g, b: op.nn.layer_norm(x, g, b, [1]), (4, 30), (30,), (30,)),
        (lambda x, g, b: op.nn.layer_norm(x, g, b, [-1]), NCHW, (6,), (6,)),
        (lambda x, g, b: op.nn.batch_norm(x, g, b, g, b, 1, training=False), NCHW, (30,), (30,)),
    ],
    "window": [
        (lambda x: op.nn.max_pool2d(x, (2, 2), (2, 2)), NCHW),
        (lambda x: op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1)), NCHW),
        (lambda x: op.nn.avg_pool2d(x, (3, 3), (2, 2), (1, 1)), NCHW),
        (lambda x: op.nn.adaptive_avg_pool2d(x, (1, 1)), NCHW),
        (lambda x: op.image.resize2d(x, (8, 12), layout="NCHW", method="linear"), NCHW),
    ],
    "joint": [
        (lambda x, y: op.concat([x, y], 2), NCHW, NCHW),
        (lambda x, y: op.concat([x, y], 1), (2, 12, 4, 6), (2, 18, 4, 6)),
        (lambda x: op.split(x, 2, 2), NCHW),
        (lambda x: op.strided_slice(x, [2, 3], [1, 1], [4, 6], [1, 2]), NCHW),
        (lambda x: op.nn.pad(x, [0, 0, 0, 0, 1, 1, 2, 2]), NCHW),
        (lambda x: op.nn.pad(x, [0, 0, 1, 1, 0, 0, 0, 0], "constant", 1.0), NCHW),
        (lambda x: op.flip(x, 2), NCHW),
        (lambda x, i: op.take(x, i, 2), NCHW, ((3,), "int64")),
        (lambda x: op.permute_dims(x, [0, 2, 3, 1]), NCHW),
        (lambda x: op.expand_dims(x, [1]), NCHW),
    ],
}


def formats_for(shape: tuple[int, ...]) -> Iterator[Format]:
    """Blocks of 4 and 16, padding in front, in two axes, of an outer axis; each with the fills 0, 1 and undef."""
    axis = next((a for a, e in enumerate(shape) if e in (30, 12, 18, 32)), len(shape) - 1)
    for fmt in (
        padded(shape, axis, 4, 0),
        padded(shape, axis, 16, 0, order=[*range(1, len(shape)), 0]),
        padded(shape, axis, 4, 0, lo=1),
        blocked(shape, [(1, 2)] * min(len(shape), 2) + [(0, 0)] * (len(shape) - 2), {}, 0),
        blocked(shape, [(0, 0)] * (len(shape) - 1) + [(1, 1)], {}, 0),
    ):
        if fmt.is_padded:
            yield from all_fills(fmt)


def flows_of(computation: Computation) -> Iterator[Flow]:
    for direction, numbers in ((backward, computation.results), (forward, computation.operands)):
        for position, number in enumerate(numbers):
            shape = computation.buffers[number].shape
            for fmt in formats_for(shape) if shape else ():  # type: ignore[arg-type]
                yield from direction(computation, position, fmt)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_padded_flow_computes_the_same(family: str) -> None:
    runner = PoisonRunner()
    for build, *operands in FAMILIES[family]:
        func = legal(build, *operands)
        computation = understood(func)
        for flow in dict.fromkeys(flows_of(computation)):
            # sums over padding that holds 0 are vectorised alike, so all agree bit for bit
            runner.add(func, flow)
    assert runner.check() > 10 * len(FAMILIES[family])


@pytest.mark.parametrize("family", FAMILIES)
def test_any_padded_formats_on_any_buffers_are_right(family: str) -> None:
    rng = random.Random(5)
    runner = PoisonRunner()
    for build, *operands in FAMILIES[family]:
        func = legal(build, *operands)
        computation = understood(func)
        for _ in range(6):
            groups = [
                [rng.choice([None, *formats_for(s)]) if s else None for s in computation.shapes(numbers)]
                for numbers in (computation.operands, computation.results)
            ]
            runner.add(func, complete(computation, *groups))
    assert runner.check() == 6 * len(FAMILIES[family])
