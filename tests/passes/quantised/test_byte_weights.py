"""Weights that bytes stand for stay bytes where a few rows are multiplied by them; the numbers are what they were."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tvm
from passes.quantised.byte_programs import RNG, Emit, module_of, number, rounded, run
from tvm import relax
from tvm.relax import op

from eqsat_layout.notes import Notes
from eqsat_layout.passes.prepare import prepare
from eqsat_layout.passes.quantised.byte_weights import keep_byte_weights
from eqsat_layout.planning.compile import compile as compile_module
from eqsat_layout.tir.structural import nodes_of

STEPS, COLUMNS, ROWS = 256, 144, 8


def by_channel(emit: Emit, dtype: str = "int8", zero: int = 0, columns: int = COLUMNS) -> Any:
    """Transposed, as ``Gemm`` has them: a scale for each row."""
    low, high = (-128, 128) if dtype == "int8" else (0, 256)
    values = relax.const(RNG.integers(low, high, (columns, STEPS)).astype(dtype), dtype)
    scale = relax.const(RNG.uniform(0.01, 0.05, columns).astype("float32"), "float32")
    zeros = relax.const(np.full(columns, zero, dtype), dtype)
    made = emit(op.dequantize(values, scale, zeros, axis=0, out_dtype="float32"))
    return emit(op.permute_dims(made, [1, 0]))


def by_blocks(emit: Emit, block: int) -> Any:
    """A scale for so many elements of a column."""
    values = emit(op.astype(relax.const(RNG.integers(-8, 8, (STEPS, COLUMNS)).astype("int8"), "int8"), "float32"))
    scales = relax.const(RNG.uniform(0.01, 0.05, (STEPS // block, COLUMNS)).astype("float32"), "float32")
    return emit(op.multiply(values, emit(op.repeat(scales, block, 0))))


def of_four_bits(emit: Emit, block: int, *, low: int = 0, apart: int = 16) -> Any:
    """Numbers of at most ``apart`` in a row, which begin elsewhere in every block and column: zeros of their own."""
    firsts = RNG.integers(low, 128 - apart + 1, (STEPS // block, 1, COLUMNS)) if low else np.full(1, -8)
    numbers = (firsts + RNG.integers(0, apart, (STEPS // block, block, COLUMNS))).reshape(STEPS, COLUMNS)
    values = emit(op.astype(relax.const(numbers.astype("int8"), "int8"), "float32"))
    scales = relax.const(RNG.uniform(0.01, 0.05, (STEPS // block, COLUMNS)).astype("float32"), "float32")
    return emit(op.multiply(values, emit(op.repeat(scales, block, 0))))


def of_one(emit: Emit) -> Any:
    values = relax.const(RNG.integers(-128, 128, (STEPS, COLUMNS)).astype("int8"), "int8")
    return emit(op.dequantize(values, number(0.02), number(0, "int8"), out_dtype="float32"))


KINDS = {
    "by channel": by_channel,
    "unsigned": lambda emit: by_channel(emit, "uint8", 128),
    "by blocks of 32": lambda emit: by_blocks(emit, 32),
    "4 bits": lambda emit: of_four_bits(emit, 32),
    "4 bits, zeros anywhere": lambda emit: of_four_bits(emit, 32, low=-128),
    "4 bits, a scale for each column": lambda emit: of_four_bits(emit, STEPS, low=-128),
    "by halves": lambda emit: by_blocks(emit, STEPS // 2),
    "one scale": of_one,
    "all of them": lambda emit: emit(op.strided_slice(of_one(emit), [0], [0], [STEPS])),
}
STAY = {
    "scales of a few elements": lambda emit: by_blocks(emit, 8),
    "far from their zero": lambda emit: by_channel(emit, "uint8", 3),
    "columns that fill no vector": lambda emit: by_channel(emit, columns=141),
}


def product(weights: Any, *rows: int) -> tvm.IRModule:
    return module_of((*rows, STEPS), lambda emit, x: op.matmul(x, weights(emit)))


def are_bytes(mod: tvm.IRModule) -> bool:
    return any(isinstance(function, tvm.tirx.PrimFunc) for function in mod.functions.values())


@pytest.mark.parametrize("name", KINDS)
def test_weights_that_stay_bytes(name: str) -> None:
    mod = product(KINDS[name], 2)
    kept = keep_byte_weights(mod, ROWS)
    relax.analysis.well_formed(kept)
    assert are_bytes(kept)
    data = RNG.standard_normal((2, STEPS)).astype("float32")
    expected = run(mod, data)
    np.testing.assert_allclose(run(kept, data), expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def constant_bytes(mod: tvm.IRModule) -> int:
    """Of the weights as the product reads them."""
    types = [const.ty for const in nodes_of(mod["main"], tvm.ir.GenericConst)]
    return max(math.prod(map(int, ty.shape)) for ty in types if str(ty.dtype) in ("int8", "uint8"))


@pytest.mark.parametrize(
    ("weights", "each"),
    [
        (lambda emit: of_four_bits(emit, 32), 0.5),
        (lambda emit: of_four_bits(emit, 32, low=-128), 0.5),
        (lambda emit: of_four_bits(emit, 32, low=-128, apart=17), 1.0),
        (lambda emit: by_channel(emit), 1.0),
    ],
)
def test_weights_of_four_bits_lie_two_to_a_byte(weights: Any, each: float) -> None:
    """They were read as bytes: one token of six gated layers took 1.5 times as long."""
    kept = keep_byte_weights(product(weights, 2), ROWS)
    assert constant_bytes(kept) == each * STEPS * COLUMNS


@pytest.mark.parametrize("most", [7, 14])
def test_weights_of_four_bits_that_are_zero_leave_nothing(most: int) -> None:
    """What is added to half a byte was multiplied by the scale apart and rounded: one element of 1e6 gave -.002."""
    numbers = np.zeros((STEPS, COLUMNS), "int8")
    numbers[0], numbers[1] = most, -1

    def weights(emit: Emit) -> Any:
        values = emit(op.astype(relax.const(numbers, "int8"), "float32"))
        scales = relax.const(RNG.uniform(0.01, 0.05, (STEPS // 32, COLUMNS)).astype("float32"), "float32")
        return emit(op.multiply(values, emit(op.repeat(scales, 32, 0))))

    data = np.zeros((2, STEPS), "float32")
    data[:, 7] = 1e6
    kept = keep_byte_weights(product(weights, 2), ROWS)
    assert constant_bytes(kept) == STEPS * COLUMNS // 2
    assert not run(kept, data).any()


@pytest.mark.parametrize("name", STAY)
def test_weights_that_become_floats(name: str) -> None:
    mod = product(STAY[name], 2)
    assert keep_byte_weights(mod, ROWS).same_as(mod)


@pytest.mark.parametrize("rows", [(1,), (2, 4), (1, 1, 3)])
def test_rows_of_any_rank(rows: tuple[int, ...]) -> None:
    mod = product(by_channel, *rows)
    data = RNG.standard_normal((*rows, STEPS)).astype("float32")
    expected = run(mod, data)
    np.testing.assert_allclose(run(keep_byte_weights(mod, ROWS), data), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("rows", [1, 5, 40])
def test_rows_of_any_number(rows: int) -> None:
    """Programs for one token of a language model have open lengths."""
    batch, length = (tvm.tirx.Var(name, "int64") for name in ("batch", "length"))
    mod = module_of((batch, length, STEPS), lambda emit, x: op.matmul(x, by_channel(emit)))
    kept = keep_byte_weights(mod, ROWS)
    assert are_bytes(kept)
    data = RNG.standard_normal((1, rows, STEPS)).astype("float32")
    machine = relax.VirtualMachine(compile_module(mod, "llvm"), tvm.cpu())
    expected = run(mod, data)
    np.testing.assert_allclose(machine["main"](tvm.runtime.tensor(data)).numpy(), expected, rtol=1e-4, atol=1e-3)


def test_many_rows_are_multiplied_by_floats() -> None:
    mod = product(by_channel, ROWS + 1)
    assert keep_byte_weights(mod, ROWS).same_as(mod)
    batch = tvm.tirx.Var("batch", "int64")
    mod = module_of((batch, ROWS + 1, STEPS), lambda emit, x: op.matmul(x, by_channel(emit)))
    assert keep_byte_weights(mod, ROWS).same_as(mod)


def test_data_that_are_bytes_come_first() -> None:
    """Then both are multiplied as bytes, where the target can."""
    mod = module_of((2, STEPS), lambda emit, x: op.matmul(rounded(emit, x), by_channel(emit)))
    assert not are_bytes(prepare(mod, Notes(), has_byte_products=True, byte_rows=ROWS))
    assert are_bytes(prepare(mod, Notes(), byte_rows=ROWS))


def test_a_program_keeps_them() -> None:
    """Planned, joined with what follows and run."""
    mod = module_of((1, STEPS), lambda emit, x: op.nn.relu(emit(op.matmul(x, by_blocks(emit, 32)))))
    data = RNG.standard_normal((1, STEPS)).astype("float32")
    expected = run(mod, data)
    machine = relax.VirtualMachine(compile_module(mod, "llvm"), tvm.cpu())
    np.testing.assert_allclose(machine["main"](tvm.runtime.tensor(data)).numpy(), expected, rtol=1e-4, atol=1e-4)
