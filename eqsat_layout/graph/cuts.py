"""Where axes of buffers are cut: as finely as their maps say, and the same for everybody who uses one.

In: steps, whose formats may cut the same bytes in several ways: height and width as one axis, or with a unit axis more.
Out: steps in which every buffer that no one needs in a certain shape is cut at every digit of its map, and is read as
it is cut. What would be a reshape between kernels, or a division by a width inside of one, is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from eqsat_layout.graph.graph import Signature
from eqsat_layout.graph.steps import ConstantUse, Convert, Given, Inside, Operand, ResultPart, Run, Step, Steps
from eqsat_layout.maps import GLOBAL, UNDEF, Format, IndexMap
from eqsat_layout.maps.index_map import Extent
from eqsat_layout.tir.flow import Flow


def cut_alike(steps: Steps, signatures: Mapping[str, Signature]) -> Steps:
    """``steps`` with such formats; stores keep their numbers and their bytes."""
    free = _free(steps, signatures)
    while True:
        cutter = _Cutter(signatures, free)
        made = [cutter.cut(step) for step in steps.steps]
        if not cutter.fixed:
            return replace(steps, steps=made)
        free -= cutter.fixed


def _free(steps: Steps, signatures: Mapping[str, Signature]) -> frozenset[int]:
    """Stores of one tensor that only rewrites and re-laid-out ops read."""
    bound = {goal for goal in steps.goals if not isinstance(goal, ConstantUse)} | set(steps.variables)
    for step in steps.steps:
        if isinstance(step, Given):
            bound.add(step.store)
        elif isinstance(step, ResultPart | Inside):
            bound |= {step.store, *_stores([step.source])}
        elif isinstance(step, Run) and not _is_relaid(step, signatures):
            bound |= {step.store, *_stores(step.operands)}
    return frozenset(step.store for step in steps.steps) - bound


def _is_relaid(step: Run, signatures: Mapping[str, Signature]) -> bool:
    """Its buffers may be cut at will."""
    return step.flow is not None and signatures[step.signature].frozen is None


def _stores(operands: Sequence[Operand]) -> list[int]:
    return [operand for operand in operands if not isinstance(operand, ConstantUse)]


@dataclass
class _Cutter:
    """``fixed``: stores that a reader can't read as they were cut."""

    signatures: Mapping[str, Signature]
    free: frozenset[int]
    fixed: set[int] = field(default_factory=set)
    _shapes: dict[int, tuple[Extent, ...]] = field(default_factory=dict)

    def cut(self, step: Step) -> Step:
        if isinstance(step, Run) and step.flow is not None and _is_relaid(step, self.signatures):
            flow = self._flow(step, step.flow)
            return replace(step, flow=flow, operands=tuple(map(_laid, step.operands, flow.operands)))
        if isinstance(step, Convert):
            before = self._read(step.source, step.before)
            return replace(step, before=before, after=self._made(step.store, step.after, [before]))
        return step

    def _flow(self, step: Run, flow: Flow) -> Flow:
        pairs = zip(step.operands, flow.operands, strict=True)
        operands = tuple(self._read(operand, fmt) for operand, fmt in pairs)
        results = tuple(self._made(step.store, fmt, operands) for fmt in flow.results)
        return Flow(operands, results, tuple(_cut(fmt, operands) for fmt in flow.internal))

    def _read(self, operand: Operand, fmt: Format) -> Format:
        """``fmt`` as it is cut where the operand was made."""
        if isinstance(operand, ConstantUse):
            return _cut(fmt, [])
        if operand not in self._shapes:
            return fmt
        found = _in_shape(fmt, self._shapes[operand])
        if found is None or _is_worse(found, fmt):
            self.fixed.add(operand)
            return fmt
        return found

    def _made(self, store: int, fmt: Format, operands: Sequence[Format]) -> Format:
        if store not in self.free:
            return fmt
        fmt = _cut(fmt, operands)
        self._shapes[store] = fmt.physical_shape
        return fmt


def _laid(operand: Operand, fmt: Format) -> Operand:
    return replace(operand, format=fmt) if isinstance(operand, ConstantUse) else operand


def _cut(fmt: Format, others: Sequence[Format]) -> Format:
    """As one of ``others`` of the same bytes, whatever its padding holds, is cut, else at every digit.

    Not as one that fuses a symbolic axis with others: what reads it may have to take it apart.
    """
    if fmt.scope != GLOBAL or fmt.separators or fmt.is_row_major:
        return fmt
    for other in others:
        is_same = fmt.with_fill(UNDEF).same_bytes(other.with_fill(UNDEF))
        if is_same and other.index_map.inverse() is not None:
            return replace(fmt, index_map=other.index_map)
    return taken_apart(fmt)


def taken_apart(fmt: Format) -> Format:
    """``fmt`` with the same bytes, an axis for every digit."""
    axes = [axis for row in fmt.index_map.dims for axis in ([[digit] for digit in row] or [[]])]
    return replace(fmt, index_map=IndexMap.make(fmt.padded_shape, axes))


def _is_worse(new: Format, old: Format) -> bool:
    """The reader would divide indices by extents, or is no longer an op that Relax has."""
    digits = [sum(map(len, fmt.index_map.dims)) for fmt in (new, old)]
    return digits[0] > digits[1] or (old.is_row_major and new != old)


def _in_shape(fmt: Format, shape: tuple[Extent, ...]) -> Format | None:
    """``fmt`` with its bytes cut into axes of such extents, if that is possible."""
    if fmt.physical_shape == shape:
        return fmt
    if fmt.scope != GLOBAL or fmt.separators:
        return None
    cut = IndexMap.reshape(fmt.physical_shape, shape)
    index_map = cut.after(fmt.index_map) if cut is not None else None
    return replace(fmt, index_map=index_map) if index_map is not None else None
