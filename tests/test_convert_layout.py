"""Ops that TVM's ConvertLayout knows, and those that it does not: between two convolutions whose layout is desired.

Two transforms stay, of the input and of the result.
"""

from __future__ import annotations

from typing import Any

import pytest
from compare import assert_same_fast
from effort import some
from programs import AVX2, constant, program
from tvm import relax
from tvm.relax import op
from tvm.script import tirx as T

import eqsat_layout

# mypy: disable-error-code="no-untyped-def"

LAYOUTS = {"NHWC": ["NHWC", "OHWI"], "NCHW4c": ["NCHW4c", "OIHW4i4o"], "NCHW16c": ["NCHW16c", "OIHW16i16o"]}


@T.prim_func(private=True, s_tir=True)
def doubled(a: T.Buffer((1, 32, 8, 8), "float32"), b: T.Buffer((1, 32, 8, 8), "float32")):
    for n, c, h, w in T.grid(1, 32, 8, 8):
        with T.sblock("b"):
            vn, vc, vh, vw = T.axis.remap("SSSS", [n, c, h, w])
            b[vn, vc, vh, vw] = a[vn, vc, vh, vw] * T.float32(2)


def call_tir(b: Any, x: Any) -> Any:
    return relax.call_tir(b.add_func(doubled, "doubled"), relax.Tuple([x]), x.ty)


def halves(b: Any, x: Any) -> Any:
    parts = b.emit(op.split(x, 2, axis=1))
    return op.concat([b.emit(relax.TupleGetItem(parts, 1)), b.emit(relax.TupleGetItem(parts, 0))], axis=1)


def batch_norm(b: Any, x: Any) -> Any:
    scale = constant(32)
    norm = b.emit(op.nn.batch_norm(x, scale, scale, scale, b.emit(op.abs(scale)), axis=1))
    return relax.TupleGetItem(norm, 0)


def kept(function: Any) -> Any:
    """A reduction over H and W, added to what was reduced."""
    return lambda b, x: op.add(x, b.emit(function(x, axis=[2, 3], keepdims=True)))


BETWEEN: dict[str, Any] = {
    "relu": lambda b, x: op.nn.relu(x),
    "gelu": lambda b, x: op.nn.gelu(x),
    "silu": lambda b, x: op.nn.silu(x),
    "leaky_relu": lambda b, x: op.nn.leakyrelu(x, 0.1),
    "clip": lambda b, x: op.clip(x, 0, 6),
    "tanh": lambda b, x: op.tanh(x),
    "sqrt of abs": lambda b, x: op.sqrt(b.emit(op.abs(x))),
    "bias": lambda b, x: op.add(x, constant(1, 32, 1, 1)),
    "bias of rank 3": lambda b, x: op.multiply(x, constant(32, 1, 1)),
    "bias along w": lambda b, x: op.add(x, constant(8)),
    "scalar": lambda b, x: op.maximum(x, relax.const(0.5, "float32")),
    "residual": lambda b, x: op.add(x, b.emit(op.nn.relu(x))),
    "where": lambda b, x: op.where(b.emit(op.greater(x, relax.const(0.0, "float32"))), x, b.emit(op.negative(x))),
    "astype": lambda b, x: op.astype(b.emit(op.astype(x, "float16")), "float32"),
    "max_pool2d": lambda b, x: op.nn.max_pool2d(x, [3, 3], padding=1),
    "avg_pool2d": lambda b, x: op.nn.avg_pool2d(x, [2, 2], strides=[2, 2]),
    "adaptive_avg_pool2d": lambda b, x: op.nn.adaptive_avg_pool2d(x, [4, 4]),
    "resize2d": lambda b, x: op.image.resize2d(x, relax.ShapeExpr([16, 16]), layout="NCHW", method="nearest_neighbor"),
    "batch_norm": batch_norm,
    "softmax": lambda b, x: op.nn.softmax(x, axis=1),
    "log_softmax": lambda b, x: op.nn.log_softmax(x, axis=1),
    "layer_norm": lambda b, x: op.nn.layer_norm(x, constant(32), constant(32), axes=[1]),
    "sum": kept(op.sum),
    "mean": kept(op.mean),
    "max": kept(op.max),
    "concat": lambda b, x: op.concat([x, b.emit(op.exp(x))], axis=1),
    "split": halves,
    "pad": lambda b, x: op.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1]),
    "strided_slice": lambda b, x: op.strided_slice(x, [2, 3], [1, 1], [7, 7]),
    "reshape and back": lambda b, x: op.reshape(b.emit(op.exp(b.emit(op.reshape(x, (1, 32, 64))))), (1, 32, 8, 8)),
    "permute and back": lambda b, x: op.permute_dims(
        b.emit(op.exp(b.emit(op.permute_dims(x, [0, 2, 3, 1])))), [0, 3, 1, 2]
    ),
    "squeeze": lambda b, x: op.expand_dims(b.emit(op.exp(b.emit(op.squeeze(x, [0])))), 0),
    "flip": lambda b, x: op.flip(x, 2),
    "call_tir": call_tir,
    "depthwise": lambda b, x: op.nn.conv2d(x, constant(32, 1, 3, 3), padding=1, groups=32),
}

