"""What plans say of themselves: changes, algorithms that were not offered, titles of regions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from programs import AVX2, constant, program
from tvm import relax, tirx
from tvm.relax import op

import eqsat_layout
from eqsat_layout import op as pattern
from eqsat_layout import rule
from eqsat_layout.errors import EqsatError


def two_convolutions(builder: Any, x: Any) -> Any:
    y = builder.emit(op.nn.conv2d(x, constant(32, 32, 3, 3), padding=1), "first")
    return builder.emit(op.nn.conv2d(builder.emit(op.nn.relu(y)), constant(32, 32, 3, 3, seed=1), strides=2), "second")


def test_changes_add_up_to_the_costs_of_the_plan() -> None:
    plan = eqsat_layout.plan(program(two_convolutions, (1, 32, 56, 56)), AVX2)
    assert np.isclose(sum(c.before for c in plan.changes), plan.input_cost)
    assert np.isclose(sum(c.after for c in plan.changes), plan.cost)
    by_name = {name: change for change in plan.changes for name in change.names if change.op == "nn.conv2d"}
    assert by_name["first"].now.startswith("winograd F(")
    assert "winograd" not in by_name["second"].now


def test_packed_weights_are_a_change() -> None:
    """A product whose weights are packed was "as written", and cost half of what it did."""
    mod = program(lambda bb, x: bb.emit(op.matmul(x, constant(512, 512))), (64, 512))
    plan = eqsat_layout.plan(mod, AVX2)
    (change,) = [change for change in plan.changes if change.op == "matmul"]
    assert change.saved > 0
    assert not change.is_kept
    assert change.now.startswith("row-major, operand 1: ")


def test_an_op_that_a_rule_replaced_is_a_change() -> None:
    """A multiplication that had become a silu was "as written", and then took "the layout of its neighbours"."""

    @rule
    def silu(x):  # type: ignore[no-untyped-def]
        yield pattern.multiply(x, pattern.sigmoid(x))
        yield pattern.nn.silu(x)

    mod = program(lambda bb, x: bb.emit(op.multiply(x, bb.emit(op.sigmoid(x)))), (64, 512))
    changes = {change.op: change for change in eqsat_layout.plan(mod, rules=[silu]).changes}
    assert {op: change.now for op, change in changes.items()} == {
        "multiply": "nn.silu, row-major",
        "sigmoid": "not needed any more",
    }
    assert changes["multiply"].why.startswith("rule silu (test_plan_details.py:")


def test_a_change_says_what_is_gained_by_it() -> None:
    plan = eqsat_layout.plan(program(two_convolutions, (1, 32, 56, 56)), AVX2)
    why = {change.op: change.why for change in plan.changes}
    assert why["nn.conv2d"] == "cheaper by itself"
    assert why["nn.relu"] == "takes the layout of its neighbours"


def test_why_not_says_why_an_algorithm_was_not_offered() -> None:
    plan = eqsat_layout.plan(program(two_convolutions, (1, 32, 56, 56)), AVX2)
    reasons = {(r.layout, r.reason) for r in plan.why_not("conv2d") if r.index_map is None}
    assert ("winograd F(4,3)", "its strides are (2, 2) and its dilation (1, 1), not 1") in reasons
    assert ("winograd F(2,5)", "its kernel is 3x3") in reasons
    assert ("transposed", "it is not a transposed convolution with strides") in reasons
    assert not any(reason == "its graph was not understood" for _, reason in reasons)
    assert "winograd F(4,3)" in str(plan.why_not("conv2d"))
    assert {r.layout for r in plan.why_not("conv2d", "winograd F(4")} == {"winograd F(4,3)"}  # it was a TypeError
    with pytest.raises(EqsatError, match=r"'winograd F\(9,9\)' in its name was refused; did you mean 'winograd F"):
        plan.why_not("conv2d", layout="winograd F(9,9)")
    names = [r.op for r in plan.why_not()]
    step = "winograd F(4,3): winograd_product"  # it was called "f0_winograd_product", and came first
    assert step in names
    assert "relax.nn.conv2d" not in names[names.index(step) :]

    exact = eqsat_layout.plan(program(two_convolutions, (1, 32, 56, 56)), AVX2, approx=False)
    reasons = {(r.layout, r.reason) for r in exact.why_not("conv2d") if r.index_map is None}
    assert ("winograd F(4,3)", "the target, or approx=False, leaves it out") in reasons

    none = eqsat_layout.plan(program(two_convolutions, (1, 32, 56, 56)), AVX2, candidates=False)
    reasons = {(r.layout, r.reason) for r in none.why_not("conv2d") if r.index_map is None}
    assert ("winograd F(4,3)", "no candidates were asked for") in reasons


def test_what_a_symbol_kept_back_is_said() -> None:
    batch = tirx.Var("n", "int64")
    convolution = eqsat_layout.plan(program(two_convolutions, (batch, 32, 56, 56)), AVX2)
    (note,) = [note for note in convolution.notes if "not offered" in note]
    assert note.startswith("relax.nn.conv2d: winograd F(2,3), winograd F(4,3), im2col not offered")
    reasons = {(r.layout, r.reason) for r in convolution.why_not("conv2d") if r.index_map is None}
    assert ("winograd F(4,3)", "its sizes are known at run time only") in reasons
    assert ("winograd F(2,5)", "its kernel is 3x3") in reasons
    size = tirx.Var("h", "int64")
    sides = eqsat_layout.plan(program(two_convolutions, (1, 32, size, size)), AVX2)
    assert any("im2col not offered" in note for note in sides.notes)
    product = eqsat_layout.plan(program(lambda bb, x: bb.emit(op.matmul(x, x)), (batch, 32, 32)), AVX2)
    assert not [note for note in product.notes if "not offered" in note]
    sized = eqsat_layout.plan(program(two_convolutions, (1, 32, 56, 56)), AVX2)
    assert not [note for note in sized.notes if "not offered" in note]


def test_a_region_that_only_computes_shapes_says_so() -> None:
    """It was titled "main", like the network itself."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 6), "float32"))
    sizes = relax.Var("sizes", relax.TensorType((2,), "int64"))
    with builder.function("main", [x, sizes]):
        with builder.dataflow():
            doubled = builder.emit_output(op.multiply(sizes, sizes))
        shape = builder.emit(op.tensor_to_shape(doubled))
        with builder.dataflow():
            y = builder.emit_output(op.nn.relu(builder.emit(op.abs(x))))
        builder.emit_func_output(relax.Tuple([shape, y]))
    page = eqsat_layout.plan(builder.get()).html()
    assert "main, part 1 of 2 (shapes only)" in page
    assert '"main, part 2 of 2"' in page
