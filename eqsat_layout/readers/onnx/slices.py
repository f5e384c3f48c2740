"""``Slice`` along axes whose extents are symbols, between bounds that are numbers or sizes of the model.

In: a node's inputs and attributes. Out: its result, in Relax. TVM's converter keeps ``min(9223372036854775807, n)`` for
"to the end", which no later size is equal to, and takes a number below 0 for a place where the other bound is a size.
"""

from __future__ import annotations

from typing import Any, Final

from tvm import ir, relax, sym, tirx

from eqsat_layout.tir.structural import nodes_of

_BEYOND: Final = 1 << 40
"""No axis has as many elements: what exporters write for "to the end"."""


def sliced(builder: relax.BlockBuilder, inputs: Any) -> Any:
    """The result; None for nodes that TVM's converter takes as they are."""
    data, starts, ends, axes, steps = [*inputs, None, None, None, None][:5]
    shape = getattr(data.ty, "shape", None)  # data that is a shape has none
    if not isinstance(shape, relax.ShapeExpr):
        return None
    extents = list(shape.values)
    begins, stops = _numbers(starts), _numbers(ends)
    if begins is None or stops is None:
        return None
    places = _numbers(range(len(begins)) if axes is None else axes)
    by = _numbers([1] * len(begins) if steps is None else steps)
    if places is None or by is None or not all(isinstance(one, int) for one in (*places, *by)) or 0 in by:
        return None
    places = [place % len(extents) for place in places]
    are_known = all(isinstance(extents[place], tirx.IntImm) for place in places)
    if are_known and all(isinstance(bound, int) for bound in (*begins, *stops)):
        return None
    backwards = [place for place, step in zip(places, by, strict=True) if step < 0]
    for place in backwards:
        data = builder.emit(relax.op.flip(data, place))
    found = [
        _inside(extents[place], start, end, is_back=step < 0)
        for place, start, end, step in zip(places, begins, stops, by, strict=True)
    ]
    first, last = [begin for begin, _ in found], [stop for _, stop in found]
    return relax.op.strided_slice(data, places, first, last, [abs(step) for step in by], assume_inbound=True)


def _numbers(given: Any) -> list[Any] | None:
    """Numbers, and sizes as they are; None for what is known at run time only."""
    if isinstance(given, relax.ShapeExpr):
        given = list(given.values)
    elif isinstance(given, ir.GenericConst):
        given = given.value.numpy().reshape(-1)
    elif isinstance(given, ir.Expr):
        return [given] if isinstance(given.ty, ir.PrimType) else None
    if given is None:
        return None
    return [int(one) if isinstance(one, tirx.IntImm) or not isinstance(one, ir.Expr) else one for one in given]


def _inside(extent: Any, start: Any, end: Any, *, is_back: bool) -> tuple[Any, Any]:
    """Where elements begin and end among ``extent`` of them, of the turned data for ``is_back``; nothing where the end
    comes first."""
    analyzer = sym.Analyzer()
    for size in {one for bound in (extent, start, end) for one in _sizes(bound)}:
        analyzer.bind(size, ir.Range.from_min_extent(tirx.IntImm("int64", 0), tirx.IntImm("int64", _BEYOND)))
    begin, stop = (_place(analyzer, extent, bound, is_back=is_back) for bound in (start, end))
    return begin, analyzer.simplify(tirx.Max(begin, stop))


def _place(analyzer: sym.Analyzer, extent: Any, bound: Any, *, is_back: bool) -> Any:
    """``bound`` as a place among ``extent`` elements."""
    zero, one = tirx.IntImm("int64", 0), tirx.IntImm("int64", 1)
    extent, bound = (tirx.IntImm("int64", x) if isinstance(x, int) else x for x in (extent, bound))
    if analyzer.can_prove(bound < zero):
        bound = bound + extent
    elif not analyzer.can_prove(bound >= zero):
        bound = bound + extent * tirx.Max(zero, tirx.Min(one, zero - bound))
    if is_back:  # the element before the first one is as far as it goes
        bound = extent - one - bound
    return analyzer.simplify(tirx.Min(tirx.Max(bound, zero), extent))


def _sizes(bound: Any) -> list[Any]:
    return nodes_of(bound, tirx.Var) if isinstance(bound, ir.Expr) else []
