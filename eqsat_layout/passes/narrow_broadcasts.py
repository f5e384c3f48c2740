"""Vectors of one bfloat16 that is made of bits.

In: a PrimFunc before ``BF16StorageLegalize``, which makes buffers of bfloat16 ones of bits, but leaves such a vector in
bfloat16, and then refuses to store it: of zeros, and of what else is worked out of no element. Out: the same with
vectors of the bits.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from eqsat_layout.tir.intrinsics import is_call
from eqsat_layout.tir.structural import body_pass


def broadcast_bits() -> Any:
    """A pass."""
    return body_pass("BroadcastBits", (tirx.Broadcast, _of_bits))


def _of_bits(vector: Any) -> Any:
    one = vector.value
    if str(one.ty.dtype) != "bfloat16" or not is_call(one, "tirx.reinterpret"):
        return vector
    return tirx.reinterpret(str(vector.ty.dtype), tirx.Broadcast(one.args[0], vector.lanes))
