"""What tensor cores multiply: instructions, and how operands become theirs.

In: a name. Out: the PTX instruction, its steps, and the operands that it takes. An operand in shared memory lies in
units of 16 bytes; every instruction here takes two of them along the steps, so all of them share one way to load.

``float32`` is the product of floats that are cut into two of tensorfloat32 each: high by high and the two mixed ones
("3xTF32"; Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32
theoretical peak performance", 2022). The low by low product is below the rounding of a float. High by high is added
last, to sums of the small ones: so nothing small is lost to what is large already.

Bytes are multiplied exactly, with signs and without: sums of 32 bits, which PTX has as bits without a sign, wrap around
as those of the network do. What lies in shared memory are their bits, whichever of the two they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

UNIT: Final = 16
"""Bytes."""


@dataclass(frozen=True)
class Arithmetic:
    """``operand``: the dtype in shared memory. ``products``: instructions for one product. ``sums``: their dtype.

    ``name``: what :func:`common_type` says of its operands, or how floats are cut.
    """

    name: str
    operand: str
    operand_bytes: int
    instruction: str
    products: int = 1
    sums: str = "float32"

    @property
    def is_exact(self) -> bool:
        """In whatever order it adds up."""
        return self.sums == "uint32"

    def takes(self, dtype: str) -> bool:
        """Elements of this type are its operands' as they lie in memory."""
        return dtype == self.operand or (dtype in _BYTES and self.operand in _BYTES)

    @property
    def steps(self) -> int:
        """The steps of the reduction that one instruction does."""
        return 2 * self.unit

    @property
    def unit(self) -> int:
        """Elements of a unit of shared memory."""
        return UNIT // self.operand_bytes


_BYTES: Final = {"int8": "s8", "uint8": "u8"}
"""What PTX calls them."""


def common_type(left: str, right: str) -> str:
    """In which both operands of a product are exact; of bytes with signs and without, the types of both."""
    if left == right:
        return left
    return f"{left} {right}" if {left, right} <= set(_BYTES) else "float32"


def _of_bytes(left: str, right: str) -> Arithmetic:
    types = f"{_BYTES[left]}.{_BYTES[right]}"
    instruction = f"mma.sync.aligned.m16n8k32.row.col.s32.{types}.s32"
    return Arithmetic(common_type(left, right), left, 1, instruction, sums="uint32")


_TF32: Final = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"

ARITHMETICS: Final = {
    one.name: one
    for one in (
        Arithmetic("float16", "float16", 2, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
        Arithmetic("bfloat16", "bfloat16", 2, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
        Arithmetic("tensorfloat32", "float32", 4, _TF32),
        Arithmetic("float32", "float32", 4, _TF32, products=3),
        *(_of_bytes(left, right) for left in _BYTES for right in _BYTES),
    )
}
