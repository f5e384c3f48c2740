"""Costs from measured kernels where there are any, else from a model that is brought to their scale.

In: a snapshot of the database, a model for the rest, and the ops of a program. Out: a :class:`CostModel`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from eqsat_layout.cost.database import FormatKeys, Snapshot
from eqsat_layout.cost.kernel_key import COPY, computation_digest, copy_key, kernel_key_of
from eqsat_layout.cost.measurements import Measured
from eqsat_layout.cost.model import CostModel
from eqsat_layout.errors import LayoutError
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.maps import Format, Formats

_Known = Mapping[FormatKeys, Measured]
_NOTHING: Final[_Known] = {}


class MeasuredCosts:
    """A measured kernel costs what was measured, all else what ``fallback`` says times a scale.

    The scale keeps a measured candidate comparable with a modelled one. A model errs by whole ops (it does not know
    how well a convolution is scheduled) and less among the layouts of one, so the scale of an op is the median of
    measured over modelled among its own measured layouts; without any, that among the program's other contractions (or
    other ops, if it is none); without any, that of all that was measured for the program. Copies are scaled by the
    copies measured on the machine, or by all that was measured for the program. It all follows from the snapshot and
    the program alone, so the same question always has the same answer.

    What fusion saves of a measured kernel is what ``fallback`` thinks that it saves, as seconds at the scale of copies
    or as a share of the kernel, whichever is less.
    """

    def __init__(self, known: Snapshot, fallback: CostModel, machine: str, version: str, ops: Iterable[Signature] = ()):
        """``machine`` and ``version`` are those of the records; ``ops`` are the program's."""
        self._known, self._fallback, self._machine, self._version = known, fallback, machine, version
        self._ops: dict[str, tuple[Signature, str, _Known]] = {}
        self._copies = known.kernels(machine, version, COPY)
        self._own_scales: dict[str, float | None] = {}
        ratios: dict[bool, list[float]] = {False: [], True: []}
        for op in {op.key: op for op in ops}.values():
            ratios[_is_contraction(op)] += self._ratios(op)
        copies = self._copy_ratios()
        self._scale = _median([*ratios[False], *ratios[True], *copies]) or 1.0
        self._copy_scale = _median(copies) or self._scale
        self._scales = {kind: _median(found) or self._scale for kind, found in ratios.items()}

    def run(self, op: Signature, operands: Formats, results: Formats, *, fused: frozenset[int] = frozenset()) -> float:
        """As measured, less what fusion saves; else as modelled and scaled."""

        def modelled(inside: frozenset[int]) -> float:
            return self._fallback.run(op, operands, results, fused=inside)

        digest, known = self._of(op)
        key = kernel_key_of(digest, operands, results) if known else None
        found = None if key is None else known.get(key.formats)
        if found is None:
            return modelled(fused) * self._scale_of(op)
        if not fused:
            return found.seconds
        return self._less(found.seconds, modelled(frozenset()), modelled(fused))

    def convert(self, tensor: TensorType, source: Format, target: Format, *, fused: bool = False) -> float:
        """As measured, less what fusion saves; else as modelled and scaled."""

        def modelled(inside: bool) -> float:
            return self._fallback.convert(tensor, source, target, fused=inside)

        key = copy_key(tensor, source, target) if self._copies else None
        found = None if key is None else self._copies.get(key.formats)
        if found is None:
            return modelled(fused) * self._copy_scale
        if not fused:
            return found.seconds
        return self._less(found.seconds, modelled(False), modelled(True))

    def constant(self, tensor: TensorType, fmt: Format) -> float:
        """As modelled and scaled; free where the model says nothing of constants."""
        modelled: Callable[[TensorType, Format], float] | None = getattr(self._fallback, "constant", None)
        return 0.0 if modelled is None else modelled(tensor, fmt) * self._copy_scale

    def _less(self, seconds: float, alone: float, fused: float) -> float:
        """``seconds`` less what fusion saves; what the model says is left, a launch maybe, is left as a share."""
        saved = max(0.0, alone - fused)
        share = min(1.0, saved / alone) if alone > 0 else 0.0
        return seconds - min(saved * self._copy_scale, seconds * share)

    def _of(self, op: Signature) -> tuple[str, _Known]:
        """The digest of an op and what is known of it."""
        known = self._ops.get(op.key)
        if known is None or known[0] is not op:  # another program's op of the same key
            self._own_scales.pop(op.key, None)
            digest = None
            if self._known.has_kernels and op.computation is not None and not op.parts:
                digest = computation_digest(op.computation)
            records = self._known.kernels(self._machine, self._version, digest) if digest is not None else _NOTHING
            known = self._ops[op.key] = (op, digest or "", records)
        return known[1], known[2]

    def _scale_of(self, op: Signature) -> float:
        self._of(op)
        if op.key not in self._own_scales:
            self._own_scales[op.key] = _median(self._ratios(op))
        return self._own_scales[op.key] or self._scales[_is_contraction(op)]

    def _ratios(self, op: Signature) -> list[float]:
        """Measured over modelled, for every layout in which the op was measured."""
        types, count = (*op.operands, *op.results), len(op.operands)
        ratios: list[float] = []
        for formats, record in sorted(self._of(op)[1].items()):
            read = _formats(formats)
            if read is None or [f.shape for f in read] != [t.shape for t in types if t is not None]:
                continue
            modelled = self._fallback.run(op, read[:count], read[count:])
            ratios += [record.seconds / modelled] if modelled > 0 else []
        return ratios

    def _copy_ratios(self) -> list[float]:
        return [
            record.seconds / modelled
            for tensor, before, after, record in self._measured_copies()
            if (modelled := self._fallback.convert(tensor, before, after)) > 0
        ]

    def _measured_copies(self) -> Iterator[tuple[TensorType, Format, Format, Measured]]:
        for (dtype, *keys), record in sorted(self._copies.items()):
            read = _formats(keys)
            if read is not None and len(read) == 2 and read[0].shape == read[1].shape:
                yield TensorType(read[0].shape, dtype), read[0], read[1], record


def _formats(keys: Sequence[str]) -> list[Format] | None:
    try:
        return [Format.from_key(key) for key in keys]
    except LayoutError:
        return None


def _is_contraction(op: Signature) -> bool:
    return op.computation is not None and op.computation.is_contraction


def _median(ratios: Sequence[float]) -> float | None:
    return statistics.median(ratios) if ratios else None
