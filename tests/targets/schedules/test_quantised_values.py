"""Bytes of floats in few steps are those of rounding, adding and bounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from eqsat_layout.targets.schedules.quantised_values import quantise_in_few_steps
from eqsat_layout.targets.schedules.row_divisors import divide_rows_once
from eqsat_layout.tir.intrinsics import is_call
from eqsat_layout.tir.structural import nodes_of

BYTES = {"uint8": (0, 255), "int8": (-128, 127)}
VALUES = np.concatenate(
    [
        np.arange(-700, 700, dtype="float32") / 2,  # halves, which go to the even number
        np.float32([0.0, -0.0, 0.49999997, 2.5e9, -2.5e9, 3e38, -3e38, np.inf, -np.inf, 8388609.5, -4194304.5]),
        np.random.default_rng(0).standard_normal(4000).astype("float32") * 200,
    ]
)


def kernel(
    dtype: str, *, has_zero: bool, is_restored: bool, other: bool = False, bounds: Any = None, known: int | None = None
) -> Any:
    """Quantises; ``is_restored``: and makes floats of that, less another zero point if ``other``.

    ``known``: the zero point is this number, and no operand.
    """
    x = te.placeholder(VALUES.shape, "float32", "x")
    operand, second = te.placeholder((), dtype, "zero"), te.placeholder((), dtype, "second")
    low, high = bounds or BYTES[dtype]

    def zero() -> Any:
        return operand() if known is None else tirx.const(known, dtype)

    def element(i: Any) -> Any:
        value = tirx.round(x[i])
        value = value + zero().astype("float32") if has_zero else value
        made = tirx.max(tirx.min(value, tirx.const(high, "float32")), tirx.const(low, "float32")).astype(dtype)
        if not is_restored:
            return made
        whole = made.astype("int32")
        whole = whole - (second() if other else zero()).astype("int32") if has_zero else whole
        return whole.astype("float32") * tirx.const(0.25, "float32")

    result = te.compute(VALUES.shape, element)
    return te.create_prim_func([x, operand, second, result], index_dtype_override="int64")


def run(func: Any, dtype: str, zero: int) -> Any:
    result = tvm.runtime.tensor(np.zeros(VALUES.shape, str(func.params[-1].ty.dtype)))
    scalars = [tvm.runtime.tensor(np.array(number, dtype)) for number in (zero, 3)]
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    tvm.compile(module, target="llvm")["main"](tvm.runtime.tensor(VALUES), *scalars, result)
    return result.numpy()


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("is_restored", [False, True])
@pytest.mark.parametrize(
    ("dtype", "zero", "bounds"),
    [
        ("uint8", 0, None),
        ("uint8", 117, None),
        ("uint8", 255, (3, 200)),
        ("int8", -128, None),
        ("int8", 5, (-127, 127)),
    ],
)
@pytest.mark.parametrize("has_zero", [False, True])
def test_values_are_the_same(
    dtype: str, zero: int, bounds: Any, has_zero: bool, is_restored: bool, is_known: bool
) -> None:
    func = kernel(dtype, has_zero=has_zero, is_restored=is_restored, bounds=bounds, known=zero if is_known else None)
    changed = quantise_in_few_steps(func)
    assert not any(is_restored is False and is_call(c, "tirx.round") for c in nodes_of(changed.body, tvm.ir.Call))
    casts = [str(cast.ty.dtype) for cast in nodes_of(changed.body, tirx.Cast)]
    assert is_restored is False or "uint8" not in casts
    low, high = bounds or BYTES[dtype]
    own = zero if has_zero else 0
    with np.errstate(invalid="ignore"):
        expected = np.clip(np.rint(VALUES) + np.float32(own), low, high)
    expected = (expected - own) * 0.25 if is_restored else expected.astype(dtype)
    np.testing.assert_array_equal(run(changed, dtype, zero), expected)


@pytest.mark.parametrize("rounding", [tirx.round, tirx.nearbyint])
def test_both_roundings_to_the_even_number_are_taken(rounding: Any) -> None:
    """Relax rounds by ``nearbyint``, which was none of a quantiser: it took more steps, and a division."""
    x = te.placeholder(VALUES.shape, "float32", "x")
    low, high = (tirx.const(bound, "float32") for bound in BYTES["int8"])

    def element(i: Any) -> Any:
        return tirx.max(tirx.min(rounding(x[i] / tirx.const(0.25, "float32")), high), low).astype("int8")

    result = te.compute(VALUES.shape, element)
    func = te.create_prim_func([x, result], index_dtype_override="int64")
    assert not nodes_of(divide_rows_once(func).body, tirx.Div)
    changed = quantise_in_few_steps(func)
    assert not any(is_call(c, f"tirx.{rounding.__name__}") for c in nodes_of(changed.body, tvm.ir.Call))
    found = tvm.runtime.tensor(np.zeros(VALUES.shape, "int8"))
    tvm.compile(tvm.IRModule({"main": changed.with_attr("global_symbol", "main")}), target="llvm")["main"](
        tvm.runtime.tensor(VALUES), found
    )
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found.numpy(), np.clip(np.rint(VALUES / np.float32(0.25)), -128, 127))


@pytest.mark.parametrize("zero", [0, 5])
def test_integers_that_are_bounded_are_bytes_of_a_quantiser(zero: int) -> None:
    """Those that add the zero point and clip as integers took more steps, and a division."""
    x = te.placeholder(VALUES.shape, "float32", "x")

    def element(i: Any) -> Any:
        whole = tirx.round(x[i] / tirx.const(0.25, "float32")).astype("int32") + zero
        return tirx.max(tirx.min(whole, tirx.const(127, "int32")), tirx.const(-127, "int32")).astype("int8")

    func = te.create_prim_func([x, te.compute(VALUES.shape, element)], index_dtype_override="int64")
    assert not nodes_of(divide_rows_once(func).body, tirx.Div)
    changed = quantise_in_few_steps(func)
    assert not any(is_call(c, "tirx.round") for c in nodes_of(changed.body, tvm.ir.Call))
    found = tvm.runtime.tensor(np.zeros(VALUES.shape, "int8"))
    tvm.compile(tvm.IRModule({"main": changed.with_attr("global_symbol", "main")}), target="llvm")["main"](
        tvm.runtime.tensor(VALUES), found
    )
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found.numpy(), np.clip(np.rint(VALUES / np.float32(0.25)) + zero, -127, 127))


@pytest.mark.parametrize(
    "func",
    [
        kernel("uint8", has_zero=True, is_restored=False, bounds=(-1, 255)),  # casts of what is no byte
        kernel("int8", has_zero=True, is_restored=False, bounds=(-127.5, 127)),
    ],
)
def test_other_casts_are_left_alone(func: Any) -> None:
    assert quantise_in_few_steps(func).same_as(func)


def test_another_zero_point_is_taken_off_as_it_is() -> None:
    func = kernel("uint8", has_zero=True, is_restored=True, other=True)
    np.testing.assert_array_equal(run(quantise_in_few_steps(func), "uint8", 90), run(func, "uint8", 90))
