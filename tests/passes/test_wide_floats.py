"""Kernels of bfloat16 and float16 on CPUs compute in float32."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import tvm
from programs import program
from tvm import relax
from tvm.relax import op

import eqsat_layout

NARROW = {"float16": np.dtype("float16"), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
Array = npt.NDArray[Any]


def results(dtype: str, body: Callable[[Any, Any, Any], list[Any]], *inputs: Array) -> list[Array]:
    """Of a program of two operands, as float64."""
    shapes = [one.shape for one in inputs]
    mod = program(lambda b, x, y: b.emit(relax.Tuple(body(b.emit, x, y))), *shapes, dtype=dtype)
    machine = relax.VirtualMachine(eqsat_layout.compile(mod, "llvm"), tvm.cpu())
    given = [tvm.runtime.tensor(one.astype(NARROW[dtype])) for one in inputs]
    return [np.asarray(one.numpy()).astype("float64") for one in machine["main"](*given)]


def drawn(dtype: str, *shapes: tuple[int, ...]) -> list[Array]:
    """Numbers of the type from -1 to 1, as float64."""
    random = np.random.default_rng(0)
    return [random.uniform(-1, 1, shape).astype(NARROW[dtype]).astype("float64") for shape in shapes]


def assert_is_rounded(dtype: str, got: Array, exact: Array, steps: float = 1.0) -> None:
    """No farther off than the spacing of the type's numbers there."""
    spacing = 2.0 ** -(10 if dtype == "float16" else 7)
    np.testing.assert_array_less(np.abs(got - exact), steps * spacing * np.abs(exact) + 1e-6)


FUNCTIONS: dict[str, Any] = {
    **{name: getattr(np, f"arc{name[1:]}") for name in ("acos", "asin", "atan", "asinh", "atanh")},
    **{name: getattr(np, name) for name in ("sinh", "cosh", "tanh", "exp", "sin", "cos", "sqrt")},
}


@pytest.mark.parametrize("dtype", NARROW)
def test_functions_are_as_near_as_the_type_allows(dtype: str) -> None:
    """LLVM has no acos, asinh or cosh of float16, and TVM's pass for bfloat16 left ``fmod`` as it was."""
    x, y = (np.abs(one) + 0.01 for one in drawn(dtype, (5, 40), (5, 40)))
    x, y = (one.clip(0, 0.98).astype(NARROW[dtype]).astype("float64") for one in (x, y))
    got = results(dtype, lambda emit, x, y: [*(emit(getattr(op, n)(x)) for n in FUNCTIONS), emit(op.mod(x, y))], x, y)
    for made, exact in zip(got, [*(function(x) for function in FUNCTIONS.values()), np.fmod(x, y)], strict=True):
        assert_is_rounded(dtype, made, exact)


@pytest.mark.parametrize("dtype", NARROW)
def test_sums_are_not_rounded_on_the_way(dtype: str) -> None:
    """Products of float16 were summed in float16: a sum of 1024 of them was off by 3 %."""
    x, y = (np.abs(one) for one in drawn(dtype, (6, 1024), (1024, 32)))
    product, one_row, total, mean = results(
        dtype,
        lambda emit, x, y: [
            emit(op.matmul(x, y)),
            emit(op.matmul(emit(op.strided_slice(x, [0], [0], [1])), y)),
            emit(op.sum(x, axis=[1])),
            emit(op.mean(y, axis=[0])),
        ],
        x,
        y,
    )
    assert_is_rounded(dtype, product, x @ y)
    assert_is_rounded(dtype, one_row, x[:1] @ y)
    assert_is_rounded(dtype, total, x.sum(1))
    assert_is_rounded(dtype, mean, y.mean(0), 2.0)  # a sum, which is rounded, and its quotient


def test_values_between_ops_of_float16_are_rounded() -> None:
    """Whole numbers that float32 holds and float16 does not."""
    x = np.arange(2000.0, 2064.0).reshape(2, 32)
    (got,) = results("float16", lambda emit, x, y: [emit(op.subtract(emit(op.add(x, y)), y))], x, np.full((2, 32), 1e3))
    summed = (x + 1e3).astype("float16").astype("float64")
    np.testing.assert_array_equal(got, summed - 1e3)
    assert not np.array_equal(got, x)


def test_what_is_rounded_to_bfloat16_is_computed_once(caplog: pytest.LogCaptureFixture) -> None:
    """TVM wrote the value out for each use by the arithmetic that rounds it: names that came twice broke its passes."""
    caplog.set_level(logging.WARNING, "eqsat_layout")
    (x,) = drawn("bfloat16", (16, 256))
    got = results(
        "bfloat16", lambda emit, x, y: [emit(op.nn.silu(x)), emit(op.nn.gelu(x)), emit(op.log_add_exp(x, x))], x, x
    )
    assert not caplog.records
    assert_is_rounded("bfloat16", got[0], x / (1 + np.exp(-x)), 2.0)
    assert_is_rounded("bfloat16", got[2], x + np.log(2), 2.0)
