"""Branches of one tensor that are added up become one convolution, with the numbers of their channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from compare import stock_results
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from eqsat_layout.passes.summed_convolutions import sum_convolutions

SHAPE = (1, 6, 7, 5)
RNG = np.random.default_rng(0)


def const(*shape: int, dtype: str = "float32") -> Any:
    return relax.const(RNG.integers(-4, 5, shape).astype(dtype) / 4, dtype)


def module_of(body: Callable[..., Any], *shapes: tuple[Any, ...], dtype: str = "float32") -> tvm.IRModule:
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, shape in enumerate(shapes or (SHAPE,))]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(body(builder.emit, *params))
        builder.emit_func_output(out)
    return builder.get()


def run(mod: tvm.IRModule) -> np.ndarray:
    rng = np.random.default_rng(1)
    shapes = [[int(e) if isinstance(e, tvm.tirx.IntImm) else 3 for e in p.ty.shape.values] for p in mod["main"].params]
    data = [rng.integers(-8, 9, shape).astype(str(mod["main"].params[0].ty.dtype)) for shape in shapes]
    (result,) = stock_results(mod, *data)
    return result


def checked(mod: tvm.IRModule) -> dict[str, int]:
    """Calls that are left; numbers are the same to the bit, as all sums of these are exact."""
    summed = sum_convolutions(mod)
    relax.analysis.well_formed(summed)
    np.testing.assert_array_equal(run(summed), run(mod))
    text = summed.script()
    return {
        name: n
        for name in ("conv", "add", "subtract", "multiply")
        if (n := text.count(f"R.{name}(") + text.count(f"nn.{name}"))
    }


def conv(x: Any, *shape: int, **attrs: Any) -> Any:
    return op.nn.conv2d(x, const(*shape), **attrs)


def test_branches_of_a_network_as_it_is_trained_are_one_convolution() -> None:
    """MobileOne and RepVGG ran each of their branches: 191 convolutions in place of 43."""

    def body(emit: Any, x: Any) -> Any:
        wide = emit(op.add(emit(conv(x, 6, 6, 3, 3, padding=1)), const(1, 6, 1, 1)))
        small = emit(op.add(emit(conv(x, 6, 6, 1, 1)), const(1, 6, 1, 1)))
        norm = emit(op.subtract(x, const(1, 6, 1, 1)))
        norm = emit(op.add(emit(op.multiply(norm, const(1, 6, 1, 1))), const(6, 1, 1)))
        return op.add(emit(op.add(wide, small)), norm)

    assert checked(module_of(body)) == {"conv": 1, "add": 1}


def test_a_norm_behind_branches_is_part_of_the_weights() -> None:
    """RepViT has one behind a depthwise window, a single place and the tensor itself."""

    def body(emit: Any, x: Any) -> Any:
        wide = emit(conv(x, 6, 1, 3, 3, padding=1, groups=6))
        total = emit(op.add(emit(op.add(wide, emit(conv(x, 6, 1, 1, 1, groups=6)))), x))
        return op.multiply(emit(op.subtract(total, const(1, 6, 1, 1))), const(1, 6, 1, 1))

    assert checked(module_of(body)) == {"conv": 1, "add": 1}


def test_numbers_behind_a_convolution_are_part_of_it() -> None:
    """What exporters make of a batch norm: a product and a sum."""

    def body(emit: Any, x: Any) -> Any:
        return op.add(emit(op.multiply(emit(conv(x, 4, 6, 3, 3)), const(1, 4, 1, 1))), const(1, 4, 1, 1))

    assert checked(module_of(body)) == {"conv": 1, "add": 1}


@pytest.mark.parametrize(
    ("name", "body"),
    {
        "of two tensors": lambda emit, x, y: op.add(emit(conv(x, 6, 6, 1, 1)), emit(conv(y, 6, 6, 1, 1))),
        "of other steps": lambda emit, x, y: op.add(
            emit(conv(x, 6, 6, 3, 3, padding=1)), emit(conv(x, 6, 6, 3, 3, padding=2, dilation=2))
        ),
        "at other places": lambda emit, x, y: op.add(
            emit(conv(x, 6, 6, 1, 3, padding=(0, 1))), emit(conv(x, 6, 6, 3, 1, padding=(1, 0)))
        ),
        "a plain one": lambda emit, x, y: op.add(emit(op.add(emit(conv(x, 6, 6, 1, 1)), const(1, 6, 1, 1))), y),
        "a product of tensors": lambda emit, x, y: op.multiply(
            emit(op.add(emit(conv(x, 6, 6, 1, 1)), const(1, 6, 1, 1))), y
        ),
        "numbers of each place": lambda emit, x, y: op.multiply(emit(conv(x, 6, 6, 1, 1)), const(7, 5)),
    }.items(),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_others_stay(name: str, body: Any) -> None:
    mod = module_of(body, SHAPE, SHAPE)
    assert sum_convolutions(mod).same_as(mod)


def test_what_others_read_stays() -> None:
    def body(emit: Any, x: Any) -> Any:
        first, second = emit(conv(x, 6, 6, 1, 1)), emit(conv(x, 6, 6, 1, 1))
        return op.multiply(emit(op.add(first, second)), first)

    mod = module_of(body)
    assert sum_convolutions(mod).same_as(mod)


def test_what_a_match_cast_reads_stays() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            first, second = builder.emit(conv(x, 6, 6, 1, 1)), builder.emit(conv(x, 6, 6, 1, 1))
            cast = builder.match_cast(first, relax.TensorType(SHAPE, "float32"))
            out = builder.emit_output(op.multiply(builder.emit(op.add(first, second)), cast))
        builder.emit_func_output(out)
    mod = builder.get()
    assert sum_convolutions(mod).same_as(mod)


def test_half_floats_stay() -> None:
    """1 + 1e-4 is 1 in half floats."""

    def body(emit: Any, x: Any) -> Any:
        return op.add(emit(op.nn.conv2d(x, const(6, 6, 1, 1, dtype="float16"))), x)

    mod = module_of(body, dtype="float16")
    assert sum_convolutions(mod).same_as(mod)


def test_sums_inside_a_product_of_tensors_are_summed_alone() -> None:
    """Steps within a factor were taken for steps of the sum around it."""

    def body(emit: Any, x: Any, y: Any) -> Any:
        inside = emit(op.add(emit(conv(x, 6, 6, 1, 1)), emit(conv(x, 6, 6, 1, 1))))
        gated = emit(op.multiply(inside, y))
        return op.add(gated, emit(op.add(emit(conv(x, 6, 6, 1, 1)), x)))

    assert checked(module_of(body, SHAPE, SHAPE)) == {"conv": 2, "add": 1, "multiply": 1}


@pytest.mark.parametrize("layout", [("NCHW", "OIHW"), ("NHWC", "HWIO"), ("NHWC", "OHWI")])
def test_places_are_read_off_layouts(layout: tuple[str, str]) -> None:
    data, kernel = layout
    sizes = {"O": 6, "I": 6, "N": 1, "C": 6}

    def body(emit: Any, x: Any) -> Any:
        def branch(height: int, width: int) -> Any:
            own = sizes | {"H": height, "W": width}
            pads = (height // 2, width // 2)
            weights = const(*(own[letter] for letter in kernel))
            return emit(op.nn.conv2d(x, weights, padding=pads, data_layout=data, kernel_layout=kernel))

        return op.add(emit(op.add(branch(3, 5), branch(1, 3))), emit(op.add(branch(1, 1), x)))

    shape = tuple((sizes | {"H": 7, "W": 5})[letter] for letter in data)
    assert checked(module_of(body, shape)) == {"conv": 1}


def test_open_sizes_and_other_ranks() -> None:
    def body(emit: Any, x: Any) -> Any:
        wide = emit(op.nn.conv1d(x, const(4, 4, 3), padding=1))
        return op.add(emit(op.add(wide, emit(op.nn.conv1d(x, const(4, 4, 1))))), x)

    assert checked(module_of(body, (tvm.tirx.Var("n", "int64"), 4, 9))) == {"conv": 1}


@st.composite
def bodies(draw: st.DrawFn) -> Any:
    """Sums and products of branches, a tensor, and constants, as they come."""
    groups = draw(st.sampled_from((1, 2, 6)))
    stride = draw(st.sampled_from((1, 1, 2)))

    def leaf(emit: Any, x: Any) -> Any:
        size = draw(st.sampled_from((1, 3, 5)))
        off = draw(st.sampled_from((0, 0, 1))) if size > 1 else 0
        pads = (size // 2 - off, size // 2, size // 2 + off, size // 2)
        return emit(conv(x, 6, 6 // groups, size, size, padding=pads, groups=groups, strides=stride))

    def tree(emit: Any, x: Any, depth: int) -> Any:
        what = draw(st.sampled_from(("leaf", "sum", "difference", "scaled", "moved", "data"))) if depth else "leaf"
        if what == "data" and stride == 1:
            return x
        if what in ("leaf", "data"):
            return leaf(emit, x)
        first = tree(emit, x, depth - 1)
        numbers = const(1, 6, 1, 1)
        if what in ("scaled", "moved"):
            return emit((op.multiply if what == "scaled" else op.add)(first, numbers))
        return emit((op.add if what == "sum" else op.subtract)(first, tree(emit, x, depth - 1)))

    return lambda emit, x: op.add(tree(emit, x, 4), const(1, 6, 1, 1))


@settings(max_examples=15, deadline=None)
@given(bodies())
def test_any_sum_is_the_same(body: Any) -> None:
    checked(module_of(body))


def test_long_chains_of_sums_are_looked_through() -> None:
    """One call within another for each sum: 2,000 ended in a RecursionError."""

    def body(emit: Any, x: Any) -> Any:
        total = emit(op.add(emit(conv(x, 6, 6, 1, 1)), emit(conv(x, 6, 6, 1, 1))))
        for _ in range(2000):
            total = emit(op.add(total, relax.const(1.0, "float32")))
        return op.add(total, relax.const(1.0, "float32"))

    assert sum_convolutions(module_of(body)).script().count("nn.conv2d") == 1


def test_convolutions_of_another_block_stay_there() -> None:
    """What is done to the result of a block of dataflow became part of it outside, where its operand is unknown: "the
    module is not well formed: DataflowVar is used outside DataflowBlock"."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(op.nn.conv2d(builder.emit(op.nn.relu(x)), const(6, 6, 1, 1)))
        builder.emit_func_output(builder.emit(op.add(result, result)))
    made = sum_convolutions(builder.get())
    relax.analysis.well_formed(made)
    both = (stock_results(mod, np.ones(SHAPE, "float32")) for mod in (builder.get(), made))
    np.testing.assert_allclose(*both)
