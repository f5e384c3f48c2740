"""Random programs through the whole of ``optimize``: well formed, and the same numbers.

``python tests/test_random_programs.py 5000 [first seed]`` runs as many seeds as wanted and prints those that fail.
"""

from __future__ import annotations

import math
import random
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compare import assert_same_interface, assert_same_results
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import constant, program
from tvm import relax, tirx
from tvm.relax import op as R

import eqsat_layout

EXTENTS = (1, 2, 3, 4, 6, 8)
LARGEST = 6000
"""Elements of a tensor."""

CONVOLUTION_LAYOUTS = (
    None,
    ("NHWC", "OHWI"),
    ("NCHW4c", "OIHW4i4o"),
    ("NCHW2c", "OIHW2o2i", "NHWC"),
    ("NHCW", "OIHW"),
    ("NCHW3c", "OIHW3i2o", "NCHW2c"),
)
POOL_LAYOUTS = (None, ("NHWC",), ("NCHW2c",), ("NHWC", "NCHW4c"), ("NCHW3c",))


def shape_of(x: Any) -> tuple[int, ...]:
    return tuple(int(e) for e in x.ty.shape.values)


class RandomProgram:
    """A dataflow block in the making. ``draw`` decides everything, so that hypothesis can shrink."""

    def __init__(self, draw: random.Random):
        self.draw = draw
        self.frozen: dict[str, list[str]] = {}
        self.values: list[Any] = []
        self.builder: Any = None
        self.constants = 0
        self.calls = 0

    def module(self) -> Any:
        shapes = [self.shape(self.draw.choice((4, 4, 4, 3, 2, 1, 5, 0))) for _ in range(self.draw.choice((1, 1, 2)))]
        return program(self.body, *shapes, frozen=self.frozen)

    def body(self, builder: Any, *params: Any) -> Any:
        self.builder, self.values = builder, list(params)
        kinds = list(KINDS)
        for _ in range(self.draw.randint(3, 12)):
            step = self.draw.choices(kinds, weights=[KINDS[k] for k in kinds])[0]
            made = step(self, self.pick())
            for value in made if isinstance(made, list) else [made]:
                if value is not None and math.prod(shape_of(value)) <= LARGEST:
                    self.values.append(value)
        if len(self.values) > 1 and self.draw.random() < 0.4:
            return self.values[-1], self.pick()
        return self.values[-1]

    def emit(self, expr: Any) -> Any:
        self.calls += 1
        return self.builder.emit(expr, f"v{self.calls}")

    def pick(self) -> Any:
        """Some value, a late one more often."""
        return self.values[-1 - min(int(self.draw.random() ** 2 * len(self.values)), len(self.values) - 1)]

    def constant(self, *shape: int) -> Any:
        self.constants += 1
        return constant(*shape, seed=self.constants)

    def shape(self, rank: int) -> tuple[int, ...]:
        return tuple(self.draw.choice(EXTENTS) for _ in range(rank))

    def order(self, rank: int) -> list[int]:
        axes = list(range(rank))
        self.draw.shuffle(axes)
        return axes

    def divisor(self, n: int) -> int:
        return self.draw.choice([d for d in range(1, n + 1) if n % d == 0])

    def is_image(self, x: Any) -> bool:
        return len(shape_of(x)) == 4


def unary(p: RandomProgram, x: Any) -> Any:
    return p.emit(p.draw.choice((R.nn.relu, R.tanh, R.negative, R.sigmoid))(x))


def exp(p: RandomProgram, x: Any) -> Any:
    return p.emit(R.exp(p.emit(R.clip(x, -3.0, 3.0))))


def binary(p: RandomProgram, x: Any) -> Any:
    op = p.draw.choice((R.add, R.add, R.multiply, R.subtract, R.maximum))
    shape = shape_of(x)
    fitting = [v for v in p.values if broadcasts(shape, shape_of(v))]
    if fitting and p.draw.random() < 0.6:
        return p.emit(op(x, p.draw.choice(fitting)))
    small = tuple(1 if p.draw.random() < 0.4 else e for e in shape[p.draw.randint(0, len(shape)) :])
    operands = [x, p.constant(*small)]
    p.draw.shuffle(operands)
    return p.emit(op(*operands))


def broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(a[::-1], b[::-1], strict=False))


def reduction(p: RandomProgram, x: Any) -> Any:
    rank = len(shape_of(x))
    axes = [a for a in range(rank) if p.draw.random() < 0.4] or None
    op = p.draw.choice((R.sum, R.max, R.mean))
    return p.emit(op(x, axis=axes, keepdims=p.draw.random() < 0.5)) if rank else None


def permute(p: RandomProgram, x: Any) -> Any:
    return p.emit(R.permute_dims(x, p.order(len(shape_of(x)))))


