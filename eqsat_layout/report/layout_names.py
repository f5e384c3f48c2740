"""Short names for layouts: ``NCHW16c`` where the program says what its axes are, numbers of axes where nothing does.

In: formats, and the signatures of a program, whose ops may say what the axes of their operands are called. Out: texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from eqsat_layout.graph.graph import Signature
from eqsat_layout.maps import UNDEF, Format, IndexMap

_LETTERED = ("data_layout", "layout")
"""Attributes in which Relax ops say what the axes of their first operand are."""

_Part = tuple[int, int | None]
"""What a physical axis holds: an axis, -1 for one of extent 1, and the size of the block of it, None for the rest."""


@dataclass(frozen=True)
class LayoutNames:
    """Names layouts of one program. ``letters``: by the rank of a tensor, what its axes are called, one letter each.

    ``packed``: by rank, the layout that such tensors come in where it has blocks already.
    """

    letters: Mapping[int, str] = field(default_factory=dict)
    packed: Mapping[int, str] = field(default_factory=dict)

    @staticmethod
    def of(signatures: Iterable[Signature]) -> LayoutNames:
        """The names that convolutions and the like give; ranks on which they differ get none."""
        said: dict[int, set[str]] = {}
        for signature in signatures:
            attrs = getattr(signature.template, "attrs", None)
            layout = next((str(getattr(attrs, name)) for name in _LETTERED if hasattr(attrs, name)), "")
            first = signature.operands[0] if signature.operands else None
            if layout and first is not None:
                said.setdefault(len(first.shape), set()).add(layout)
        agreed = {rank: next(iter(layouts)) for rank, layouts in said.items() if len(layouts) == 1}
        letters = {rank: name for rank, name in agreed.items() if len(name) == rank and name.isalpha()}
        return LayoutNames(letters, {rank: name for rank, name in agreed.items() if rank not in letters})

    def __call__(self, fmt: Format | None) -> str:
        """``NCHW16c``, ``row-major``, ``axes 0 2 3 1``, ``axis 1 by 16``; the index map where none of these fits."""
        if fmt is None:
            return ""
        rank = len(fmt.shape)
        if rank in self.letters:
            text = _lettered(fmt.index_map, self.letters[rank])
        elif fmt.index_map.is_identity:
            text = self.packed.get(rank, "row-major")
        else:
            text = _numbered(fmt.index_map)
        fill = "" if fmt.fill is None else " +?" if fmt.fill is UNDEF else f" +{fmt.fill:g}"
        return (text or str(fmt.index_map)) + fill

    @property
    def plain(self) -> tuple[str, ...]:
        """The names of what Relax means by a tensor."""
        return tuple(dict.fromkeys(("row-major", *self.letters.values(), *self.packed.values())))


def _lettered(index_map: IndexMap, letters: str) -> str:
    """``NCHW16c``. Axes of extent 1 that the map drops are written where they were."""
    parts = [_part(index_map, dim) for dim in range(len(index_map.dims))]
    if None in parts:
        return ""
    known, dropped = _whole_block_split(index_map, [part for part in parts if part is not None])
    units = iter([letters[axis] for axis in dropped])
    text = ""
    for axis, block in known:
        text += next(units, "1") if axis < 0 else letters[axis] if block is None else f"{block}{letters[axis].lower()}"
    return text


def _numbered(index_map: IndexMap) -> str:
    """``axes 0 2 3 1``, ``axis 1 by 16``, or both."""
    parts = [_part(index_map, dim) for dim in range(len(index_map.dims))]
    if None in parts:
        return ""
    known, dropped = _whole_block_split(index_map, [part for part in parts if part is not None])
    units = iter(dropped)
    outer: list[int] = []
    blocks: list[str] = []
    for axis, block in known:
        if block is not None:
            blocks.append(f"axis {axis} by {block}")
        elif blocks:
            return ""  # an axis inside of a block
        else:
            outer.append(next(units, -1) if axis < 0 else axis)
    if sorted(outer) != list(range(len(index_map.shape))):
        return ""
    order = [] if outer == sorted(outer) else ["axes " + " ".join(map(str, outer))]
    return ", ".join([*order, *blocks])


def _whole_block_split(index_map: IndexMap, parts: list[_Part]) -> tuple[list[_Part], list[int]]:
    """The physical axes, and the axes that the map drops because their extent is 1.

    Where the last one is a block that holds all of its axis, what is outside of the block is dropped too.
    """
    dropped = _dropped(index_map)
    last, block = parts[-1] if parts else (-1, None)
    extent = index_map.result_shape[-1] if parts else 0
    if last >= 0 and block is None and isinstance(extent, int) and parts.count((-1, None)) == len(dropped) + 1:
        return [*parts[:-1], (last, extent)], sorted([*dropped, last])
    return parts, dropped


def _dropped(index_map: IndexMap) -> list[int]:
    kept = {digit.axis for digits in index_map.dims for digit in digits}
    return [axis for axis in range(len(index_map.shape)) if axis not in kept]


def _part(index_map: IndexMap, dim: int) -> _Part | None:
    """One physical axis: (what is left of) an axis, or an axis and a block of it; axis -1 for one of extent 1."""
    digits = index_map.dims[dim]
    if len(digits) > 1:
        return None
    for axis, stride, extent in digits:
        whole = index_map.shape[axis]
        is_top = extent == whole or (isinstance(whole, int) and isinstance(extent, int) and stride * extent == whole)
        return (axis, None) if is_top else (axis, int(extent)) if isinstance(extent, int) else None
    return -1, None
