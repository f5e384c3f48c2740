"""Scalar functions on what is known: exact or unknown, never wrong."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tir.helpers import legal, understood
from tvm import relax, te, tirx

from eqsat_layout.maps import UNDEF, Fill
from eqsat_layout.tir.computation import Value
from eqsat_layout.tir.fills import evaluate_fill
from eqsat_layout.tir.scalar_functions import FUNCTIONS
from eqsat_layout.tir.scalar_values import ANYTHING, BOOL, FINITE, Interval, Kept, Scalar, UnsafeError, as_held
from eqsat_layout.tir.scalars import Evaluator

op = relax.op


def filled(build: Any, *fills: Fill, dtype: str = "float32") -> Fill:
    """What one elementwise op makes of these fills."""
    computation = understood(legal(build, *[((2, 3), dtype)] * len(fills)))
    (block,) = computation.blocks
    (store,) = block.stores
    return evaluate_fill(store.value, dict(enumerate(fills)), [b.dtype for b in computation.buffers])


ONE_FILL: list[tuple[Any, Fill, Fill]] = [
    (lambda x: op.nn.relu(x), 0.0, 0.0),
    (lambda x: op.nn.relu(x), -3.0, 0.0),
    (lambda x: op.nn.relu(x), -math.inf, 0.0),
    (lambda x: op.nn.relu(x), UNDEF, UNDEF),
    (lambda x: op.add(x, relax.const(1.0)), 0.0, 1.0),
    (lambda x: op.exp(x), 0.0, 1.0),
    (lambda x: op.exp(x), 1.0, UNDEF),
    (lambda x: op.log(x), 0.0, UNDEF),
    (lambda x: op.sigmoid(x), 0.0, 0.5),
    (lambda x: op.divide(relax.const(1.0), x), 0.0, UNDEF),
    (lambda x: op.divide(x, relax.const(3.0)), 1.0, UNDEF),
    (lambda x: op.divide(x, relax.const(3.0)), 6.0, 2.0),
    (lambda x: op.clip(x, 1.0, 6.0), 0.0, 1.0),
    (lambda x: op.astype(x, "int32"), 2.5, 2.0),
    (lambda x: op.astype(x, "int8"), 300.0, UNDEF),
    (lambda x: op.astype(x, "float16"), 1e6, UNDEF),
    (lambda x: op.sign(x), -2.0, -1.0),
    (lambda x: op.nn.leakyrelu(x, 0.5), -2.0, -1.0),
    (lambda x: op.isnan(x), 0.0, 0.0),
    (lambda x: op.abs(x), -1.0, 1.0),
    (lambda x: op.negative(x), 0.0, UNDEF),  # -0, which formats have no fill for
    (lambda x: op.clip(x, -2.0, -0.0), 0.0, UNDEF),  # was 0: TVM takes the other zero
    (lambda x: op.nn.relu(x), -0.0, UNDEF),
    (lambda x: op.add(x, x), -0.0, UNDEF),
    (lambda x: op.divide(x, relax.const(-3.0)), 0.0, UNDEF),
    (lambda x: op.tanh(x), -0.0, UNDEF),
    (lambda x: op.exp(x), -0.0, 1.0),
    (lambda x: op.power(x, relax.const(3.0)), -0.0, UNDEF),
    (lambda x: op.negative(x), 1.0, -1.0),
    (lambda x: op.full_like(x, relax.const(2.0)), UNDEF, 2.0),
]


@pytest.mark.parametrize(("build", "fill", "wanted"), ONE_FILL)
def test_fills_go_through_functions(build: Any, fill: Fill, wanted: Fill) -> None:
    assert filled(build, fill) == wanted


def test_fills_of_several_operands_go_through_functions() -> None:
    assert filled(lambda x, y: op.add(x, y), 1.0, 2.0) == 3.0
    assert filled(lambda x, y: op.add(x, y), 1.0, UNDEF) is UNDEF
    assert filled(lambda x, y: op.multiply(x, y), 0.0, UNDEF) is UNDEF  # 0 * NaN
    assert filled(lambda x, y: op.less(x, y), 1.0, 2.0) == 1.0
    assert filled(lambda x, y: op.maximum(x, y), 1.0, UNDEF) is UNDEF
    assert filled(lambda x, y: op.floor_divide(x, y), 7.0, 2.0, dtype="int32") == 3.0
    assert filled(lambda x, y: op.floor_divide(x, y), 7.0, 0.0, dtype="int32") is UNDEF
    assert filled(lambda x, y: op.multiply(x, y), 2.0**20, 2.0**20, dtype="int32") is UNDEF
    where = understood(legal(lambda c, x, y: op.where(c, x, y), ((2,), "bool"), (2,), (2,)))
    value = where.blocks[0].stores[0].value
    for condition, wanted in ((1.0, 4.0), (0.0, 5.0), (UNDEF, UNDEF)):
        assert evaluate_fill(value, {0: condition, 1: 4.0, 2: 5.0}, ["bool", "float32", "float32"]) == wanted
    assert evaluate_fill(value, {0: UNDEF, 1: 4.0, 2: 4.0}, ["bool", "float32", "float32"]) == 4.0


def test_positions_and_symbols_are_not_known() -> None:
    assert evaluate_fill(Value("iter", "int64", literal=2), {}, []) is UNDEF
    assert evaluate_fill(Value("symbol", "int64", literal="n"), {}, []) is UNDEF


EXACT_POINTS = sorted(
    name for name, function in FUNCTIONS.items() if "points" in inspect.getclosurevars(function).nonlocals
)


def pointwise(x: Any, function: Any) -> Any:
    return te.compute(x.shape, lambda i: function(x[i]))


def test_points_that_count_as_exact_are_so_here() -> None:
    module: dict[str, Any] = {}
    wanted: dict[str, Any] = {}
    for name in EXACT_POINTS:
        points = inspect.getclosurevars(FUNCTIONS[name]).nonlocals["points"]
        x = te.placeholder((len(points),), "float32", "x")
        module[name] = te.create_prim_func([x, pointwise(x, getattr(tirx, name))]).with_attr("global_symbol", name)
        wanted[name] = points
    assert {"exp", "sigmoid", "tanh", "erf"} <= set(wanted)
    library = tvm.compile(tvm.IRModule(module), "llvm")
    for name, points in wanted.items():
        operand = tvm.runtime.tensor(np.array(list(points), "float32"))
        result = tvm.runtime.tensor(np.full(len(points), 7, "float32"))
        library[name](operand, result)
        np.testing.assert_array_equal(result.numpy(), np.array(list(points.values()), "float32"), err_msg=name)


# ---- abstract values hold whatever concrete ones give ----

NUMBERS = st.integers(-8, 8)


def leaf(name: str, dtype: str) -> Value:
    return Value("iter", dtype, literal=int(name))


@st.composite
def expressions(draw: st.DrawFn, depth: int) -> Value:
    if depth == 0:
        constant = Value("const", "int32", literal=draw(NUMBERS))
        return draw(st.sampled_from([leaf("0", "int32"), leaf("1", "int32"), constant]))
    a, b = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    kind = draw(st.sampled_from(["Add", "Sub", "Mul", "Max", "Min", "FloorDiv", "FloorMod", "Div", "Mod", "Select"]))
    if kind == "Select":
        comparison = draw(st.sampled_from(["LT", "LE", "GT", "GE", "EQ", "NE"]))
        return Value("Select", "int32", (Value(comparison, "bool", (a, b)), a, draw(expressions(depth - 1))))
    return Value(kind, "int32", (a, b))


def contains(known: Scalar, number: Scalar) -> bool:
    assert isinstance(number, int | float)
    if known is ANYTHING:
        return True
    return known.low <= number <= known.high if isinstance(known, Interval) else known == number


@given(expressions(3), NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.data())
def test_bounds_hold_what_numbers_give(value: Value, a: int, b: int, c: int, d: int, data: st.DataObject) -> None:
    spans = [Interval(min(a, b), max(a, b)), Interval(min(c, d), max(c, d))]
    point = [data.draw(st.integers(int(s.low), int(s.high))) for s in spans]
    try:
        known = Evaluator(lambda *_: ANYTHING, spans).value(value)
    except UnsafeError:
        return
    assert contains(known, Evaluator(lambda *_: ANYTHING, point).value(value))


def test_what_a_reduction_keeps() -> None:
    kept = Kept(3, 0.0)
    values: dict[str, Scalar] = {"0": kept, "1": 0}

    def step(kind: str, other: Scalar, start: Scalar = 0.0) -> Scalar:
        values["0"] = Kept(3, start)
        return Evaluator(lambda *_: ANYTHING, [values["0"], other]).value(
            Value(kind, "float32", (leaf("0", "float32"), leaf("1", "float32")))
        )

    assert step("Add", 0) == kept
    assert step("Add", 1) is ANYTHING
    assert step("Mul", 1) == kept
    assert step("Max", -1.0) == kept
    assert step("Max", 1.0) is ANYTHING
    assert step("Max", -5.0, start=-5.0) == Kept(3, -5.0)
    assert step("Min", 1.0) == kept
    assert step("Max", ANYTHING) is ANYTHING
    zero_times_data = Evaluator(lambda *_: ANYTHING, [0, FINITE]).value(
        Value("Mul", "float32", (leaf("0", "float32"), leaf("1", "float32")))
    )
    assert zero_times_data == 0


def test_what_may_fault_is_told() -> None:
    for kind, divisor in (
        ("FloorDiv", BOOL),
        ("Mod", ANYTHING),
        ("Div", 0),
        ("FloorMod", Interval(-3, 3)),
        ("RShift", 99),
    ):
        with pytest.raises(UnsafeError):
            Evaluator(lambda *_: ANYTHING, [4, divisor]).value(
                Value(kind, "int32", (leaf("0", "int32"), leaf("1", "int32")))
            )


@pytest.mark.parametrize(
    ("number", "dtype", "wanted"),
    [
        (0.1, "float32", float(np.float32(0.1))),
        (0.5, "int32", None),
        (-1, "uint8", None),
        (255, "uint8", 255),
        (1e6, "float16", None),
        (math.inf, "float16", math.inf),
        (math.nan, "float32", None),
        (2, "bool", None),
        (1.5, "bfloat16", 1.5),
        (0.1, "bfloat16", None),
        (1, "float8_e4m3fn", 1.0),
        (3, "float8_e4m3fn", None),
    ],
)
def test_dtypes_hold_what_they_can(number: float, dtype: str, wanted: float | None) -> None:
    assert as_held(number, dtype) == wanted


ORACLES: dict[str, Callable[[int, int], int]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "FloorDiv": operator.floordiv,
    "FloorMod": operator.mod,
    "Div": lambda a, b: int(a / b),
    "Mod": lambda a, b: a - int(a / b) * b,
    "Max": max,
    "Min": min,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "EQ": operator.eq,
    "NE": operator.ne,
    "And": lambda a, b: bool(a and b),
    "Or": lambda a, b: bool(a or b),
    "BitwiseAnd": operator.and_,
    "BitwiseOr": operator.or_,
    "BitwiseXor": operator.xor,
    "LShift": operator.lshift,
    "RShift": operator.rshift,
}


@given(st.sampled_from(sorted(ORACLES)), NUMBERS, NUMBERS)
def test_numbers_are_computed_as_python_does(kind: str, a: int, b: int) -> None:
    dtype = "bool" if kind in ("LT", "LE", "GT", "GE", "EQ", "NE", "And", "Or") else "int32"
    value = Value(kind, dtype, (leaf("0", "int32"), leaf("1", "int32")))
    try:
        found = Evaluator(lambda *_: ANYTHING, [a, b]).value(value)
    except UnsafeError:
        assert b in (0, -1) or kind in ("LShift", "RShift")
        return
    assert found == ORACLES[kind](a, b)