def reshape(p: RandomProgram, x: Any) -> Any:
    rest, target = math.prod(shape_of(x)), []
    for _ in range(p.draw.randint(0, 4)):
        target.append(p.divisor(rest))
        rest //= target[-1]
    return p.emit(R.reshape(x, [*target, rest] if rest > 1 or not target else target))


def layout_transform(p: RandomProgram, x: Any) -> Any:
    """Every axis split at random, the digits shuffled, and perhaps two neighbours fused."""
    digits: list[tuple[int, int, int]] = []
    for axis, extent in enumerate(shape_of(x)):
        inner = p.divisor(extent)
        digits += [(axis, inner, extent // inner), (axis, 1, inner)] if 1 < inner < extent else [(axis, 1, extent)]
    p.draw.shuffle(digits)
    if not digits or len(digits) > 6:
        return None
    fused = p.draw.randint(1, len(digits) - 1) if len(digits) > 1 and p.draw.random() < 0.4 else 0

    def mapped(*index: Any) -> list[Any]:
        result: list[Any] = []
        for position, (axis, stride, extent) in enumerate(digits):
            value = index[axis] // stride % extent if extent != shape_of(x)[axis] else index[axis]
            if position == fused and fused:
                value = result.pop() * extent + value
            result.append(value)
        return result

    variables = [tirx.Var(f"i{a}", "int64") for a in range(len(shape_of(x)))]
    return p.emit(R.layout_transform(x, tirx.IndexMap(variables, mapped(*variables), None)))


def concat(p: RandomProgram, x: Any) -> Any:
    shape = shape_of(x)
    if not shape:
        return None
    axis = p.draw.randrange(len(shape))
    same = [v for v in p.values if len(shape_of(v)) == len(shape)]
    same = [
        v for v in same if all(m == n for a, (m, n) in enumerate(zip(shape, shape_of(v), strict=True)) if a != axis)
    ]
    parts = [x, p.draw.choice(same)]
    if p.draw.random() < 0.3:
        parts.append(p.constant(*shape))
    p.draw.shuffle(parts)
    return p.emit(R.concat(parts, axis=axis))


def split(p: RandomProgram, x: Any) -> Any:
    shape = shape_of(x)
    axes = [a for a, e in enumerate(shape) if e > 1]
    if not axes:
        return None
    axis = p.draw.choice(axes)
    sections = p.draw.choice([d for d in range(2, shape[axis] + 1) if shape[axis] % d == 0])
    where = sections if p.draw.random() < 0.7 else [p.draw.randint(1, shape[axis] - 1)]
    parts = p.emit(R.split(x, where, axis=axis))
    count = len(parts.ty.fields)
    if p.draw.random() < 0.2:
        return p.emit(R.concat(parts, axis=p.draw.choice(axes) if isinstance(where, int) else axis))
    return [p.emit(relax.TupleGetItem(parts, i)) for i in {0, count - 1, p.draw.randrange(count)}]


def softmax(p: RandomProgram, x: Any) -> Any:
    rank = len(shape_of(x))
    return p.emit(R.nn.softmax(x, axis=p.draw.randrange(rank))) if rank else None


def layer_norm(p: RandomProgram, x: Any) -> Any:
    shape = shape_of(x)
    if not shape:
        return None
    axis = p.draw.randrange(len(shape))
    gamma, beta = p.constant(shape[axis]), p.constant(shape[axis])
    return p.emit(R.nn.layer_norm(x, gamma, beta, axes=[axis], epsilon=1e-2))


def max_pool2d(p: RandomProgram, x: Any) -> Any:
    if not p.is_image(x):
        return None
    layout = p.draw.choice(("NCHW", "NHWC"))
    op = p.draw.choice((R.nn.max_pool2d, R.nn.avg_pool2d))
    made = p.emit(op(x, pool_size=(2, 2), strides=p.draw.choice((1, 2)), padding=(1, 1), layout=layout))
    freeze(p, POOL_LAYOUTS)
    return made


def conv2d(p: RandomProgram, x: Any) -> Any:
    if not p.is_image(x):
        return None
    nchw = p.draw.random() < 0.7
    c = shape_of(x)[1 if nchw else 3]
    out, kernel = p.draw.choice((1, 2, 4, 8)), p.draw.choice((1, 3))
    groups = p.draw.choice((1, 1, c)) if nchw else 1
    out = c if groups > 1 else out
    weight = p.constant(out, c // groups, kernel, kernel) if nchw else p.constant(out, kernel, kernel, c)
    layouts = {} if nchw else {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    strides = p.draw.choice((1, 1, 2))
    made = p.emit(R.nn.conv2d(x, weight, strides=strides, padding=kernel // 2, groups=groups, **layouts))
    freeze(p, CONVOLUTION_LAYOUTS if groups == 1 else CONVOLUTION_LAYOUTS[:1])
    return made


def freeze(p: RandomProgram, layouts: tuple[tuple[str, ...] | None, ...]) -> None:
    """The last op; blocks that don't divide its channels pad them."""
    layout = p.draw.choice(layouts)
    name = f"v{p.calls}"
    if layout is not None:
        p.frozen[name] = list(layout)


def matmul(p: RandomProgram, x: Any) -> Any:
    shape = shape_of(x)
    if not shape:
        return None
    if len(shape) > 1 and p.draw.random() < 0.3:
        other = p.emit(R.permute_dims(x, [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]))
        return p.emit(R.matmul(x, other))
    return p.emit(R.matmul(x, p.constant(shape[-1], p.draw.choice(EXTENTS))))


def slicing(p: RandomProgram, x: Any) -> Any:
    shape = shape_of(x)
    if not shape:
        return None
    axis = p.draw.randrange(len(shape))
    begin = p.draw.randrange(shape[axis])
    end = p.draw.randint(begin + 1, shape[axis])
    return p.emit(R.strided_slice(x, [axis], [begin], [end], [p.draw.choice((1, 1, 2))]))


def pad(p: RandomProgram, x: Any) -> Any:
    widths = [p.draw.choice((0, 0, 1)) for _ in range(2 * len(shape_of(x)))]
    return p.emit(R.nn.pad(x, widths)) if widths else None


def shaping(p: RandomProgram, x: Any) -> Any:
    shape = shape_of(x)
    units = [a for a, e in enumerate(shape) if e == 1]
    if units and p.draw.random() < 0.5:
        if p.draw.random() < 0.5:
            return p.emit(R.squeeze(x, [p.draw.choice(units)]))
        return p.emit(R.broadcast_to(x, [p.draw.choice((1, 2, 3)) if e == 1 else e for e in shape]))
    if len(shape) < 5:
        return p.emit(R.expand_dims(x, p.draw.randint(0, len(shape))))
    return None


def gathering(p: RandomProgram, x: Any) -> Any:
    shape = shape_of(x)
    if not shape:
        return None
    axis = p.draw.randrange(len(shape))
    kind = p.draw.randrange(4)
    if kind == 0:
        index = relax.const(np.array([p.draw.randrange(shape[axis]) for _ in range(3)], "int64"))
        return p.emit(R.take(x, index, axis=axis))
    if kind == 1:
        return p.emit(R.flip(x, axis))
    if kind == 2:
        return p.emit(R.repeat(x, 2, axis))
    positive = p.emit(R.greater(x, relax.const(0.0, "float32")))
    return p.emit(R.where(positive, x, p.emit(R.tanh(x))))


def loose_constant(p: RandomProgram, x: Any) -> Any:
    shape = shape_of(x)
    return p.emit(R.permute_dims(p.constant(*shape), p.order(len(shape)))) if shape else None


KINDS: dict[Callable[[RandomProgram, Any], Any], float] = {
    unary: 3, exp: 1, binary: 4, reduction: 2, permute: 5, reshape: 4, layout_transform: 4, concat: 2, split: 2,
    softmax: 1, layer_norm: 1, max_pool2d: 2, conv2d: 4, matmul: 1, slicing: 1, pad: 1, shaping: 1, gathering: 1,
    loose_constant: 1,
}  # fmt: skip


def check(draw: random.Random) -> tuple[Any, Any]:
    """Builds one program, optimises it, compares. Gives both modules."""
    mod = RandomProgram(draw).module()
    before = mod.script(show_meta=True)
    optimized = eqsat_layout.optimize(mod)
    assert mod.script(show_meta=True) == before
    if optimized is not mod:
        assert_same_interface(mod, optimized)
        assert_same_results(mod, optimized)
    return mod, optimized


@pytest.mark.parametrize("part", range(4))
def test_random_programs_compute_the_same(part: int) -> None:
    """The same programs every time, for a suite that is green or red for a reason."""
    for seed in range(part * 6, part * 6 + 6):
        check(random.Random(seed))


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_generated_programs_compute_the_same(draw: random.Random) -> None:
    """New programs every time, shrunk where one fails."""
    check(draw)


def main(count: int, first: int) -> int:
    started, failed, changed = time.time(), [], 0
    for seed in range(first, first + count):
        try:
            mod, optimized = check(random.Random(seed))
            changed += mod is not optimized
        except Exception:
            failed.append(seed)
            print(f"--- seed {seed}", flush=True)
            traceback.print_exc(limit=-6, file=sys.stdout)
    print(f"{count} programs, {changed} changed, {time.time() - started:.0f} s; failed: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int((sys.argv[1:] or ["200"])[0]), int((sys.argv[2:] or ["0"])[0])))
