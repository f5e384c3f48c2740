"""Sorts, and the first elements of sorted rows, as kernels.

In: a call of Relax's ``sort``, ``argsort`` or ``topk`` of numbers of up to 32 bits. Out: a kernel that orders words of
64 bits: an element's key, then where it comes from. So equal elements keep their order, all words differ, and NaN is
the largest number. TVM calls a library that sorts whole rows by a function for two elements. Rows that lie across
memory are lanes of vectors. For others there are three ways, of which a count of cycles chooses one:

- the first few are kept in order while a row goes by: the least of a block takes its place among them, until it has
  none there;
- short rows: each element counts those before it, and goes where the count says;
- other rows: by one byte of the keys after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

_MOST: Final = 2**31 - 1
"""Elements that 32 bits can count; a word keeps a place in as many."""

_PLACE_BITS: Final = 31
_LAST: Final = 2**63 - 1
"""A word behind all others."""

_BITS: Final = {"float32": 32, "float16": 32, "int32": 32, "uint8": 8}
"""Of a key that differ, by dtype. Others of up to 32 bits are sorted as one of these
(:mod:`eqsat_layout.passes.sorted_types`)."""

_LARGEST: Final = 2**31 - 1
_INFINITY: Final = 0x7F800000
_NAN: Final = 0x7FC00000

_LANES: Final = 32
_BLOCK: Final = 64
_DIGIT: Final = 8
_ELEMENTS: Final = 4096
"""Of the rows that are done by one core without looking for more work."""

_UNROLLED: Final = 8
_COLUMNS: Final = 16
_CACHE: Final = 1 << 17
_SELECTED: Final = 11
_FEWER: Final = 9
"""Bits of a key by which words are left out first."""


@dataclass(frozen=True)
class _Rows:
    """``length`` elements each, ``after`` apart, of which the first ``count`` are wanted. ``exact``: also of -0 and 0,
    which are equal, the first one comes first."""

    before: int
    length: int
    after: int
    count: int
    dtype: str
    is_descending: bool
    exact: bool

    def word(self, element: Any, place: Any) -> Any:
        """The least is the first one."""
        key = tirx.reinterpret("uint32", tirx.bitwise_xor(self.key(element, is_stable=True), _int32(-(2**31))))
        return tirx.bitwise_or(tirx.shift_left(key.astype("int64"), _int64(_PLACE_BITS)), place.astype("int64"))

    def key(self, element: Any, *, is_stable: bool) -> Any:
        """int32. All NaN are the largest number. ``is_stable``: -0 is 0; else what :meth:`value` takes it for."""
        key = element.astype("int32")
        if self.dtype.startswith("float"):
            pattern = tirx.reinterpret("int32", element.astype("float32"))
            magnitude = tirx.bitwise_and(pattern, _int32(_LARGEST))
            ordered = tirx.Select(pattern < 0, -magnitude, magnitude) if is_stable else _turned(pattern)
            key = tirx.Select(magnitude > _INFINITY, _int32(_NAN), ordered)
        return tirx.bitwise_not(key) if self.is_descending else key

    def value(self, key: Any) -> Any:
        """Of a key that is not stable."""
        key = tirx.bitwise_not(key) if self.is_descending else key
        is_float = self.dtype.startswith("float")
        return (tirx.reinterpret("float32", _turned(key)) if is_float else key).astype(self.dtype)


def _turned(pattern: Any) -> Any:
    """Of the bits of a float an integer in the same order, and the bits of such an integer."""
    return tirx.bitwise_xor(pattern, tirx.bitwise_and(tirx.shift_right(pattern, _int32(31)), _int32(_LARGEST)))


def _int32(value: int) -> Any:
    return tirx.const(value, "int32")


def _int64(value: int) -> Any:
    return tirx.const(value, "int64")


def _legalized(builder: Any, call: Any, *, exact: bool) -> Any:
    (x, *_), attrs = call.args, call.attrs
    name = str(call.op.name).removeprefix("relax.")
    shape = _known(x.ty.shape)
    dtype = str(x.ty.dtype)
    if not shape or dtype not in _BITS or math.prod(shape) > _MOST:
        return call  # TVM calls its library later
    axis = int(attrs.axis) % len(shape)
    is_first = name == "topk"
    count = min(int(attrs.k), shape[axis]) if is_first and int(attrs.k) > 0 else shape[axis]
    parts = _PARTS[str(attrs.ret_type) if is_first else name]
    is_descending = bool(attrs.largest if is_first else attrs.descending)
    around = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    rows = _Rows(around[0], shape[axis], around[1], count, dtype, is_descending, exact)
    dtypes = [dtype if part == "values" else str(attrs.dtype) for part in parts]
    result = [*shape[:axis], count, *shape[axis + 1 :]]

    def compute(data: te.Tensor) -> Any:
        def body(ins: Any, outs: Any) -> Any:
            return _sorted(rows, ins[0], dict(zip(parts, outs, strict=True)))

        buffers = [tirx.decl_buffer(result, own, part) for part, own in zip(parts, dtypes, strict=True)]
        return te.extern([result] * len(parts), [data], body, dtype=dtypes, out_buffers=buffers, name=name)

    return builder.call_te(compute, x, primfunc_name_hint=name)


_PARTS: Final = {
    "sort": ["values"],
    "argsort": ["indices"],
    "values": ["values"],
    "indices": ["indices"],
    "both": ["values", "indices"],
}
"""By op, or by what is asked of the first elements."""


def sorts(*, exact: bool) -> dict[str, Callable[[Any, Any], Any]]:
    """Legalisations by op. Not ``exact``: -0 may come before a 0 that came first, where rows lie across memory."""
    return dict.fromkeys(("relax.sort", "relax.argsort", "relax.topk"), partial(_legalized, exact=exact))


def _known(shape: Any) -> list[int]:
    """The extents; none where one is not known, or 0."""
    extents = shape.values if isinstance(shape, relax.ShapeExpr) else []
    known = [int(extent) for extent in extents if isinstance(extent, tirx.IntImm)]
    return known if len(known) == len(extents) and 0 not in known else []


def _way(rows: _Rows) -> Callable[..., None]:
    """By cycles of a row of random numbers, on AVX-512 of half the width."""
    n, k = rows.length, rows.count
    kept = k * (1 + math.log(n / k))
    cycles = {
        _first_ones: n + kept * (20 + 1.5 * k),
        _counted: n * n / 3.5 + 2 * n,
        _by_digits: -(-_BITS[rows.dtype] // _DIGIT) * (7 * n + 600),
    }
    return min(cycles, key=lambda way: cycles[way])


def _sorted(rows: _Rows, data: Any, outs: dict[str, Any]) -> Any:
    number = rows.before * rows.after
    piece = min(number, max(1, _ELEMENTS // rows.length))
    pieces = -(-number // piece)
    way = _way(rows)
    if rows.after >= _COLUMNS and rows.length * _COLUMNS * 8 <= _CACHE:
        return _tiles(rows, data, outs)
    with IRBuilder() as ib:
        source = T.buffer_proxy(data)
        results = {part: T.buffer_proxy(out) for part, out in outs.items()}
        with T.parallel(0, pieces) as part, T.serial(0, tirx.Min(_int32(piece), number - part * piece)) as own:
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


def _tiles(rows: _Rows, data: Any, outs: dict[str, Any]) -> Any:
    """Rows that lie across memory, many at a time."""
    whole, rest = divmod(rows.after, _COLUMNS)
    are_equal_told_apart = rows.exact and rows.dtype.startswith("float")
    tiles, are_keys = whole + (rest > 0), "indices" not in outs and not are_equal_told_apart
    kind = "int32" if are_keys else "int64"
    with IRBuilder() as ib:
        source = T.buffer_proxy(data)
        results = {part: T.buffer_proxy(out) for part, out in outs.items()}
        with T.parallel(0, rows.before * tiles) as at:
            outer, tile = at // tiles, at % tiles
            first = T.bind(outer * (rows.length * rows.after) + tile * _COLUMNS)
            to = T.bind(outer * (rows.count * rows.after) + tile * _COLUMNS)

            def column(i: Any, v: Any) -> Any:
                element = source[first + i * rows.after + v]
                return rows.key(element, is_stable=False) if are_keys else rows.word(element, i)

            def put(at: Any, word: Any, v: Any) -> None:
                if are_keys:
                    results["values"][to + at * rows.after + v] = rows.value(word)
                    return
                place = _place(word).astype("int32")
                for name, result in results.items():
                    value = source[first + place * rows.after + v] if name == "values" else place
                    result[to + at * rows.after + v] = value.astype(str(outs[name].dtype))

            if not rest:
                _in_lanes(rows, column, put, _COLUMNS, kind)
            else:
                with T.If(tile < whole):
                    with T.Then():
                        _in_lanes(rows, column, put, _COLUMNS, kind)
                    with T.Else():
                        _in_lanes(rows, column, put, rest, kind)
        return ib.get()


def _place(word: Any) -> Any:
    return tirx.bitwise_and(word, _int64((1 << _PLACE_BITS) - 1))


def _alloc(extent: int, dtype: str = "int64") -> Any:
    return T.buffer_proxy(T.alloc_buffer([extent], dtype, scope="local"))


def _first_ones(rows: _Rows, word: Any, put: Any) -> None:
    """``best`` are the first words so far. The least of a block takes its place among them, until it has none there."""
    count, lanes = rows.count, _COLUMNS
    best, block, low = _alloc(count), _alloc(_BLOCK), _alloc(lanes)
    loop = T.unroll if count <= _UNROLLED else T.serial
    with loop(0, count) as q:
        best[q] = _int64(_LAST)

    def find(extent: int, taken: Any = None) -> None:
        """The least one comes to lie in ``low[0]``; ``taken`` is one no more."""
        with T.vectorized(0, lanes) as v:
            low[v] = _int64(_LAST)
        with T.unroll(0, -(-extent // lanes)) as t:
            if taken is not None:
                with T.vectorized(0, lanes) as v:
                    at = t * lanes + v
                    block[at] = tirx.Select(block[at].equal(taken), _int64(_LAST), block[at])
            with T.vectorized(0, lanes) as v:
                low[v] = tirx.Min(low[v], block[t * lanes + v])
        half = lanes // 2
        while half:
            with T.vectorized(0, half) as v:
                low[v] = tirx.Min(low[v], low[half + v])
            half //= 2

    def look(start: Any, extent: int) -> None:
        with T.serial(0, extent) as j:
            block[j] = word(start + j)
        for j in range(extent, -(-extent // lanes) * lanes):
            block[j] = _int64(_LAST)
        find(extent)
        with T.While(low[0] < best[count - 1]):
            own = T.bind(low[0])
            with loop(0, count - 1) as p:
                q = count - 1 - p
                best[q] = tirx.Min(best[q], tirx.Max(best[q - 1], own))
            best[0] = tirx.Min(best[0], own)
            find(extent, own)

    whole, rest = divmod(rows.length, _BLOCK)
    if whole:
        at, step = _alloc(1, "int32"), _step(whole)
        at[0] = _int32(0)
        with T.serial(0, whole):
            look(T.bind(at[0] * _BLOCK), _BLOCK)
            at[0] = tirx.Select(at[0] + step < whole, at[0] + step, at[0] + (step - whole))
    if rest:
        look(_int32(whole * _BLOCK), rest)
    with T.serial(0, count) as q:
        put(q, _place(best[q]))


def _step(whole: int) -> int:
    """From one block to the next that is looked at. In the order of memory, each element of a row that is sorted the
    other way takes a place among the first; words say themselves where they come from, so that any order will do."""
    step = max(1, round(whole * (math.sqrt(5) - 1) / 2))
    while math.gcd(step, whole) > 1:
        step += 1
    return step


def _counted(rows: _Rows, word: Any, put: Any) -> None:
    n = rows.length
    padded = -(-n // _LANES) * _LANES
    words, ranks, counts = _alloc(padded), _alloc(padded), _alloc(_LANES)
    with T.serial(0, n) as i:
        words[i] = word(i)
    if padded > n:
        with T.serial(0, padded - n) as i:
            words[n + i] = _int64(_LAST)
    with T.serial(0, padded // _LANES) as tile:
        with T.vectorized(0, _LANES) as v:
            counts[v] = _int64(0)
        with T.serial(0, n) as j, T.vectorized(0, _LANES) as v:
            counts[v] = counts[v] + (words[j] < words[tile * _LANES + v]).astype("int64")
        with T.vectorized(0, _LANES) as v:
            ranks[tile * _LANES + v] = counts[v]
    with T.serial(0, n) as i:
        if rows.count == n:
            put(ranks[i].astype("int32"), i)
        else:
            with T.If(ranks[i] < rows.count), T.Then():
                put(ranks[i].astype("int32"), i)


def _by_digits(rows: _Rows, word: Any, put: Any) -> None:
    """Least digits first; each time equal ones keep their order. Where few are wanted, only of those that may be."""
    n, bits, values = rows.length, _BITS[rows.dtype], 1 << _DIGIT
    digits = -(-bits // _DIGIT)
    words, others, starts, sums = _alloc(n), _alloc(n), _alloc(digits * values, "int32"), _alloc(2, "int32")

    def digit(value: Any, number: int) -> Any:
        return _bits_of(value, number * _DIGIT, _DIGIT) + number * values

    with T.serial(0, n) as i:
        words[i] = word(i)
    left = _selected(rows, words, bits) if rows.count * 2 <= n else n
    with T.serial(0, digits * values) as i:
        starts[i] = _int32(0)
    with T.serial(0, left) as i:
        for number in range(digits):
            at = T.bind(digit(words[i], number))
            starts[at] = starts[at] + 1
    for number in range(digits):
        sums[0] = _int32(0)
        with T.serial(0, values) as i:
            sums[1] = starts[number * values + i]
            starts[number * values + i] = sums[0]
            sums[0] = sums[0] + sums[1]
        with T.serial(0, left) as i:
            at = T.bind(digit(words[i], number))
            to = T.bind(starts[at])
            others[to] = words[i]
            starts[at] = to + 1
        words, others = others, words
    with T.serial(0, rows.count) as i:
        put(i, _place(words[i]))


def _bits_of(word: Any, first: int, count: int) -> Any:
    """Of its key, as int32."""
    own = tirx.shift_right(word, _int64(_PLACE_BITS + first))
    return tirx.bitwise_and(own, _int64((1 << count) - 1)).astype("int32")


def _selected(rows: _Rows, words: Any, bits: int) -> Any:
    """How many words are left: all that begin as the last one wanted does, or before it, moved to the front."""
    width = min(bits, _SELECTED if rows.length >= 1 << _SELECTED else _FEWER)
    found, sums = _alloc(1 << width, "int32"), _alloc(3, "int32")

    def beginning(i: Any) -> Any:
        return _bits_of(words[i], bits - width, width)

    with T.serial(0, 1 << width) as i:
        found[i] = _int32(0)
    with T.serial(0, rows.length) as i:
        at = T.bind(beginning(i))
        found[at] = found[at] + 1
    for i in range(3):
        sums[i] = _int32(0)
    with T.serial(0, 1 << width) as i:
        sums[0] = sums[0] + found[i]
        sums[1] = sums[1] + (sums[0] < rows.count).astype("int32")  # at last the beginning of the last one wanted
    with T.serial(0, rows.length) as i:
        own = T.bind(words[i])
        words[sums[2]] = own
        sums[2] = sums[2] + (_bits_of(own, bits - width, width) <= sums[1]).astype("int32")
    return T.bind(sums[2])


def _in_lanes(rows: _Rows, column: Any, put: Any, lanes: int, kind: str) -> None:
    """Neighbouring rows, one a lane: the first few in order while the rows go by, or a network of Batcher's."""
    n, count = rows.length, rows.count
    if _is_kept_in_lanes(rows):
        best, own = _alloc(count * lanes, kind), _alloc(2 * lanes, kind)
        with T.unroll(0, count) as q, T.vectorized(0, lanes) as v:
            best[q * lanes + v] = tirx.max_value(kind)
        with T.serial(0, n) as i:
            with T.vectorized(0, lanes) as v:
                own[v] = column(i, v)
            with T.unroll(0, count) as q:
                with T.vectorized(0, lanes) as v:
                    own[lanes + v] = tirx.Max(best[q * lanes + v], own[v])
                with T.vectorized(0, lanes) as v:
                    best[q * lanes + v] = tirx.Min(best[q * lanes + v], own[v])
                with T.vectorized(0, lanes) as v:
                    own[v] = own[lanes + v]
    else:
        best, own = _alloc(n * lanes, kind), _alloc(lanes, kind)
        with T.serial(0, n) as i, T.vectorized(0, lanes) as v:
            best[i * lanes + v] = column(i, v)
        for length, apart in _network(n):
            first = apart % length
            blocks = -(-(n - apart - first) // (2 * apart)) if n - apart > first else 0
            with T.serial(0, max(blocks, 0)) as j, T.serial(0, apart) as i:
                low = T.bind(first + j * 2 * apart + i)
                is_pair = low // (2 * length) == (low + apart) // (2 * length)
                with T.If(tirx.And(low + apart < n, is_pair)), T.Then():
                    with T.vectorized(0, lanes) as v:
                        own[v] = tirx.Max(best[low * lanes + v], best[(low + apart) * lanes + v])
                    with T.vectorized(0, lanes) as v:
                        best[low * lanes + v] = tirx.Min(best[low * lanes + v], best[(low + apart) * lanes + v])
                    with T.vectorized(0, lanes) as v:
                        best[(low + apart) * lanes + v] = own[v]
    with T.serial(0, count) as q, T.vectorized(0, lanes) as v:
        put(q, best[q * lanes + v], v)


def _network(n: int) -> list[tuple[int, int]]:
    """Steps of Batcher's merge sort: how long the pieces are that are merged, and how far apart what is compared."""
    lengths = [1 << bit for bit in range((n - 1).bit_length())]
    return [(length, length >> bit) for length in lengths for bit in range(length.bit_length())]


def _is_kept_in_lanes(rows: _Rows) -> bool:
    """By the comparisons of an element; those that are kept have to fit into registers."""
    return rows.count <= min(_COLUMNS, max(1, len(_network(rows.length)) // 2))
