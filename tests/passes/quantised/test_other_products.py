"""Products that are left as they are: what they multiply is not what bytes stand for, or too much for 32 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from passes.quantised.byte_programs import (
    CHANNELS,
    OUTPUTS,
    Emit,
    bytes_of,
    checked,
    convolution,
    module_of,
    number,
    products_of,
    quantised,
    rounded,
    stands_for,
    weights,
)
from tvm import relax
from tvm.relax import op

from eqsat_layout.notes import Notes
from eqsat_layout.passes.prepare import prepare


def _refused(name: str) -> tvm.IRModule:
    def body(emit: Emit, x: Any) -> Any:
        if name == "weights far from their zero":
            return convolution(emit, rounded(emit, x), weights(emit, OUTPUTS, CHANNELS, 3, 3, dtype="uint8", zero=3))
        if name == "scales along the inputs":
            scale, zero = np.linspace(0.1, 0.2, CHANNELS), [0] * CHANNELS
            w = weights(emit, OUTPUTS, CHANNELS, 3, 3, scale=scale, zero=zero, axis=1)
            return convolution(emit, rounded(emit, x), w)
        if name == "a scale that is infinite":
            return convolution(emit, rounded(emit, x), weights(emit, OUTPUTS, CHANNELS, 3, 3, scale=np.inf))
        if name == "depthwise":
            return convolution(emit, rounded(emit, x), weights(emit, CHANNELS, 1, 3, 3), groups=CHANNELS)
        if name == "scales of each channel of the data":
            scale, zero = number(0.1), relax.const(np.zeros(CHANNELS, "uint8"), "uint8")
            scale = relax.const(np.full(CHANNELS, 0.1, "float32"), "float32")
            values = emit(op.quantize(x, scale, zero, axis=1, out_dtype="uint8"))
            data = stands_for(emit, values, scale, zero)
            return convolution(emit, data, weights(emit, OUTPUTS, CHANNELS, 3, 3))
        if name == "weights that are worked out":
            return op.matmul(rounded(emit, x), rounded(emit, emit(op.permute_dims(x, [0, 1, 3, 2]))))
        return convolution(emit, x, weights(emit, OUTPUTS, CHANNELS, 3, 3))

    return module_of((1, CHANNELS, 4, 4), body)


def _of_whole_numbers(emit: Emit, x: Any) -> Any:
    """What is multiplied before it is added up in 32 bits."""
    tripled = emit(op.multiply(emit(op.astype(quantised(emit, x), "int32")), relax.const(3, "int32")))
    return op.matmul(tripled, emit(op.astype(bytes_of(8, 4), "int32")), out_dtype="int32")


def _of_a_vector(emit: Emit, x: Any) -> Any:
    row = emit(op.reshape(rounded(emit, x), [16]))
    return op.matmul(row, weights(emit, 16, 4))


def _reversed(emit: Emit, x: Any) -> Any:
    """A slice of the shape of what it is taken of."""
    turned = emit(op.strided_slice(weights(emit, 8, 4), [0], [-1], [-9], [-1]))
    return op.matmul(rounded(emit, x), turned)


def _scaled_by_data(emit: Emit, x: Any) -> Any:
    own = emit(op.multiply(emit(op.astype(bytes_of(8, 4), "float32")), emit(op.max(x))))
    return op.matmul(rounded(emit, x), own)


def _with_a_zero_that_was_a_bool(emit: Emit, x: Any) -> Any:
    own = emit(op.astype(emit(op.astype(emit(op.max(x)), "uint8")), "bool"))
    data = emit(op.subtract(emit(op.astype(quantised(emit, x), "float32")), emit(op.astype(own, "float32"))))
    return op.matmul(data, weights(emit, 8, 4))


def _with_scales(data: float, own: float) -> Callable[[Emit, Any], Any]:
    """Bytes times them overflow, or their product vanishes."""

    def body(emit: Emit, x: Any) -> Any:
        return op.matmul(
            stands_for(emit, quantised(emit, x), number(data), number(3, "uint8")), weights(emit, 8, 4, scale=own)
        )

    return body


def _with_a_large_zero(zero: int, dtype: str) -> Callable[[Emit, Any], Any]:
    def body(emit: Emit, x: Any) -> Any:
        both = number(0.05), relax.const(zero, "int32")
        values = emit(op.quantize(x, *both, axis=1, out_dtype=dtype))
        return op.matmul(stands_for(emit, values, *both), weights(emit, 8, 4))

    return body


@pytest.mark.parametrize(
    "body",
    [
        _of_whole_numbers,
        _of_a_vector,
        _reversed,
        _scaled_by_data,
        _with_a_large_zero(256, "uint8"),
        _with_a_large_zero(200, "int8"),
        _with_a_zero_that_was_a_bool,
        _with_scales(0.0, 3e38),
        _with_scales(1e-22, 1e-22),
        _with_scales(1e30, 1e30),
    ],
)
def test_what_bytes_do_not_stand_for(body: Callable[[Emit, Any], Any]) -> None:
    """Each was taken for a product of bytes, with other numbers, or ended in an error."""
    checked(module_of((2, 8), body), products=0)


def test_bytes_that_wrap_around_are_themselves() -> None:
    def body(emit: Emit, x: Any) -> Any:
        less = emit(op.subtract(quantised(emit, x), relax.const(100, "uint8")))
        return op.matmul(emit(op.astype(less, "int32")), emit(op.astype(bytes_of(8, 4), "int32")), out_dtype="int32")

    checked(module_of((2, 8), body))


@pytest.mark.parametrize(
    "name",
    [
        "weights far from their zero",
        "scales along the inputs",
        "a scale that is infinite",
        "depthwise",
        "scales of each channel of the data",
        "weights that are worked out",
        "data that is float",
    ],
)
def test_what_stays(name: str) -> None:
    checked(_refused(name), products=0)


def test_sums_that_need_more_than_32_bits_stay() -> None:
    def body(emit: Emit, x: Any) -> Any:
        w = relax.const(np.full((1 << 17, 4), 127, "int8"), "int8")
        return op.matmul(rounded(emit, x), stands_for(emit, w, number(0.1), number(0, "int8")))

    checked(module_of((1, 1 << 17), body), products=0)


def test_targets_without_such_products_get_floats() -> None:
    def body(emit: Emit, x: Any) -> Any:
        return convolution(emit, rounded(emit, x), weights(emit, OUTPUTS, CHANNELS, 3, 3))

    mod = module_of((1, CHANNELS, 4, 4), body)
    assert products_of(prepare(mod, Notes())) == 0
    assert products_of(prepare(mod, Notes(), has_byte_products=True)) == 1
