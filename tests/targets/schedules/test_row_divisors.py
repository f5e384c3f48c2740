"""Rows are divided by one number as products with its reciprocal; other divisions stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from targets.machines import AVX2
from tvm import te, tirx, topi

from eqsat_layout.targets.cpu.lowering import pipeline_name
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.targets.schedules.rounded_quotients import rounded_quotients
from eqsat_layout.tir.structural import nodes_of

ROWS, COLUMNS = 6, 64


def divided(of_rows: bool) -> Any:
    x = te.placeholder((ROWS, COLUMNS), "float32", name="x")
    y = te.placeholder((ROWS,) if of_rows else (COLUMNS,), "float32", name="y")
    z = te.compute(x.shape, lambda i, j: x[i, j] / y[i if of_rows else j])
    return schedule_primfunc(te.create_prim_func([x, y, z]), AVX2)


def ran(func: Any, x: Any, y: Any) -> Any:
    out = tvm.runtime.tensor(np.zeros((ROWS, COLUMNS), "float32"))
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    built = tirx.build(mod, target={"kind": "llvm"}, pipeline=pipeline_name())
    built["main"](*map(tvm.runtime.tensor, (x, y)), out)
    return out.numpy()


def test_the_reciprocal_is_of_one_element() -> None:
    (division,) = nodes_of(divided(of_rows=True).body, tirx.Div)
    assert float(division.a) == 1
    (division,) = nodes_of(divided(of_rows=False).body, tirx.Div)
    assert isinstance(division.a, tvm.ir.TensorLoad)


def test_results_differ_in_the_last_bit_at_most() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, COLUMNS)).astype("float32")
    x[:, :4] = 0, -0.0, np.inf, np.nan
    y = np.array([3, -7e-30, 5e30, np.inf, 0, np.nan], "float32")
    with np.errstate(divide="ignore", invalid="ignore"):
        np.testing.assert_allclose(ran(divided(of_rows=True), x, y), x / y[:, None], rtol=2.4e-7)


@pytest.mark.parametrize("number", [None, 3.25, 49.0])
@pytest.mark.parametrize("rounding", [te.floor, te.ceil, te.round, te.trunc, lambda value: value.astype("int32")])
def test_what_is_rounded_after_is_divided(number: float | None, rounding: Any) -> None:
    """The nearest places of an image of open size: 6.5 / 3.25 was a bit more than 2, and the place after it taken."""
    x = te.placeholder((ROWS, COLUMNS), "float32", name="x")
    y = te.placeholder((ROWS,), "float32", name="y")
    quotients = te.compute(x.shape, lambda i, j: x[i, j] / (y[i] if number is None else tirx.const(number, "float32")))
    half = te.compute(x.shape, lambda i, j: quotients[i, j] - 0.5)
    z = te.compute(x.shape, lambda i, j: rounding(half[i, j] + 0.5).astype("float32"))
    divisors = np.array([3.25, 49, 41, 10, 0.7, 1.1], "float32") if number is None else np.full(ROWS, number, "float32")
    whole = np.arange(COLUMNS, dtype="float32") - COLUMNS // 2
    given = whole * divisors[:, None]
    func = schedule_primfunc(te.create_prim_func([x, y, z]), AVX2)
    with np.errstate(all="ignore"):
        wanted = ran(te.create_prim_func([x, y, z]), given, divisors)
    np.testing.assert_array_equal(ran(func, given, divisors), wanted)


@pytest.mark.parametrize("number", [None, 3.25])
def test_what_a_remainder_is_taken_of_is_divided(number: float | None) -> None:
    """``x / 3.25 % 1`` of some multiples of 3.25 was almost 1: its product with the reciprocal is a bit below it."""
    x = te.placeholder((ROWS, COLUMNS), "float32", name="x")
    y = te.placeholder((ROWS,), "float32", name="y")
    quotients = te.compute(x.shape, lambda i, j: x[i, j] / (y[i] if number is None else tirx.const(number, "float32")))
    func = te.create_prim_func([x, y, topi.mod(quotients, tirx.const(1.0, "float32"))])
    divisors = np.array([3.25, 49, 41, 10, 0.7, 1.1], "float32") if number is None else np.full(ROWS, number, "float32")
    given = np.arange(COLUMNS, dtype="float32") * divisors[:, None]
    np.testing.assert_array_equal(ran(schedule_primfunc(func, AVX2), given, divisors), ran(func, given, divisors))


@pytest.mark.parametrize("number", [None, 3.25])
def test_a_quotient_is_the_same_beside_its_floor(number: float | None) -> None:
    """``x / 3.25 - floor(x / 3.25)`` of some multiples of 3.25 was below 0: a product less a floor of a quotient."""
    x = te.placeholder((ROWS, COLUMNS), "float32", name="x")
    y = te.placeholder((ROWS,), "float32", name="y")
    quotients = te.compute(x.shape, lambda i, j: x[i, j] / (y[i] if number is None else tirx.const(number, "float32")))
    func = te.create_prim_func([x, y, topi.subtract(quotients, topi.floor(quotients))])
    divisors = np.array([3.25, 49, 41, 10, 0.7, 1.1], "float32") if number is None else np.full(ROWS, number, "float32")
    given = np.arange(COLUMNS, dtype="float32") * divisors[:, None]
    np.testing.assert_array_equal(ran(schedule_primfunc(func, AVX2), given, divisors), ran(func, given, divisors))


def test_a_quotient_that_is_named_is_divided() -> None:
    x = te.placeholder((COLUMNS,), "float32", name="x")
    name = tirx.Var("quotient", "float32")
    z = te.compute((COLUMNS,), lambda i: tirx.Let(name, x[i] / tirx.const(3.25, "float32"), te.floor(name)))
    assert rounded_quotients(te.create_prim_func([x, z]))


def test_a_place_that_is_a_quotient_is_divided() -> None:
    x = te.placeholder((COLUMNS,), "float32", name="x")
    z = te.compute((COLUMNS,), lambda i: x[(i.astype("float32") / tirx.const(49.0, "float32") * 49.0).astype("int64")])
    assert rounded_quotients(te.create_prim_func([x, z]))
    plain = te.compute((COLUMNS,), lambda i: x[i] / tirx.const(49.0, "float32"))
    assert not rounded_quotients(te.create_prim_func([x, plain]))


@pytest.mark.parametrize(
    "compare", [te.floor, lambda value: tirx.Select(value >= 3.0, value, tirx.const(0.0, "float32"))]
)
def test_what_is_not_exact_has_no_bits_to_keep(compare: Any) -> None:
    """Shares of a softmax that are compared are products, as exp is not exact either; logits over a number are not."""
    x = te.placeholder((ROWS, COLUMNS), "float32", name="x")
    k = te.reduce_axis((0, COLUMNS), "k")
    powers = te.compute(x.shape, lambda i, j: te.exp(x[i, j]))
    total = te.compute((ROWS,), lambda i: te.sum(powers[i, k], axis=k))
    shares = te.compute(x.shape, lambda i, j: compare(powers[i, j] / total[i]))
    assert not rounded_quotients(te.create_prim_func([x, shares]))
    plain = te.compute(x.shape, lambda i, j: compare(x[i, j] / tirx.const(3.25, "float32")))
    assert rounded_quotients(te.create_prim_func([x, plain]))


def test_buckets_of_logarithms_are_divided() -> None:
    """Of relative positions, as T5 has them: the logarithm of 2, over that of 16, times 8 is the bucket 2."""
    x = te.placeholder((COLUMNS,), "float32", name="x")
    near, far = (tirx.const(number, "float32") for number in (10.0, 2.7725887))
    places = te.compute((COLUMNS,), lambda i: (te.log(x[i] / near) / far * 8.0).astype("int32"))
    assert len(rounded_quotients(te.create_prim_func([x, places]))) == 2


def test_a_comparison_with_0_does_not_need_the_quotient() -> None:
    x = te.placeholder((COLUMNS,), "float32", name="x")
    quotient = te.compute((COLUMNS,), lambda i: x[i] / tirx.const(3.25, "float32"))
    leaky = te.compute((COLUMNS,), lambda i: tirx.Select(quotient[i] > 0.0, quotient[i], quotient[i] * 0.5))
    assert not rounded_quotients(te.create_prim_func([x, leaky]))
