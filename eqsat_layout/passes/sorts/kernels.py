"""A sort as a kernel.

In: a call of Relax's ``sort``, ``argsort`` or ``topk`` of numbers of up to 32 bits. Out: a call of a kernel. Rows that
lie across memory are lanes of vectors. For others there are three ways, of which a count of cycles chooses one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from eqsat_layout.passes.sorts.by_digits import DIGIT, by_digits
from eqsat_layout.passes.sorts.counted import counted
from eqsat_layout.passes.sorts.first_ones import first_ones
from eqsat_layout.passes.sorts.in_lanes import in_lanes
from eqsat_layout.passes.sorts.rows import KEY_BITS, LANES, SortedRows, int32, place_in

_MOST: Final = 2**31 - 1
"""Elements that 32 bits can count; a word keeps a place in as many."""

_ELEMENTS: Final = 4096
"""Of the rows that are done by one core without looking for more work."""

_CACHE: Final = 1 << 17

_PARTS: Final = {
    "sort": ["values"],
    "argsort": ["indices"],
    "values": ["values"],
    "indices": ["indices"],
    "both": ["values", "indices"],
}
"""By op, or by what is asked of the first elements."""


def sort_legalisations(*, exact: bool) -> dict[str, Callable[[Any, Any], Any]]:
    """Legalisations by op. Not ``exact``: -0 may come before a 0 that came first, where rows lie across memory."""
    return dict.fromkeys(("relax.sort", "relax.argsort", "relax.topk"), partial(_legalized, exact=exact))


def _legalized(builder: Any, call: Any, *, exact: bool) -> Any:
    (x, *_), attrs = call.args, call.attrs
    name = str(call.op.name).removeprefix("relax.")
    shape = _known(x.ty.shape)
    dtype = str(x.ty.dtype)
    if not shape or dtype not in KEY_BITS or math.prod(shape) > _MOST:
        return call  # TVM calls its library later
    axis = int(attrs.axis) % len(shape)
    is_first = name == "topk"
    count = min(int(attrs.k), shape[axis]) if is_first and int(attrs.k) > 0 else shape[axis]
    parts = _PARTS[str(attrs.ret_type) if is_first else name]
    is_descending = bool(attrs.largest if is_first else attrs.descending)
    around = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    rows = SortedRows(around[0], shape[axis], around[1], count, dtype, is_descending, exact)
    dtypes = [dtype if part == "values" else str(attrs.dtype) for part in parts]
    result = [*shape[:axis], count, *shape[axis + 1 :]]

    def compute(data: te.Tensor) -> Any:
        def body(ins: Any, outs: Any) -> Any:
            return sorted_rows(rows, ins[0], dict(zip(parts, outs, strict=True)))

        buffers = [tirx.decl_buffer(result, own, part) for part, own in zip(parts, dtypes, strict=True)]
        return te.extern([result] * len(parts), [data], body, dtype=dtypes, out_buffers=buffers, name=name)

    return builder.call_te(compute, x, primfunc_name_hint=name)


def _known(shape: Any) -> list[int]:
    """The extents; none where one is not known, or 0."""
    extents = shape.values if isinstance(shape, relax.ShapeExpr) else []
    known = [int(extent) for extent in extents if isinstance(extent, tirx.IntImm)]
    return known if len(known) == len(extents) and 0 not in known else []


def sorted_rows(rows: SortedRows, data: Any, outs: dict[str, Any]) -> Any:
    number = rows.before * rows.after
    piece = min(number, max(1, _ELEMENTS // rows.length))
    pieces = -(-number // piece)
    way = _way(rows)
    if rows.after >= LANES and rows.length * LANES * 8 <= _CACHE:
        return _tiles(rows, data, outs)
    with IRBuilder() as ib:
        source = T.buffer_proxy(data)
        results = {part: T.buffer_proxy(out) for part, out in outs.items()}
        with T.parallel(0, pieces) as part, T.serial(0, tirx.Min(int32(piece), number - part * piece)) as own:
            row = T.bind(part * piece + own)
            outer, inner = row // rows.after, row % rows.after
            first = T.bind(outer * (rows.length * rows.after) + inner)
            to = T.bind(outer * (rows.count * rows.after) + inner)

            def word(i: Any) -> Any:
                return rows.word(source[first + i * rows.after], i)

            def put(at: Any, place: Any) -> None:
                place = place.astype("int32")
                for name, result in results.items():
                    value = source[first + place * rows.after] if name == "values" else place
                    result[to + at * rows.after] = value.astype(str(outs[name].dtype))

            way(rows, word, put)
        return ib.get()


def _way(rows: SortedRows) -> Callable[..., None]:
    """By cycles of a row of random numbers, on AVX-512 of half the width."""
    n, k = rows.length, rows.count
    kept = k * (1 + math.log(n / k))
    cycles = {
        first_ones: n + kept * (20 + 1.5 * k),
        counted: n * n / 3.5 + 2 * n,
        by_digits: -(-KEY_BITS[rows.dtype] // DIGIT) * (7 * n + 600),
    }
    return min(cycles, key=lambda way: cycles[way])


def _tiles(rows: SortedRows, data: Any, outs: dict[str, Any]) -> Any:
    """Rows that lie across memory, many at a time."""
    whole, rest = divmod(rows.after, LANES)
    are_equal_told_apart = rows.exact and rows.dtype.startswith("float")
    tiles, are_keys = whole + (rest > 0), "indices" not in outs and not are_equal_told_apart
    kind = "int32" if are_keys else "int64"
    with IRBuilder() as ib:
        source = T.buffer_proxy(data)
        results = {part: T.buffer_proxy(out) for part, out in outs.items()}
        with T.parallel(0, rows.before * tiles) as at:
            outer, tile = at // tiles, at % tiles
            first = T.bind(outer * (rows.length * rows.after) + tile * LANES)
            to = T.bind(outer * (rows.count * rows.after) + tile * LANES)

            def column(i: Any, v: Any) -> Any:
                element = source[first + i * rows.after + v]
                return rows.key(element, is_stable=False) if are_keys else rows.word(element, i)

            def put(at: Any, word: Any, v: Any) -> None:
                if are_keys:
                    results["values"][to + at * rows.after + v] = rows.value(word)
                    return
                place = place_in(word).astype("int32")
                for name, result in results.items():
                    value = source[first + place * rows.after + v] if name == "values" else place
                    result[to + at * rows.after + v] = value.astype(str(outs[name].dtype))

            if not rest:
                in_lanes(rows, column, put, LANES, kind)
            else:
                with T.If(tile < whole):
                    with T.Then():
                        in_lanes(rows, column, put, LANES, kind)
                    with T.Else():
                        in_lanes(rows, column, put, rest, kind)
        return ib.get()
