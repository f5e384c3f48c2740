"""Short names for layouts: ``NCHW16c`` where the program says what its axes are, numbers of axes where nothing does.

In: formats, and the signatures of a program, whose ops may say what the axes of their operands are called. Out: texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from eqsat_layout.graph.graph import Signature
from eqsat_layout.maps import GLOBAL, UNDEF, Digit, Extent, Format, Formats, IndexMap

_LETTERED = ("data_layout", "layout")
"""Attributes in which Relax ops say what the axes of their first operand are."""

_WEIGHTS = "kernel_layout"
"""The attribute in which they say what the axes of their second operand are."""


@dataclass(frozen=True)
class _Part:
    """A physical axis: ``axes`` that it holds whole, the outermost first, none where its extent is 1.

    ``block``: it holds the block of that size of its only axis, and not what is outside of it.
    """

    axes: tuple[int, ...] = ()
    block: int | None = None


@dataclass(frozen=True)
class LayoutNames:
    """Names layouts of one program. ``letters``: by the rank of a tensor, what its axes are called, one letter each.

    ``packed``: by rank, the layout that such tensors come in where it has blocks already. ``shapes``: of the tensors
    that the letters are for; None for all.
    """

    letters: Mapping[int, str] = field(default_factory=dict)
    packed: Mapping[int, str] = field(default_factory=dict)
    shapes: frozenset[tuple[Extent, ...]] | None = None

    @staticmethod
    def of(signatures: Iterable[Signature], shapes: frozenset[tuple[Extent, ...]] | None = None) -> LayoutNames:
        """The names that convolutions and the like give; ranks on which they differ get none."""
        said: dict[int, set[str]] = {}
        for signature in signatures:
            layout = said_layout(signature)
            first = signature.operands[0] if signature.operands else None
            if layout and first is not None:
                said.setdefault(len(first.shape), set()).add(layout)
        agreed = {rank: next(iter(layouts)) for rank, layouts in said.items() if len(layouts) == 1}
        letters = {rank: name for rank, name in agreed.items() if len(name) == rank and name.isalpha()}
        return LayoutNames(letters, {rank: name for rank, name in agreed.items() if rank not in letters}, shapes)

    def __call__(self, fmt: Format | None) -> str:
        """``NCHW16c``, ``row-major``, ``axes 0 2 3 1``, ``axis 1 by 16``; else the index map.

        Behind it the fill of padding, and the memory where it is no ordinary buffer. What lies alike in flat memory has
        one name; elsewhere axes that are one are in parentheses: ``N(HW)C``.
        """
        if fmt is None:
            return ""
        rank, is_flat = len(fmt.shape), not fmt.separators
        is_named = self.shapes is None or fmt.shape in self.shapes
        letters, packed = (self.letters.get(rank), self.packed.get(rank)) if is_named else (None, None)
        if fmt.index_map.is_identity or (is_flat and _keeps_order(fmt.index_map)):
            text = letters or packed or "row-major"
        elif letters:
            text = _lettered(fmt.index_map, letters, is_flat)
        else:
            text = _numbered(fmt.index_map, is_flat)
        fill = "" if fmt.fill is None else " +?" if fmt.fill is UNDEF else f" +{fmt.fill:g}"
        return (text or str(fmt.index_map)) + fill + ("" if fmt.scope == GLOBAL else f" @{fmt.scope}")

    def operand(self, signature: Signature, number: int, fmt: Format | None) -> str:
        """What an op reads: weights have axes of their own, ``OIHW`` where the op says so."""
        if number == 0 or signature.computation is None or not signature.computation.is_contraction:
            return self(fmt)
        said, rank = _said(signature, _WEIGHTS), 0 if fmt is None else len(fmt.shape)
        is_said = number == 1 and bool(said)
        if is_said and not (len(said) == rank and said.isalpha()):
            return LayoutNames(packed={rank: said})(fmt)
        return LayoutNames({rank: said} if is_said else {})(fmt)

    def operands(self, signature: Signature, formats: Formats) -> tuple[str, ...]:
        """What an op reads, each operand."""
        return tuple(self.operand(signature, number, fmt) for number, fmt in enumerate(formats))

    @property
    def plain(self) -> tuple[str, ...]:
        """The names of what Relax means by a tensor."""
        return tuple(dict.fromkeys(("row-major", *self.letters.values(), *self.packed.values())))


def said_layout(signature: Signature) -> str:
    """What an op says that the axes of its first operand and of its result are, empty for nothing."""
    return _said(signature, *_LETTERED)


def _said(signature: Signature, *names: str) -> str:
    """What an attribute of the op says, the first of these that it has."""
    attrs = getattr(signature.template, "attrs", None)
    return next((str(getattr(attrs, name)) for name in names if hasattr(attrs, name)), "")


def _keeps_order(index_map: IndexMap) -> bool:
    """In flat memory it lies as it would without the map: only axes of extent 1 moved, or axes became one."""
    digits = [digit for digits in index_map.dims for digit in digits]
    return _joined(digits) == _joined([d for dims in IndexMap.identity(index_map.shape).dims for d in dims])


def _joined(digits: Iterable[Digit]) -> list[Digit]:
    """Digits of one axis that follow each other as one."""
    found: list[Digit] = []
    for digit in digits:
        last = found[-1] if found else None
        if last is None or last.axis != digit.axis or not isinstance(digit.extent, int):
            found.append(digit)
        elif isinstance(last.extent, int) and last.stride == digit.stride * digit.extent:
            found[-1] = Digit(digit.axis, digit.stride, last.extent * digit.extent)
        else:
            found.append(digit)
    return found


def _lettered(index_map: IndexMap, letters: str, is_flat: bool) -> str:
    """``NCHW16c``. Axes of extent 1 that the map drops are written where they were, or first."""
    parts, dropped = _parts(index_map, is_flat)
    units = iter([letters[axis] for axis in dropped])
    text = ""
    for part in parts:
        if part.block is not None:
            text += f"{part.block}{letters[part.axes[0]].lower()}"
        else:
            names = "".join(letters[axis] for axis in part.axes) or next(units, "1")
            text += f"({names})" if len(part.axes) > 1 else names
    return "".join(units) + text


def _numbered(index_map: IndexMap, is_flat: bool) -> str:
    """``axes 0 2 3 1``, ``axis 1 by 16``, or both; axes that are one physical axis in parentheses."""
    parts, dropped = _parts(index_map, is_flat)
    units = iter(dropped)
    outer: list[tuple[int, ...]] = []
    blocks: list[str] = []
    for part in parts:
        if part.block is not None:
            blocks.append(f"axis {part.axes[0]} by {part.block}")
        elif blocks:
            return ""  # an axis inside of a block
        else:
            outer.append(part.axes or (next(units, -1),))
    outer = [*((axis,) for axis in units), *outer]
    flat = [axis for axes in outer for axis in axes]
    if sorted(flat) != list(range(len(index_map.shape))):
        return ""
    is_plain = flat == sorted(flat) and all(len(axes) == 1 for axes in outer)
    names = [f"({' '.join(map(str, axes))})" if len(axes) > 1 else str(axes[0]) for axes in outer]
    return ", ".join([*([] if is_plain and blocks else ["axes " + " ".join(names)]), *blocks])


def _parts(index_map: IndexMap, is_flat: bool) -> tuple[list[_Part], list[int]]:
    """The physical axes, and the axes that the map drops because their extent is 1; no parts where one has no name.

    In flat memory axes that are one stand by themselves, and axes of extent 1 that say nothing are left out. Where a
    block holds all of its axis, what is outside of the block has extent 1, and is among the dropped ones.
    """
    dims = _runs(index_map) if is_flat else index_map.dims
    found = [_part(index_map, digits) for digits in dims]
    parts = [part for part in found if part is not None]
    dropped = _dropped(index_map)
    if len(parts) < len(found):
        return [], []
    at = next((at for at in reversed(range(len(parts))) if parts[at].block is None), 0)
    inner = parts[at] if parts else _Part()
    extent = index_map.shape[inner.axes[0]] if len(inner.axes) == 1 else None
    if parts.count(_Part()) == len(dropped) + 1 and isinstance(extent, int):
        return [*parts[:at], _Part(inner.axes, extent), *parts[at + 1 :]], sorted([*dropped, *inner.axes])
    if is_flat and parts.count(_Part()) != len(dropped):
        parts = [part for part in parts if part != _Part()]
    return parts, dropped


def _runs(index_map: IndexMap) -> list[tuple[Digit, ...]]:
    """Each digit by itself, those of one axis that follow each other as one; physical axes of extent 1 as they are."""
    found: list[tuple[Digit, ...]] = []
    last = -1
    for digits in index_map.dims:
        if not digits:
            found.append(())
        for digit in digits:
            joined = _joined([*found[last], digit]) if last >= 0 else []
            if len(joined) == 1:
                found[last] = (joined[0],)
            else:
                last = len(found)
                found.append((digit,))
    return found


def _dropped(index_map: IndexMap) -> list[int]:
    kept = {digit.axis for digits in index_map.dims for digit in digits}
    return [axis for axis in range(len(index_map.shape)) if axis not in kept]


def _part(index_map: IndexMap, digits: Sequence[Digit]) -> _Part | None:
    """One physical axis: (what is left of) an axis, a block of one, or several axes as one."""
    if len(digits) > 1:
        whole = all(extent == index_map.shape[axis] for axis, _, extent in digits)
        return _Part(tuple(axis for axis, _, _ in digits)) if whole else None
    for axis, stride, extent in digits:
        whole_extent = index_map.shape[axis]
        if extent == whole_extent:
            return _Part((axis,))
        if not isinstance(whole_extent, int) or not isinstance(extent, int):
            return None
        return _Part((axis,), None if stride * extent == whole_extent else extent)
    return _Part()