ONE_MORE = (("pad", ""), ("strided_slice", ""), ("split", "NCHW16c"))
"""A pad and a crop are copies from one format to another themselves; half of a block pair is not seen as blocked."""


IN_BLOCKS_OF_FOUR = some(BETWEEN, 3)
"""The channels are a multiple of 16: blocks of four differ from those in their size only."""
TRIED = [(name, layout) for name in BETWEEN for layout in LAYOUTS if layout != "NCHW4c" or name in IN_BLOCKS_OF_FOUR]


@pytest.mark.parametrize(("name", "layout"), TRIED)
def test_an_op_between_two_convolutions(name: str, layout: str) -> None:
    def body(builder: Any, x: Any) -> Any:
        x = builder.emit(op.nn.conv2d(x, constant(32, 32, 3, 3), padding=1))
        x = builder.emit(BETWEEN[name](builder, x))
        return op.nn.conv2d(x, constant(32, int(x.ty.shape[1]), 1, 1, seed=1))

    mod = program(body, (1, 32, 8, 8))
    plan = eqsat_layout.plan(mod, AVX2, desired_layouts={"relax.nn.conv2d": LAYOUTS[layout]})
    assert len(plan.transforms) <= 2 + ((name, "") in ONE_MORE or (name, layout) in ONE_MORE), str(plan)
    assert plan.is_optimal
    assert_same_fast(mod, plan.module)


@pytest.mark.parametrize("layout", ["NCHW4c", "NCHW16c"])
def test_channels_that_blocks_do_not_divide(layout: str) -> None:
    def body(builder: Any, x: Any) -> Any:
        x = builder.emit(op.nn.relu(builder.emit(op.nn.conv2d(x, constant(30, 17, 3, 3), padding=1))))
        return op.nn.conv2d(x, constant(21, 30, 1, 1, seed=1))

    mod = program(body, (1, 17, 8, 8))
    plan = eqsat_layout.plan(mod, desired_layouts={"relax.nn.conv2d": LAYOUTS[layout]})
    assert len(plan.transforms) == 2
    assert_same_fast(mod, plan.module)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_classifier(layout: str) -> None:
    """Pooled, flattened, multiplied: the transform is of the pooled vector, not of an image."""

    def body(builder: Any, x: Any) -> Any:
        x = builder.emit(op.nn.relu(builder.emit(op.nn.conv2d(x, constant(32, 32, 3, 3), padding=1))))
        x = builder.emit(op.mean(x, axis=[2, 3]))
        return op.matmul(x, constant(32, 10))

    mod = program(body, (1, 32, 8, 8))
    plan = eqsat_layout.plan(mod, desired_layouts={"relax.nn.conv2d": LAYOUTS[layout]})
    assert len(plan.transforms) == 1
    assert_same_fast(mod, plan.module)


def test_the_cost_of_the_program_as_written_is_known_where_layouts_are_asked_for() -> None:
    mod = program(lambda b, x: op.nn.conv2d(x, constant(8, 8, 1, 1)), (1, 8, 6, 6))
    asked = eqsat_layout.plan(mod, desired_layouts={"relax.nn.conv2d": ["NHWC", "OHWI"]}, candidates=False)
    plain = eqsat_layout.plan(mod, candidates=False)
    assert plain.written_cost is None
    assert asked.written_cost == pytest.approx(plain.input_cost)
    assert asked.cost > plain.input_cost
    assert "times what it costs as written" in str(asked)
    assert "cheaper" not in str(asked)
