"""What rules ask of views, pads and crops: what two of them are together, and which formats make one free.

In: names of parts and of formats. Out: rows of answers, and the parts back from their names.
"""

from __future__ import annotations

from typing import Any

from eqsat_layout.egraph.names import Names
from eqsat_layout.graph.borders import Border, Part
from eqsat_layout.maps import UNDEF, Fill, Format, IndexMap, Padding

AnswerRow = tuple[str, tuple[Any, ...]]
"""A row with the relation that it belongs to."""


class PartAnswers:
    """Views, pads and crops by name, and the answers about them."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._views: dict[str, IndexMap] = {}
        self._borders: dict[str, Border] = {}

    # ---- naming -----------------------------------------------------------------------------------------------------

    def part_name(self, part: Part) -> str:
        """The name of a view, pad or crop."""
        return self._view_name(part) if isinstance(part, IndexMap) else self._border_name(part)

    def _border_name(self, border: Border) -> str:
        self._borders.setdefault(border.key, border)
        return border.key

    @property
    def parts(self) -> dict[str, Part]:
        """All views, pads and crops that have a name."""
        return {**self._views, **self._borders}

    def part(self, name: str) -> Part:
        """The view, pad or crop of that name."""
        return self._views[name] if name in self._views else self._borders[name]

    def part_facts(self, part: Part) -> list[AnswerRow]:
        """What rules may test about it."""
        if isinstance(part, IndexMap):
            return self._view_facts(part)
        return [("is", (self._border_name(part), "crop" if part.fill is None else "pad"))]

    def _view_name(self, view: IndexMap) -> str:
        name = f"view:{view.key}"
        self._views.setdefault(name, view)
        return name

    def _view_facts(self, view: IndexMap) -> list[AnswerRow]:
        name = self._view_name(view)
        rows: list[AnswerRow] = [("is", (name, "view"))]
        if view.is_identity:
            rows.append(("identity", (name,)))
        return rows

    # ---- views ------------------------------------------------------------------------------------------------------

    def answer_compose(self, outer: str, inner: str) -> list[AnswerRow]:
        """``outer`` after ``inner`` as one view."""
        composed = self._views[outer].after(self._views[inner])
        if composed is None:
            return []
        return [("compose", (outer, inner, self._view_name(composed))), *self._view_facts(composed)]

    def answer_view(self, view: str, result: str) -> list[AnswerRow]:
        """The format of a view's operand that makes the view free, given its result's; else the result as it stands."""
        fmt = self._names.formats.get(result)
        if fmt is None:
            return []
        index_map = None if fmt.is_padded else fmt.index_map.after(self._views[view])
        if index_map is None:
            plain = Format.row_major(self._views[view].result_shape)
            return [("cut", (view, result, self._names.format(plain)))]
        return [("view", (view, result, self._names.format(_of_map(fmt, index_map))))]

    def answer_viewed(self, view: str, operand: str) -> list[AnswerRow]:
        """The format of a view's result that makes the view free, given its operand's."""
        fmt = self._names.formats.get(operand)
        inverse = self._views[view].inverse()
        if fmt is None or fmt.is_padded or inverse is None:
            return []
        index_map = fmt.index_map.after(inverse)
        if index_map is None:
            return []
        return [("view", (view, self._names.format(_of_map(fmt, index_map)), operand))]

    # ---- pads and crops ---------------------------------------------------------------------------------------------

    def answer_cancel(self, crop: str, pad: str) -> list[AnswerRow]:
        """Whether ``crop`` takes away just what ``pad`` adds."""
        a, b = self._borders[crop], self._borders[pad]
        return [("cancel", (crop, pad))] if (a.shape, a.widths) == (b.shape, b.widths) else []

    def answer_pad_view(self, pad: str, result: str) -> list[AnswerRow]:
        """The format of a pad's operand that makes the pad free, given its result's; else the result as it stands."""
        border, fmt = self._borders[pad], self._names.formats.get(result)
        if fmt is None:
            return []
        operand = _rimmed(fmt, border.widths, 1, border.fill) if fmt.fill in (None, border.fill) else None
        if operand is None:
            return [("cut", (pad, result, self._names.format(Format.row_major(border.wide_shape))))]
        return [("pad-view", (pad, result, self._names.format(operand)))]

    def answer_pad_viewed(self, pad: str, operand: str) -> list[AnswerRow]:
        """The format of a pad's result that makes the pad free, given its operand's."""
        border, fmt = self._borders[pad], self._names.formats.get(operand)
        if fmt is None or fmt.fill != border.fill:
            return []
        result = _rimmed(fmt, border.widths, -1, border.fill)
        return [] if result is None else [("pad-view", (pad, self._names.format(result), operand))]

    def answer_peek(self, crop: str, operand: str) -> list[AnswerRow]:
        """The format in which a buffer of a crop's operand serves as the crop."""
        fmt = self._names.formats.get(operand)
        inside = None if fmt is None else _rimmed(fmt, self._borders[crop].widths, 1, UNDEF)
        return [] if inside is None else [("peek", (crop, operand, self._names.format(inside)))]

    def answer_peeked(self, crop: str, result: str) -> list[AnswerRow]:
        """The format of a crop's operand that serves as the crop in a padded format; else the operand as it stands."""
        border, fmt = self._borders[crop], self._names.formats.get(result)
        if fmt is None:
            return []
        around = _rimmed(fmt, border.widths, -1, UNDEF) if fmt.fill is UNDEF else None
        if around is None:
            return [("whole", (crop, result, self._names.format(Format.row_major(border.wide_shape))))]
        return [("peek", (crop, self._names.format(around), result))]


def _rimmed(fmt: Format, widths: Padding, sign: int, fill: Fill) -> Format | None:
    """``fmt`` with ``widths`` more (or less) padding on the same buffer; None where it has not that much."""
    padding = tuple((lo + sign * a, hi + sign * b) for (lo, hi), (a, b) in zip(fmt.padding, widths, strict=True))
    if any(lo < 0 or hi < 0 for lo, hi in padding):
        return None
    return Format.make(fmt.index_map, padding=padding, fill=fill, scope=fmt.scope, separators=fmt.separators)


def _of_map(fmt: Format, index_map: IndexMap) -> Format:
    """The same unpadded buffer as seen through another map."""
    return Format.make(index_map, scope=fmt.scope, separators=fmt.separators)
