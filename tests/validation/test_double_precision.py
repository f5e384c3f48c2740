"""What stock TVM loses by rounding may be lost, at as many places, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from programs import constant, program
from tvm import relax, te, tirx
from tvm.relax import op as R

import eqsat_layout
from eqsat_layout.errors import Refused, ValidationError
from eqsat_layout.graph.legalize import legalize
from eqsat_layout.validation import double_precision
from eqsat_layout.validation.double_precision import DoublePrecision, differs_by_rounding, in_double
from eqsat_layout.validation.results import run_in_machine
from eqsat_layout.validation.validate import check_equal

ROWS, STEPS = 8, 96
Change = Callable[[Any, Any], Any]


def product(builder: Any, x: Any) -> Any:
    return builder.emit(R.matmul(x, builder.emit(R.permute_dims(x))))


def summed(builder: Any, x: Any, *, backwards: bool) -> Any:
    """The same product, its steps in this order or that."""
    x = builder.emit(R.flip(x, 1)) if backwards else x
    pairs = builder.emit(R.multiply(builder.emit(R.expand_dims(x, 1)), builder.emit(R.expand_dims(x, 0))))
    return builder.emit(R.sum(pairs, axis=[2]))


def remainder(change: Change = lambda _, value: value, *, backwards: bool = False, scale: Any = 1.0) -> Any:
    """``x x^T - x x^T``, as one looks whether ``L L^T`` is ``A``; ``change``: of the second one."""

    def body(builder: Any, x: Any) -> Any:
        x = builder.emit(R.multiply(x, relax.const(np.float32(scale))))
        return R.subtract(product(builder, x), change(builder, summed(builder, x, backwards=backwards)))

    return program(body, (ROWS, STEPS))


def test_a_difference_of_values_that_are_nearly_equal_may_be_rounded_in_another_order() -> None:
    """All that is left of them is rounding: 9e-5 beside a tolerance of 9e-8 was called a difference."""
    check_equal(remainder(backwards=True), remainder())


def test_it_is_so_for_what_the_optimiser_makes_of_a_product() -> None:
    def body(builder: Any, x: Any) -> Any:
        return R.subtract(product(builder, x), builder.emit(R.einsum((x, x), "ik,jk->ij")))

    eqsat_layout.optimize(program(body, (8, 200)), validate=True)


def scaled_row(share: float) -> Change:
    def change(builder: Any, value: Any) -> Any:
        factors = np.ones((ROWS, 1), "float32")
        factors[3] = share
        return builder.emit(R.multiply(value, relax.const(factors)))

    return change


def swapped(builder: Any, value: Any) -> Any:
    return builder.emit(R.take(value, relax.const(np.array([1, 0, 2, 3, 4, 5, 6, 7])), axis=1))


@pytest.mark.parametrize("change", [scaled_row(1.0001), scaled_row(0.0), scaled_row(-1.0), swapped])
def test_operands_of_a_difference_that_are_wrong_are_seen(change: Change) -> None:
    with pytest.raises(ValidationError, match="result 0 differs by"):
        check_equal(remainder(backwards=True), remainder(change))


def test_a_wrong_channel_of_small_numbers_is_seen_beside_a_difference_that_cancels() -> None:
    """The rounding of the other channels is larger than all that it has."""
    small = np.array([1.0] * 7 + [1e-5], "float32").reshape(ROWS, 1)
    factors = np.ones((ROWS, 1), "float32")
    factors[7] = 1.01

    def change(builder: Any, value: Any) -> Any:
        return builder.emit(R.multiply(value, relax.const(factors)))

    check_equal(remainder(backwards=True, scale=small), remainder(scale=small))
    with pytest.raises(ValidationError, match=r"result 0 differs by"):
        check_equal(remainder(backwards=True, scale=small), remainder(change, scale=small))


@pytest.mark.parametrize("frequency", [4096.0, 4097.0])
def test_a_sine_of_large_numbers_that_is_off_is_seen(frequency: float) -> None:
    """What one takes for the reach of rounding must not grow with the slope of what is exact."""

    def body(share: float) -> Any:
        return program(
            lambda b, x: R.multiply(
                b.emit(R.sin(b.emit(R.multiply(x, relax.const(np.float32(frequency)))))), relax.const(np.float32(share))
            ),
            (ROWS, STEPS),
        )

    with pytest.raises(ValidationError, match="result 0 differs by"):
        check_equal(body(1.0), body(1.06))


def test_a_dropped_term_that_is_smaller_than_what_cancels_is_seen() -> None:
    def body(share: float) -> Any:
        def inner(builder: Any, x: Any) -> Any:
            large = builder.emit(R.multiply(x, relax.const(np.float32(3e3))))
            term = builder.emit(R.multiply(x, relax.const(np.float32(share))))
            return R.subtract(builder.emit(R.add(large, term)), large)

        return program(inner, (ROWS, STEPS))

    with pytest.raises(ValidationError, match="result 0 differs by"):
        check_equal(body(1.0), body(0.0))


def test_places_where_rounding_tips_a_step_over_are_no_more_than_stock_has() -> None:
    rng = np.random.default_rng(0)
    double = np.sign(rng.standard_normal((40, 40)))
    single, got = double.astype("float32"), double.astype("float32")
    single[3, 5], got[3, 9], got[3, 5] = -single[3, 5], -got[3, 9], -got[3, 5]
    assert not differs_by_rounding(double, single, got)  # column 9 has none
    got[3, 9] = -got[3, 9]
    assert differs_by_rounding(double, single, got)
    got[3] = -got[3]
    assert not differs_by_rounding(double, single, got)
    assert not differs_by_rounding(double, single, np.ones_like(got))


def test_results_of_another_type_are_no_rounding() -> None:
    """The numbers of float16 are as near as it can hold them."""

    def body(dtype: str) -> Any:
        return program(lambda b, x: R.astype(b.emit(R.sin(x)), dtype), (ROWS, STEPS))

    for one, other in (("float32", "float16"), ("float16", "float32"), ("float32", "bfloat16")):
        with pytest.raises(ValidationError, match=f"is {other}"):
            check_equal(body(one), body(other))


def test_numbers_that_are_none_are_no_rounding() -> None:
    double = np.array([1.0, 2.0, 1e300])
    single = np.array([1.0, 2.1, np.inf], "float32")
    assert differs_by_rounding(double, single, np.array([1.0, 2.1, np.inf], "float32"))
    assert not differs_by_rounding(double, single, np.array([1.0, np.nan, np.inf], "float32"))
    assert not differs_by_rounding(double, single, np.array([1.0, 2.1, -np.inf], "float32"))
    assert not differs_by_rounding(double, single, np.array([1.0, 2.1, 5.0], "float32"))


def test_a_module_in_float64_gives_what_float64_gives() -> None:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(R.nn.softmax(builder.emit(R.matmul(x, constant(STEPS, 16)))))
        return R.astype(builder.emit(R.add(builder.emit(R.astype(y, "float16")), relax.const(1, "float16"))), "float32")

    wide = in_double(legalize(program(body, (ROWS, STEPS))))
    x = np.random.default_rng(0).standard_normal((ROWS, STEPS))
    machine = double_precision._stock(wide)
    (found,) = run_in_machine(machine, "main", [tvm.runtime.tensor(x)])
    y = np.exp(x @ constant(STEPS, 16).value.numpy().astype("float64"))
    np.testing.assert_allclose(found, y / y.sum(1, keepdims=True) + 1, rtol=1e-14)


def of_bits(x: Any) -> Any:
    return te.compute(x.shape, lambda *at: tirx.reinterpret("float32", tirx.reinterpret("int32", x(*at)) + 1))


def of_a_library(x: Any) -> Any:
    return te.compute(x.shape, lambda *at: tirx.call_pure_extern("float32", "sinf", x(*at)))


@pytest.mark.parametrize("kernel", [of_bits, of_a_library])
def test_kernels_whose_numbers_have_a_type_of_their_own_have_no_double(kernel: Any) -> None:
    mod = program(lambda b, x: b.emit_te(kernel, x), (4, 6))
    with pytest.raises(Refused, match="is called"):
        in_double(mod)
    x = [tvm.runtime.tensor(np.ones((4, 6), "float32"))]
    assert not DoublePrecision(mod).explains("main", x, 0, np.ones((4, 6), "float32"))


def test_packed_functions_have_no_double() -> None:
    def body(builder: Any, x: Any) -> Any:
        return relax.call_pure_packed("nobody.knows", x, ty_args=relax.TensorType((4, 6), "float32"))

    with pytest.raises(Refused, match="is called"):
        in_double(program(body, (4, 6)))
