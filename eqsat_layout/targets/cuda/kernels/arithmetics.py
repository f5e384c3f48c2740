"""What tensor cores multiply: instructions, and how operands become theirs.

In: a name. Out: the PTX instruction, its steps, and the operands that it takes. An operand in shared memory lies in
units of 16 bytes; every instruction here takes two of them along the steps, so all of them share one way to load.

``float32`` is the product of floats that are cut into two of tensorfloat32 each: high by high and the two mixed ones
("3xTF32"; Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32
theoretical peak performance", 2022). The low by low product is below the rounding of a float. High by high is added
last, to sums of the small ones: so nothing small is lost to what is large already.

Bytes are multiplied exactly: sums of 32 bits, which PTX has as bits without a sign, wrap around as those of the
network do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

UNIT: Final = 16
"""Bytes."""


@dataclass(frozen=True)
class Arithmetic:
    """``operand``: the dtype in shared memory. ``products``: instructions for one product. ``sums``: their dtype."""

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

    @property
    def steps(self) -> int:
        """The steps of the reduction that one instruction does."""
        return 2 * self.unit

    @property
    def unit(self) -> int:
        """Elements of a unit of shared memory."""
        return UNIT // self.operand_bytes


_TF32: Final = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"

ARITHMETICS: Final = {
    one.name: one
    for one in (
        Arithmetic("float16", "float16", 2, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
        Arithmetic("bfloat16", "bfloat16", 2, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
        Arithmetic("tensorfloat32", "float32", 4, _TF32),
        Arithmetic("float32", "float32", 4, _TF32, products=3),
        Arithmetic("int8", "int8", 1, "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", sums="uint32"),
        Arithmetic("uint8", "uint8", 1, "mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32", sums="uint32"),
    )
}
