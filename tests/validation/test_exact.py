"""What is exact in whole numbers, whatever the order of additions; and that validation compares it bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import constant, program
from tvm import relax, te
from tvm.relax import op as R

from eqsat_layout.errors import ValidationError
from eqsat_layout.targets.registry import target
from eqsat_layout.validation.exact import exact_results
from eqsat_layout.validation.inputs import SPECIAL, WHOLE, Draw, whole_numbers_for
from eqsat_layout.validation.validate import check_equal
from eqsat_layout.validation.whole_numbers import Range, Rounding, after


def exact(body: Callable[..., Any], *shapes: Any, dtype: str = "float32") -> list[bool]:
    mod = program(body, *shapes, dtype=dtype)
    return exact_results(mod, "main", Draw(3, 0, WHOLE).inputs(mod["main"]))


def five_products(builder: Any, x: Any, y: Any) -> Any:
    for _ in range(5):
        x = builder.emit(R.matmul(x, y))
    return x


@pytest.mark.parametrize(
    ("body", "shapes", "expected"),
    [
        (lambda b, x, w: R.nn.relu(b.emit(R.nn.conv2d(x, w, padding=1))), [(1, 8, 6, 6), (8, 8, 3, 3)], [True]),
        (lambda b, x: R.nn.conv2d(x, constant(8, 8, 3, 3)), [(1, 8, 6, 6)], [False]),
        (lambda b, x: R.nn.conv2d(x, relax.const(np.ones((8, 8, 3, 3), "float32"))), [(1, 8, 6, 6)], [True]),
        (lambda b, x: R.nn.max_pool2d(x, (2, 2)), [(1, 4, 6, 6)], [True]),
        (lambda b, x: R.nn.softmax(x), [(4, 6)], [False]),
        (lambda b, x: R.mean(x, axis=[1]), [(4, 8)], [True]),
        (lambda b, x: R.mean(x, axis=[1]), [(4, 7)], [False]),
        (lambda b, x: R.argmax(x, axis=1), [(4, 6)], [True]),
        (lambda b, x: R.cumsum(x, axis=1), [(4, 6)], [False]),
        (lambda b, x: (b.emit(R.exp(x)), b.emit(R.permute_dims(x))), [(4, 7)], [False, True]),
        (five_products, [(64, 64), (64, 64)], [False]),
        (lambda b, x: R.add(b.emit(R.floor(b.emit(R.exp(x)))), x), [(4, 6)], [False]),
    ],
)
def test_which_results_are_exact(body: Any, shapes: Any, expected: list[bool]) -> None:
    assert exact(body, *shapes) == expected


def test_digits_of_the_type_count() -> None:
    def product(builder: Any, x: Any, y: Any) -> Any:
        return R.matmul(x, y)

    shapes = ((4, 600), (600, 8))
    assert [exact(product, *shapes, dtype=t) for t in ("float16", "float32", "int8")] == [[False], [True], [True]]


def test_symbolic_sizes_are_those_of_the_inputs() -> None:
    n = tvm.tirx.Var("n", "int64")
    assert exact(lambda b, x: R.sum(x, axis=[0]), (n, 6)) == [True]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-9, 9), min_size=1, max_size=6), st.integers(-9, 9), st.integers(-3, 3), st.integers(0, 2))
def test_ranges_hold_what_is_computed(values: list[int], number: int, factor: int, kind: int) -> None:
    """(x + number) * factor / 4, its sum, its largest element, in exact arithmetic."""
    x = te.placeholder((len(values),), "float32", name="x")
    y = te.compute(x.shape, lambda i: (x[i] + float(number)) * float(factor) / 4.0, name="y")
    k = te.reduce_axis((0, len(values)), "k")
    results = [y, te.compute((1,), lambda _: te.sum(y[k], axis=k)), te.compute((1,), lambda _: te.max(y[k], axis=k))]
    func = te.create_prim_func([x, results[kind]], index_dtype_override="int64")
    found = after(func, [Range.of(values), None])[-1]
    made = (np.array(values, "float64") + number) * factor / 4
    expected = np.atleast_1d([made, made.sum(), made.max()][kind])
    assert found is not None
    assert found.low <= expected.min() <= expected.max() <= found.high
    assert (expected % found.unit == 0).all()


def test_ranges_of_numbers() -> None:
    assert Range.of([0.0, 1.5, -6.0]) == Range(-6.0, 1.5, 0.5)
    assert Range.of([4, 12]).unit == 4.0
    with pytest.raises(Rounding):
        Range.of([np.nan])


def test_inputs_of_every_kind() -> None:
    mod = program(lambda b, x: R.negative(x), (30, 30))
    numbers, others = (Draw(2, 0, kind).inputs(mod["main"])[0].numpy() for kind in (WHOLE, SPECIAL))
    assert (numbers == np.round(numbers)).all()
    assert len(np.unique(numbers)) > 5
    assert np.isnan(others).any()
    assert np.isinf(others).any()
    assert np.isfinite(others).mean() > 0.8
    assert whole_numbers_for(3) == 3


def test_what_tolerances_hide_is_seen_where_nothing_rounds() -> None:
    """A channel that is wrong by less than 1e-5 of the largest element of all."""

    def body(last: float) -> Callable[..., Any]:
        scale = np.array([1.0, 1.0, 2.0**-20, last], "float32").reshape(4, 1, 1)
        return lambda b, x: R.multiply(x, relax.const(scale))

    right, wrong = program(body(2.0**-20), (1, 4, 6, 6)), program(body(2.0**-21), (1, 4, 6, 6))
    check_equal(right, right)
    with pytest.raises(ValidationError, match=r"differs in .* elements, where nothing rounds"):
        check_equal(right, wrong)


def test_special_values_are_compared_where_kernels_are_exact() -> None:
    """TVM's ``not (x < 0)`` and ``x >= 0``: the same but for NaN."""
    zero = relax.const(0.0, "float32")
    before = program(lambda b, x: R.logical_not(b.emit(R.less(x, zero))), (8, 40))
    after_ = program(lambda b, x: R.greater_equal(x, zero), (8, 40))
    check_equal(before, after_)
    with pytest.raises(ValidationError, match="differs"):
        check_equal(before, after_, target=target(approx=False))
