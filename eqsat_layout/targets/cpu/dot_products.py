"""Dot products of four bytes as one instruction (VNNI).

In: calls of an op of our own in scheduled PrimFuncs, scalar or vector. Out: LLVM's intrinsics for x86 (VPDPBUSD: Intel
64 and IA-32 Architectures Software Developer's Manual, volume 2), or shifts and products for vectors of other sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.tir.intrinsics import is_call, pure_op
from eqsat_layout.tir.structural import mapped_body, primfunc_pass

FEATURES: Final = ("avx512vnni", "avxvnni")
"""What LLVM calls the instruction, in long vectors and in those of AVX2."""

BYTES_OF_WORD: Final = 4
"""Of a word."""
_BITS: Final = 8
_LANES: Final = (16, 8, 4)
"""Of the vectors that the instruction takes."""
_OP: Final = pure_op("byte_products", "a sum and four products, of unsigned by signed bytes of two words")


def byte_products(total: Any, unsigned: Any, signed: Any) -> Any:
    """``total`` and the products of the four bytes of two words of 32 bits; all three are int32."""
    return tvm.ir.Call(_OP, [total, unsigned, signed], ret_ty=total.ty)


def lower_byte_products() -> Any:
    """A pass, after loops became vectors."""
    return primfunc_pass("LowerByteProducts", _lowered)


def _lowered(func: Any) -> Any:
    return mapped_body(func, (tvm.ir.Call, _on_call))


def _on_call(call: Any) -> Any:
    if not is_call(call, _OP.name):
        return call
    dtype = str(call.ty.dtype)
    lanes = int(dtype.partition("x")[2] or 1)
    size = next((size for size in _LANES if lanes % size == 0), 0)
    if not size:
        return _written_out(call.args, lanes)
    if size == lanes:
        return _instruction(call.args, lanes)
    starts = range(0, lanes, size)
    parts = [_instruction([_part(value, start, size) for value in call.args], size) for start in starts]
    return tirx.Shuffle(parts, [tirx.IntImm("int32", lane) for lane in range(lanes)])


def _part(vector: Any, start: int, size: int) -> Any:
    if isinstance(vector, tirx.Broadcast):
        return tirx.Broadcast(vector.value, size)
    return tirx.Shuffle([vector], [tirx.IntImm("int32", lane) for lane in range(start, start + size)])


def _instruction(operands: Sequence[Any], lanes: int) -> Any:
    total, *factors = operands
    name = f"llvm.x86.avx512.vpdpbusd.{lanes * BYTES_OF_WORD * _BITS}"
    bytes_of = (tirx.reinterpret(f"int8x{lanes * BYTES_OF_WORD}", value) for value in factors)
    return tirx.call_llvm_pure_intrin(f"int32x{lanes}", name, total, *bytes_of)


def _written_out(operands: Sequence[Any], lanes: int) -> Any:
    """By bytes that are widened. Of shifts and masks LLVM 22 makes vectors of both, and loses the masked lanes."""
    total, unsigned, signed = operands
    count = lanes * BYTES_OF_WORD
    kinds = ((unsigned, "uint8"), (signed, "int8"))
    own, other = (tirx.Cast(f"int32x{count}", tirx.reinterpret(f"{dtype}x{count}", word)) for word, dtype in kinds)
    products = own * other
    for byte in range(BYTES_OF_WORD):
        total = total + tirx.Shuffle([products], [tirx.IntImm("int32", at) for at in range(byte, count, BYTES_OF_WORD)])
    return total
