"""Bytes in place of seconds, for who pays for them: power, or a bus that others use.

In: a cost model in seconds. Out: :class:`TrafficCosts`, under which the plan that moves least is best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eqsat_layout.cost.model import RESULT, CostModel, dtype_bytes, touched_bytes
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.maps import Format, Formats
from eqsat_layout.tir.computation import SYMBOL_SIZE

_TIES: Final = 1e-6
"""Of seconds: they decide among plans that move the same, and hardly count beside bytes."""


@dataclass(frozen=True)
class TrafficCosts:
    """A :class:`~eqsat_layout.cost.model.CostModel`: the seconds that bytes alone take at ``bandwidth``.

    Of plans that move the same the one that ``time`` finds fastest is best. Each kernel reads what it touches once and
    writes its result once; a target whose caches keep less says so in a subclass.
    """

    time: CostModel
    bandwidth: float

    def run(self, op: Signature, operands: Formats, results: Formats, *, fused: frozenset[int] = frozenset()) -> float:
        """What comes in registers, or stays there, does not count."""
        moved = 0.0 if op.parts else self.moved(op, operands, results, fused)
        return moved / self.bandwidth + _TIES * self.time.run(op, operands, results, fused=fused)

    def convert(self, tensor: TensorType, source: Format, target: Format, *, fused: bool = False) -> float:
        """Read and written, but for what a kernel beside it loads or stores in any case."""
        size = dtype_bytes(tensor.dtype)
        if fused:
            moved = abs(source.elements(SYMBOL_SIZE) - target.elements(SYMBOL_SIZE)) * size
        else:
            moved = self.copied(source, target, size)
        return moved / self.bandwidth + _TIES * self.time.convert(tensor, source, target, fused=fused)

    def constant(self, tensor: TensorType, fmt: Format) -> float:
        """Who reads a copy counts it."""
        return _TIES * self.time.constant(tensor, fmt)

    def moved(self, op: Signature, operands: Formats, results: Formats, fused: frozenset[int]) -> float:
        """Bytes of one run."""
        formats = [None if i in fused else fmt for i, fmt in enumerate(operands)]
        formats += [None if RESULT in fused else fmt for fmt in results]
        known = zip((*op.operands, *op.results), formats, strict=True)
        return sum(
            touched_bytes(op, i, fmt, SYMBOL_SIZE) for i, (ty, fmt) in enumerate(known) if ty is not None and fmt
        )

    def copied(self, source: Format, target: Format, element_bytes: float) -> float:
        """Bytes of a kernel that only copies."""
        return (source.elements(SYMBOL_SIZE) + target.elements(SYMBOL_SIZE)) * element_bytes
