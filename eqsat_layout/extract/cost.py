"""What running an op and rewriting a layout cost. A roofline by default; anything with the same two methods will do.

In: an op's signature and the formats it reads and writes. Out: modelled seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.maps import Format


class CostModel(Protocol):
    """Modelled seconds; never negative. The same question always has the same answer."""

    def run(self, op: Signature, operands: Sequence[Format | None], results: Sequence[Format | None]) -> float:
        """One run of ``op`` reading and writing these formats (None for what is no tensor)."""
        ...

    def convert(self, tensor: TensorType, source: Format, target: Format) -> float:
        """A copy of ``tensor`` from one format to another; not asked where the bytes are the same already."""
        ...

    def constant(self, tensor: TensorType, fmt: Format) -> float:
        """One copy of a constant in ``fmt``, shared by its users in that format. May be missing: copies are free."""
        ...


@dataclass(frozen=True)
class Roofline:
    """Launch overhead plus the slower of memory traffic and arithmetic.

    ``bandwidth`` is bytes a second of a kernel that streams, ``rewrite_bandwidth`` of one that permutes, ``flops``
    operations a second. The defaults are those of one core of a current server CPU; they decide proportions, not
    absolute times.
    """

    bandwidth: float = 25e9
    rewrite_bandwidth: float = 12e9
    flops: float = 100e9
    launch: float = 1e-6
    symbolic_extent: int = 64

    def run(self, op: Signature, operands: Sequence[Format | None], results: Sequence[Format | None]) -> float:
        """Every operand is read once and every result written once."""
        if op.parts:
            return 0.0
        types = (*op.operands, *op.results)
        formats = (*operands, *results)
        traffic = sum(self._bytes(t, f) for t, f in zip(types, formats, strict=True) if t is not None and f is not None)
        arithmetic = op.computation.flops if op.computation is not None else 0.0
        return self.launch + max(traffic / self.bandwidth, arithmetic / self.flops)

    def convert(self, tensor: TensorType, source: Format, target: Format) -> float:
        """Both buffers pass through memory once."""
        return self.launch + (self._bytes(tensor, source) + self._bytes(tensor, target)) / self.rewrite_bandwidth

    def constant(self, tensor: TensorType, fmt: Format) -> float:
        """A copy is read from memory once more, cold."""
        return self._bytes(tensor, fmt) / self.bandwidth

    def _bytes(self, tensor: TensorType, fmt: Format) -> float:
        return fmt.elements(self.symbolic_extent) * dtype_bytes(tensor.dtype)


def dtype_bytes(dtype: str) -> float:
    """Bytes of one element."""
    if dtype == "bool":
        return 1
    digits = "".join(c if c.isdigit() else " " for c in dtype).split()
    return int(digits[0]) / 8 if digits else 4
