"""Products of what bytes stand for are products of these bytes, and nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from compare import stock_results
from effort import tries
from hypothesis import given, settings
from hypothesis import strategies as st
from passes.quantised.byte_programs import (
    CHANNELS,
    OUTPUTS,
    RNG,
    SCALES,
    Emit,
    bytes_of,
    checked,
    convolution,
    module_of,
    number,
    products_of,
    rounded,
    run,
    stands_for,
    weights,
)
from tvm import relax, tirx
from tvm.relax import op

from eqsat_layout.passes.quantised.byte_products import multiply_bytes
from eqsat_layout.tir.structural import nodes_of


@pytest.mark.parametrize("zero", [0, 3, 255])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_borders_hold_what_stands_for_zero(zero: int, dtype: str) -> None:
    zero = zero if dtype == "uint8" else zero - 128

    def body(emit: Emit, x: Any) -> Any:
        return convolution(emit, rounded(emit, x, zero=zero, dtype=dtype), weights(emit, OUTPUTS, CHANNELS, 3, 3))

    checked(module_of((1, CHANNELS, 5, 6), body))


@pytest.mark.parametrize(
    ("channels", "how", "given"),
    [
        (CHANNELS, {}, {"scale": SCALES, "zero": [0] * OUTPUTS}),
        (CHANNELS, {}, {"dtype": "uint8", "zero": 128}),
        (CHANNELS, {"strides": 2, "dilation": 2}, {}),
        (3, {}, {}),  # channels that fill no word
        (CHANNELS, {"padding": [0, 1, 2, 0]}, {}),
        (CHANNELS, {"data_layout": "NHWC", "kernel_layout": "HWIO"}, {"scale": SCALES, "zero": [0] * 6, "axis": 3}),
    ],
)
def test_convolutions(channels: int, how: dict[str, Any], given: dict[str, Any]) -> None:
    is_last = how.get("data_layout") == "NHWC"
    shape = (3, 3, channels, OUTPUTS) if is_last else (OUTPUTS, channels, 3, 3)

    def body(emit: Emit, x: Any) -> Any:
        return convolution(emit, rounded(emit, x), weights(emit, *shape, **given), **how)

    checked(module_of((2, 6, 7, channels) if is_last else (2, channels, 6, 7), body))


def test_groups() -> None:
    def body(emit: Emit, x: Any) -> Any:
        return convolution(emit, rounded(emit, x), weights(emit, OUTPUTS, 4, 3, 3), groups=2)

    checked(module_of((1, CHANNELS, 5, 5), body))


def test_products_of_matrices_through_moves() -> None:
    """Weights that are transposed, data that gets another shape."""

    def body(emit: Emit, x: Any) -> Any:
        w = weights(emit, OUTPUTS, 12, scale=SCALES, zero=[0] * OUTPUTS)
        turned = emit(op.permute_dims(w, [1, 0]))
        return op.matmul(emit(op.reshape(rounded(emit, x), [4, 12])), turned)

    checked(module_of((4, 3, 4), body))


def dynamic(emit: Emit, x: Any, dtype: str) -> tuple[Any, Any, Any]:
    """Bytes, their scale and zero as they are worked out where a program runs."""
    least, largest = emit(op.min(x)), emit(op.max(x))
    scale = emit(op.divide(emit(op.subtract(largest, least)), number(255)))
    zero = emit(op.round(emit(op.divide(emit(op.negative(least)), scale))))
    shift = 0 if dtype == "uint8" else -128
    zero = emit(op.astype(emit(op.add(zero, number(shift))), dtype))
    return emit(op.quantize(x, scale, zero, axis=0, out_dtype=dtype)), scale, zero


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("as_sums", [True, False])
def test_zeros_that_are_worked_out(dtype: str, as_sums: bool) -> None:
    """``DynamicQuantizeLinear`` and ``MatMulInteger``, and floats in their place."""
    kind = "int32" if as_sums else "float32"

    def body(emit: Emit, x: Any) -> Any:
        values, scale, zero = dynamic(emit, x, dtype)
        data = emit(op.subtract(emit(op.astype(values, kind)), emit(op.astype(zero, kind))))
        w = relax.const(RNG.integers(-128, 128, (12, OUTPUTS)).astype("int8"), "int8")
        own = emit(op.subtract(emit(op.astype(w, kind)), emit(op.astype(number(0, "int8"), kind))))
        total = emit(op.matmul(data, own, out_dtype=kind))
        return op.multiply(emit(op.astype(total, "float32")) if as_sums else total, scale)

    checked(module_of((5, 12), body))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("channels", [CHANNELS, 3])
@pytest.mark.parametrize("padding", [0, [1, 0, 2, 1]])
def test_zeros_that_are_worked_out_around_data(dtype: str, channels: int, padding: Any) -> None:
    """``ConvInteger``: was computed in whole numbers of 32 bits, 4 times as long."""

    def body(emit: Emit, x: Any) -> Any:
        values, scale, zero = dynamic(emit, x, dtype)
        data = emit(op.subtract(emit(op.astype(values, "int32")), emit(op.astype(zero, "int32"))))
        w = relax.const(RNG.integers(-128, 128, (OUTPUTS, channels, 3, 3)).astype("int8"), "int8")
        own = emit(op.astype(w, "int32"))
        total = emit(convolution(emit, data, own, padding=padding, out_dtype="int32"))
        return op.multiply(emit(op.astype(total, "float32")), scale)

    checked(module_of((2, channels, 5, 6), body))


@pytest.mark.parametrize(("dtype", "of_zero", "chosen"), [("uint8", "int8", op.min), ("int8", "uint8", op.max)])
@pytest.mark.parametrize("padding", [0, 1])
def test_zeros_that_are_no_such_byte(dtype: str, of_zero: str, chosen: Any, padding: int) -> None:
    """The border held what is left of the zero in 8 bits."""

    def body(emit: Emit, x: Any) -> Any:
        zero = emit(chosen(emit(op.astype(x, of_zero))))
        data = emit(op.subtract(emit(op.astype(x, "int32")), emit(op.astype(zero, "int32"))))
        own = emit(op.astype(bytes_of(OUTPUTS, CHANNELS, 3, 3), "int32"))
        return convolution(emit, data, own, padding=padding, out_dtype="int32")

    checked(module_of((1, CHANNELS, 5, 6), body, dtype), products=0 if padding else 1)


def test_bytes_with_other_readers() -> None:
    """A sum reads what the same bytes stand for; signed ones become unsigned for all of them."""

    def body(emit: Emit, x: Any) -> Any:
        data = rounded(emit, x, zero=-5, dtype="int8")
        made = emit(convolution(emit, data, weights(emit, CHANNELS, CHANNELS, 3, 3)))
        return op.add(made, data)

    written = checked(module_of((1, CHANNELS, 5, 5), body))
    quantised = [call for call in nodes_of(written["main"], tvm.ir.Call) if call.op == tvm.ir.Op.get("relax.quantize")]
    assert [str(call.ty.dtype) for call in quantised] == ["uint8"]


@pytest.mark.parametrize("zero", [0, -5])
def test_targets_that_multiply_signed_bytes_keep_them(zero: int) -> None:
    """Nothing stands around the data then where their zero is 0, and nothing is taken off sums."""

    def body(emit: Emit, x: Any) -> Any:
        data = rounded(emit, x, zero=zero, dtype="int8")
        return convolution(emit, data, weights(emit, OUTPUTS, CHANNELS, 3, 3))

    mod = module_of((1, CHANNELS, 5, 6), body)
    written = multiply_bytes(mod, may_have_signs=True)
    x = RNG.uniform(-6, 6, (1, CHANNELS, 5, 6)).astype("float32")
    np.testing.assert_allclose(run(written, x), run(mod, x), rtol=1e-5, atol=1e-4)
    names = [str(call.op.name) for call in nodes_of(written["main"], tvm.ir.Call) if isinstance(call.op, tvm.ir.Op)]
    assert ("relax.subtract" in names, "relax.nn.pad" in names) == (zero != 0, zero != 0)


@pytest.mark.parametrize(
    ("dtype", "scale", "is_taken"), [("float32", 600, True), ("float16", 600, False), ("float16", 0.5, True)]
)
def test_halves_that_may_be_infinite_stay(dtype: str, scale: float, is_taken: bool) -> None:
    """Infinities of both signs added up are not a number; their bytes gave one."""
    weights = relax.const(np.ones((8, 3), "int8"), "int8")

    def body(emit: Emit, x: Any) -> Any:
        data = emit(op.multiply(emit(op.astype(x, dtype)), number(scale, dtype)))
        return op.matmul(data, emit(op.astype(weights, dtype)))

    mod = module_of((2, 8), body, "uint8")
    assert multiply_bytes(mod).same_as(mod) != is_taken


def test_signed_bytes_that_are_a_result() -> None:
    """What bytes stand for was used outside of its block, where it is no longer known."""

    def body(emit: Emit, x: Any) -> Any:
        return op.dequantize(
            emit(op.quantize(x, number(0.05), number(1, "int8"), axis=1, out_dtype="int8")),
            number(0.05),
            number(1, "int8"),
            axis=1,
        )

    relax.analysis.well_formed(multiply_bytes(module_of((1, 4), body)))


def test_signed_bytes_whose_size_is_matched() -> None:
    """They became unsigned ones, and a program that was right ended in an error."""
    n, rows = tirx.Var("n", "int64"), tirx.Var("rows", "int64")
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((n, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            both = number(0.05), number(3, "int8")
            values = builder.emit(op.quantize(x, *both, axis=1, out_dtype="int8"))
            matched = builder.match_cast(values, relax.TensorType([rows, 8], "int8"))
            first = builder.emit_output(op.astype(matched, "float32"))
            product = op.matmul(stands_for(builder.emit, values, *both), weights(builder.emit, 8, 4))
            second = builder.emit_output(product)
        builder.emit_func_output(relax.Tuple([first, second]))
    written = multiply_bytes(builder.get())
    assert products_of(written) == 1
    found, _ = stock_results(written, np.array([[-3.0, -1, 0, 1, 2, 3, 4, 90]], "float32"))
    np.testing.assert_array_equal(found, [[-57, -17, 3, 23, 43, 63, 83, 127]])


def test_bytes_that_come_from_outside() -> None:
    def body(emit: Emit, x: Any) -> Any:
        data = stands_for(emit, x, number(0.1), number(7, "uint8"))
        return convolution(emit, data, weights(emit, OUTPUTS, CHANNELS, 3, 3))

    checked(module_of((1, CHANNELS, 4, 4), body, "uint8"))


def test_symbolic_batch() -> None:
    n = tvm.tirx.Var("n", "int64")

    def body(emit: Emit, x: Any) -> Any:
        return convolution(emit, rounded(emit, x), weights(emit, OUTPUTS, CHANNELS, 3, 3))

    assert products_of(multiply_bytes(module_of((n, CHANNELS, 4, 4), body))) == 1


@settings(max_examples=tries(9), deadline=None)
@given(st.data())
def test_any_product(data: st.DataObject) -> None:
    rank = data.draw(st.integers(2, 3))
    rows, steps, columns = data.draw(st.integers(1, 4)), 4 * data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    dtype, own = (data.draw(st.sampled_from(["uint8", "int8"])) for _ in range(2))
    zero = data.draw(st.integers(0, 255)) - (0 if dtype == "uint8" else 128)
    has_channels = data.draw(st.booleans())
    scale = RNG.uniform(0.01, 0.1, columns) if has_channels else 0.03
    weight_zero = 0 if own == "int8" else 128
    zeros = np.full(columns, weight_zero) if has_channels else weight_zero

    def body(emit: Emit, x: Any) -> Any:
        w = weights(emit, steps, columns, dtype=own, zero=zeros, scale=scale, axis=1)
        return op.matmul(rounded(emit, x, zero=zero, dtype=dtype), w)

    checked(module_of((2, rows, steps)[-rank:], body))
