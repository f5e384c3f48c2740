"""Slices of tensors of symbolic sizes, as long as they are.

In: the extent of an axis and where a slice of it starts and ends. Out: whether it lies inside whatever the sizes are,
so that it has ``end - start`` elements. Of others Relax says ``max(min(1, n) + n - 1, 0)``, not knowing that this is
n, and what two such tensors make together has no shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tvm import ir, relax, sym, tirx

from eqsat_layout.tir.structural import substitute

Bounds = Mapping[str, tuple[int, int | None]]
"""The least and the most that sizes are, by their names."""

_MOST: Final = 3
"""Symbols: each one doubles the cases."""

_LARGEST: Final = 1 << 40


def is_inside(extent: Any, start: Any, end: Any, bounds: Bounds | None = None) -> bool:
    """For all sizes of at least 0, or what ``bounds`` say by their names, it has ``end - start`` elements, be that
    none."""
    start, end, extent = (tirx.IntImm("int64", one) if isinstance(one, int) else one for one in (start, end, extent))
    zero = tirx.IntImm("int64", 0)
    cut = tirx.Max(tirx.Min(end, extent) - tirx.Min(start, extent), zero)
    claims = [start >= zero, end >= zero, (end - start).equal(cut)]
    symbols = _symbols([start, end, extent])
    known = {one.name: (bounds or {}).get(str(one.name), (0, None)) for one in symbols}
    return len(symbols) <= _MOST and _hold(claims, symbols, known)


def bounds_from_start(extent: Any, start: Any, end: Any) -> tuple[Any, Any]:
    """``start`` and ``end`` without what is left out, and numbers below 0 from the end."""
    start, end = 0 if start is None else start, extent if end is None else end
    if isinstance(end, int) and end >= _LARGEST:
        end = extent
    return tuple(extent + one if isinstance(one, int) and one < 0 else one for one in (start, end))


def checked_slice(b: relax.BlockBuilder, data: Any, axis: int, start: Any, end: Any, step: int = 1) -> Any:
    """A slice that lies inside of all sizes that the program is for, which each run checks."""
    extents = list(data.ty.shape.values)
    count = tirx.floordiv(tirx.IntImm("int64", step - 1) + end - start, tirx.IntImm("int64", step))
    last, extents[axis] = extents[axis], sym.Analyzer().simplify(count)
    if isinstance(extents[axis], ir.Var) and isinstance(last, tirx.IntImm):  # no cast says what a symbol is
        b.match_cast(b.emit(relax.ShapeExpr([tirx.Max(last, end)])), relax.ShapeType([last]))
        return b.emit(relax.op.strided_slice(data, [axis], [start], [end], assume_inbound=True))
    made = b.emit(relax.op.strided_slice(data, [axis], [start], [end], [step]))
    return b.match_cast(made, relax.TensorType(extents, str(made.ty.dtype)))


def slice_written(b: relax.BlockBuilder, data: Any, source: Any, axis: int, span: Any, bounds: Bounds) -> Any:
    """``slice_scatter`` in steps of 1 inside of sizes that are at least so large: the part between those before
    and behind it; None for others."""
    extent = data.ty.shape.values[axis]
    start, end = bounds_from_start(extent, *span)
    if not is_inside(extent, start, end, bounds):
        return None

    def part(first: Any, last: Any) -> list[Any]:
        size = sym.Analyzer().simplify(tirx.IntImm("int64", 0) + last - first)
        if isinstance(size, tirx.IntImm) and int(size) == 0:
            return []
        is_sure = is_inside(extent, first, last)
        if not is_sure:
            return [checked_slice(b, data, axis, first, last)]
        return [b.emit(relax.op.strided_slice(data, [axis], [first], [last], assume_inbound=True))]

    parts = [*part(0, start), source, *part(end, extent)]
    return source if len(parts) == 1 else b.emit(relax.op.concat(parts, axis))


def _symbols(expressions: Sequence[Any]) -> list[Any]:
    return list({var.name: var for one in expressions for var in tirx.analysis.undefined_vars(one)}.values())


def _hold(claims: Sequence[Any], symbols: Sequence[Any], bounds: Bounds) -> bool:
    """Case by case: each size is 0, or at least 1, so that ``min(1, n)`` is a number."""
    if symbols:
        first, *others = symbols
        if not _hold(claims, others, bounds):
            return False
        nothing = {first: tirx.IntImm("int64", 0)}
        return bounds[first.name][0] > 0 or _hold([substitute(one, nothing) for one in claims], others, bounds)
    analyzer = sym.Analyzer()
    for one in _symbols(claims):
        least, most = bounds[one.name]
        analyzer.bind(one, ir.Range(max(1, least), _LARGEST if most is None else min(most + 1, _LARGEST)))
    return all(analyzer.can_prove(one) for one in claims)
