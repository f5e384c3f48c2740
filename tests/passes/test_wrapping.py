"""Integers wrap around, also where one kernel then compares or divides them: LLVM was told that they never do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from passes.test_guarded_reads import run
from tvm import relax
from tvm.relax import op as R


def constant(value: int, dtype: str) -> Any:
    return relax.const(value, dtype)


DTYPES = ["int32", "int64", "uint32", "uint64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_difference_of_0_and_a_number_is_not_0(dtype: str) -> None:
    x, y = np.array([7, 1, 5, 0] * 8).astype(dtype), np.array([2, 3, 2, 3] * 8).astype(dtype)
    got = run(lambda b, x, y: R.floor_divide(b.emit(R.subtract(constant(0, dtype), x)), y), x, y)
    np.testing.assert_array_equal(got, (np.array(0, dtype) - x) // y)
    got = run(lambda b, x, y: R.add(b.emit(R.subtract(constant(0, dtype), x)), y), x, y)
    np.testing.assert_array_equal(got, (np.array(0, dtype) - x) + y)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_overflows_is_compared_as_it_is(dtype: str) -> None:
    ends, random = np.iinfo(dtype), np.random.default_rng(0)
    x, z = (random.integers(ends.min, ends.max, 64, dtype=dtype, endpoint=True) for _ in range(2))
    x[:2] = ends.min, ends.max
    one, two, zero = (np.array(value, dtype) for value in (1, 2, 0))
    got = run(lambda b, x: R.maximum(b.emit(R.add(x, constant(1, dtype))), x), x)
    np.testing.assert_array_equal(got, np.maximum(x + one, x))
    got = run(lambda b, x: R.floor_divide(b.emit(R.multiply(x, constant(2, dtype))), constant(2, dtype)), x)
    np.testing.assert_array_equal(got, (x * two) // two)
    got = run(lambda b, x, z: R.less(b.emit(R.subtract(x, z)), constant(0, dtype)), x, z)
    np.testing.assert_array_equal(got, (x - z) < zero)
    got = run(lambda b, x, z: R.less(b.emit(R.multiply(x, z)), x), x, z)
    np.testing.assert_array_equal(got, (x * z) < x)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_a_number_without_axes_wraps_around_between_two_stages(dtype: str) -> None:
    """Its stages are not inlined into one another, and LLVM took one for the other: (x c) // c was x."""
    half = np.array(np.iinfo(dtype).max // 2, dtype)
    c = constant(int(half), dtype)
    for number in (3, -5, 7):
        x = np.array(number, dtype)
        product = (x.reshape(1) * half)[0]
        got = run(lambda b, x: R.floor_divide(b.emit(R.multiply(x, c)), c), x)
        np.testing.assert_array_equal(got, product // half)
        got = run(lambda b, x: R.less(b.emit(R.multiply(x, c)), c), x)
        np.testing.assert_array_equal(got, product < half)


def test_sums_that_wrap_around_are_compared_as_they_are() -> None:
    x = np.full((4, 3), np.iinfo("int32").max, "int32")
    got = run(lambda b, x: R.less(b.emit(R.sum(x, axis=1)), constant(0, "int32")), x)
    np.testing.assert_array_equal(got, x.sum(1, dtype="int32") < 0)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_a_sum_with_the_least_number_wraps_around(dtype: str) -> None:
    """LLVM was told that it does not, and made ``x | least`` of ``x + least``."""
    least = np.array(np.iinfo(dtype).min, dtype)
    x = np.array([-1, 0, 1, least, 3 << 14, 5, -7, 9] * 4).astype(dtype)
    got = run(lambda b, x: R.add(x, constant(int(least), dtype)), x)
    np.testing.assert_array_equal(got, x + least)
    four, near = np.array(4, dtype), least + np.array(3, dtype)
    x *= np.array(3 << np.iinfo(dtype).bits // 2 - 3, dtype)

    def squares(b: Any, x: Any) -> Any:
        return b.emit(R.multiply(b.emit(R.multiply(x, x)), constant(4, dtype)))

    got = run(lambda b, x: R.add(squares(b, x), constant(int(near), dtype)), x)
    np.testing.assert_array_equal(got, x * x * four + near)


@pytest.mark.parametrize("source", ["float32", "int8", "bool"])
def test_what_is_cast_to_integers_wraps_around_too(source: str) -> None:
    """In kernels that read no integers of 32 or 64 bits LLVM was told that nothing overflows."""
    x, least = (np.arange(32) - 16).astype(source), np.array(np.iinfo("int32").min)
    got = run(lambda b, x: R.subtract(b.emit(R.astype(x, "int32")), constant(int(least), "int32")), x)
    np.testing.assert_array_equal(got, x.astype("int32") - least.astype("int32"))
