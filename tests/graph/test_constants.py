"""Constants are what they were in every region of a function."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tvm
from compare import assert_same_fast, stock_results
from programs import program
from tvm import relax
from tvm.relax import op as R

import eqsat_layout
from eqsat_layout.notes import Notes
from eqsat_layout.passes.fold_constants import fold_constants


def in_two_regions(body: Any) -> tvm.IRModule:
    """A function that applies ``body`` to 0, 1 and the value before; no region holds the ``match_cast`` in between."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 8, 6, 6), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            first = builder.emit(body(builder.emit, 0, x))
            cast = builder.match_cast(first, first.ty)
            result = builder.emit_output(body(builder.emit, 1, cast))
        builder.emit_func_output(result)
    return builder.get()


def convolved(emit: Any, number: int, x: Any) -> Any:
    weight = np.random.default_rng(number).standard_normal((8, 8, 3, 3))
    return R.nn.conv2d(x, relax.const(weight.astype("float32")), padding=1)


def convolved_with_made_weights(emit: Any, number: int, x: Any) -> Any:
    weight = np.random.default_rng(number).standard_normal((8, 8, 3, 3))
    made = emit(R.exp(emit(R.negative(relax.const(weight.astype("float32"))))))
    return R.nn.conv2d(x, made, padding=1)


@pytest.mark.parametrize("body", [convolved, convolved_with_made_weights])
def test_constants_of_two_regions_are_told_apart(body: Any) -> None:
    """Names of constants are those of a region: both weights were the first one's (Swin-T was wrong by its size)."""
    mod = in_two_regions(body)
    optimized = eqsat_layout.optimize(mod, desired_layouts={"relax.nn.conv2d": ["NHWC", "OHWI"]})
    assert "(1, 6, 6, 8)" in optimized.script(show_meta=False)
    assert_same_fast(mod, optimized)


def doubled(join: Any, times: int) -> tvm.IRModule:
    """A constant that is put together with itself again and again, and a parameter added to the last of it."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            made = relax.const(np.float32([1, 2]))
            for _ in range(times):
                made = builder.emit(join(made))
            result = builder.emit_output(R.add(made, x))
        builder.emit_func_output(result)
    return builder.get()


def test_an_op_over_the_same_constant_twice_is_looked_at_once() -> None:
    """As terms, forty sums of a constant with itself are 2^40: the plan was never written down."""
    mod = doubled(lambda made: R.add(made, made), 40)
    assert_same_fast(mod, eqsat_layout.optimize(mod))


@pytest.mark.parametrize("make", [eqsat_layout.optimize, lambda mod: fold_constants(mod, Notes())])
def test_a_constant_joined_with_itself_does_not_fill_the_memory(make: Any) -> None:
    """Each step is twice as large as its operand, which was taken for the measure: 33 of them were 32 gigabytes."""
    largest = 0

    def see(expr: Any) -> None:
        nonlocal largest
        if isinstance(expr, tvm.ir.GenericConst) and isinstance(expr.ty, relax.TensorType):
            largest = max(largest, math.prod(map(int, expr.ty.shape)))

    made = make(doubled(lambda made: R.concat([made, made]), 20))
    relax.analysis.post_order_visit(made["main"].body, see)
    assert largest <= 1 << 16


def test_constants_that_are_computed_ahead_have_a_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was held to twice what the program has, and any number of them was computed."""
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            own = [relax.const(np.full(8, number, "float32")) for number in range(3)]
            made = [builder.emit(R.exp(R.negative(one))) for one in own]
            asked = [builder.emit_output(R.call_pure_packed("f", one, ty_args=one.ty)) for one in made]
        builder.emit_func_output(relax.Tuple(asked))
    mod = builder.get()
    notes = Notes()
    assert "R.exp" not in fold_constants(mod, notes).script()
    assert not list(notes)
    monkeypatch.setattr("eqsat_layout.passes.fold_constants._LITTLE", 16)
    monkeypatch.setattr("eqsat_layout.passes.fold_constants._TOGETHER", 0)
    script = fold_constants(mod, notes).script()
    assert script.count("R.exp") == script.count("R.negative") == 1
    assert "1 constant expressions are not computed ahead: with all of them, of 24 elements, more than 16" in str(
        list(notes)
    )


def test_a_zero_that_loses_its_axes_makes_nan_of_infinity_still() -> None:
    """TVM made it a part of the kernel, and took infinity times 0 for 0; ``validate`` blamed the plan."""

    def body(bb: Any, x: Any) -> Any:
        odd = bb.emit(R.strided_slice(bb.emit(R.reshape(x, (3, 4, 2, 1))), [2], [1], [2]))
        none = bb.emit(R.multiply(odd, relax.const(np.array([-0.0], "float32"))))
        return bb.emit(R.reshape(bb.emit(R.concat([none, none], axis=2)), (3, 8)))

    mod = program(body, (3, 8))
    better = eqsat_layout.optimize(mod, approx=False, candidates=False)
    assert better is not mod
    assert np.isnan(stock_results(better, np.full((3, 8), np.inf, "float32"))[0]).all()
