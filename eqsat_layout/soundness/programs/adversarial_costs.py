"""A cost model that hashes to random costs, and prefers what is slow.

In: the questions of the extraction. Out: less for what costs more. Every plan in the e-graph is a right one, even the
costliest: programs are optimised under this model now and then, and compared like the others.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from eqsat_layout.cost.model import Roofline
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.maps import Format, Formats

_SCALE = 1e-12


@dataclass(frozen=True)
class AdversarialCosts:
    """The roofline upside down, with chance in it: ``seed`` draws a factor from 1 to 64 for each kernel and copy."""

    seed: int = 0

    def run(self, op: Signature, operands: Formats, results: Formats, *, fused: frozenset[int] = frozenset()) -> float:
        """Less, the longer the kernel takes."""
        seconds = Roofline().run(op, operands, results, fused=fused)
        return _SCALE / (seconds + _SCALE) * self._factor(op.name, operands, results, sorted(fused))

    def convert(self, tensor: TensorType, source: Format, target: Format, *, fused: bool = False) -> float:
        """Copies cost next to nothing."""
        return _SCALE * self._factor(tensor.shape, source, target, fused)

    def _factor(self, *what: object) -> float:
        return float(1 << zlib.crc32(f"{self.seed} {what}".encode()) % 7)
