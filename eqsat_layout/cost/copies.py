"""Copies in place of seconds, for who counts launches, or trusts a model of seconds less than a program without copies.

In: a cost model in seconds. Out: :class:`FewestCopies`, under which the plan that copies least often is best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eqsat_layout.cost.model import CostModel
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.maps import Format, Formats

COPY: Final = 1.0
"""Seconds that a copy counts, which is more than any program saves by one."""


@dataclass(frozen=True)
class FewestCopies:
    """A :class:`~eqsat_layout.cost.model.CostModel`: that of ``time``, and :data:`COPY` for kernels that only copy.

    Of plans with as many copies the one that ``time`` finds fastest is best. A conversion that a kernel does while it
    loads or stores is no copy.
    """

    time: CostModel

    def run(self, op: Signature, operands: Formats, results: Formats, *, fused: frozenset[int] = frozenset()) -> float:
        """Its seconds."""
        return self.time.run(op, operands, results, fused=fused)

    def convert(self, tensor: TensorType, source: Format, target: Format, *, fused: bool = False) -> float:
        """Dearer than anything else where it is a kernel of its own."""
        return self.time.convert(tensor, source, target, fused=fused) + (0.0 if fused else COPY)

    def constant(self, tensor: TensorType, fmt: Format) -> float:
        """Laid out before the program runs."""
        return self.time.constant(tensor, fmt)
