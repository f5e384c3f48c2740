"""Ops of torch that look at elements in order: sorts, running extremes and sums of exponentials, medians, the most
frequent.

In: an importer's builder, values of a node's arguments. Out: what the node gives, in Relax.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tvm import relax, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.layers.dtypes import as_dtype
from eqsat_layout.readers.layers.extremes import first_of_none
from eqsat_layout.readers.torch.numbers import of_size

_Row = Sequence[Any]
"""Tensors of one shape that belong together: values, or values and places."""


def _scanned(b: relax.BlockBuilder, row: _Row, axis: int, combine: Callable[[_Row, _Row], _Row]) -> list[Any]:
    """Of each element and all before it what ``combine(earlier, later)`` makes of them, in steps of 1, 2, 4 ..."""
    op, extent = relax.op, row[0].ty.shape.values[axis]
    if not isinstance(extent, tirx.IntImm):
        raise EqsatError("what runs along an axis of unknown size is not done")
    made, step = list(row), 1

    def part(x: Any, begin: int, end: int) -> Any:
        return b.emit(op.strided_slice(x, [axis], [begin], [end], assume_inbound=True))

    while step < int(extent):
        earlier = [part(x, 0, int(extent) - step) for x in made]
        later = [part(x, step, int(extent)) for x in made]
        joined = combine(earlier, later)
        made = [b.emit(op.concat([part(x, 0, step), new], axis)) for x, new in zip(made, joined, strict=True)]
        step *= 2
    return made


def _places(b: relax.BlockBuilder, data: Any, axis: int) -> Any:
    """The numbers of the elements along an axis, of the data's rank."""
    shape = [1] * len(data.ty.shape)
    shape[axis] = -1
    own = b.emit(relax.op.arange(0, relax.prim_value(data.ty.shape.values[axis]), 1, "int64"))
    return b.emit(relax.op.reshape(own, shape))


def _running(beats: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """``cummax`` and ``cummin``: of equal ones the last, and NaN is beyond any number."""

    def make(b: relax.BlockBuilder, data: Any, dim: int) -> Any:
        op, rank = relax.op, len(data.ty.shape)
        if not rank:
            return relax.Tuple([data, relax.const(0, "int64")])
        axis = dim % rank
        dtype = str(data.ty.dtype)
        data = as_dtype(b, data, "uint8" if dtype == "bool" else dtype)
        places = b.emit(op.broadcast_to(_places(b, data, axis), data.ty.shape))

        def combine(earlier: _Row, later: _Row) -> _Row:
            wins = b.emit(beats(later[0], earlier[0]))
            if dtype.startswith(("float", "bfloat")):
                wins = b.emit(op.logical_or(wins, b.emit(op.isnan(later[0]))))
            return [b.emit(op.where(wins, new, old)) for old, new in zip(earlier, later, strict=True)]

        values, found = _scanned(b, [data, places], axis, combine)
        return relax.Tuple([as_dtype(b, values, dtype), found])

    return make


def _log_of_sums(b: relax.BlockBuilder, data: Any, dim: int) -> Any:
    """``logcumsumexp``: sums of what is relative to the larger one."""
    op, dtype = relax.op, str(data.ty.dtype)
    if not len(data.ty.shape):
        return data
    wide = as_dtype(b, data, "float32" if dtype in ("float16", "bfloat16") else dtype)
    zero = relax.const(0, str(wide.ty.dtype))

    def combine(earlier: _Row, later: _Row) -> _Row:
        largest = b.emit(op.maximum(earlier[0], later[0]))
        apart = b.emit(op.abs(b.emit(op.subtract(earlier[0], later[0]))))
        same = b.emit(op.equal(earlier[0], later[0]))  # infinities too, of which the difference is NaN
        small = b.emit(op.exp(b.emit(op.negative(b.emit(op.where(same, zero, apart))))))
        more = b.emit(op.log(b.emit(op.add(small, relax.const(1, str(wide.ty.dtype))))))
        return [b.emit(op.add(largest, more))]

    made = _scanned(b, [wide], dim % len(data.ty.shape), combine)[0]
    return as_dtype(b, made, dtype)


def _median(*, skips: bool) -> Callable[..., Any]:
    """The lower of the two in the middle: of all, NaN where one is, or of what is none (``skips``: ``nanmedian``)."""

    def make(b: relax.BlockBuilder, data: Any, dim: int, keepdim: bool = False) -> Any:
        op, dtype = relax.op, str(data.ty.dtype)
        if not len(data.ty.shape):
            return relax.Tuple([data, relax.const(0, "int64")])
        is_float = dtype.startswith(("float", "bfloat"))
        strange = b.emit(op.isnan(data)) if is_float else None
        ordered = b.emit(op.where(strange, relax.const(float("inf"), dtype), data)) if is_float else data
        order = b.emit(op.argsort(ordered, dim, False, "int64"))
        place = _middle_of_numbers(b, order, strange, dim) if skips and is_float else _middle(b, order, dim)
        if is_float:  # a NaN among infinities, where order does not tell one from the other
            sought = b.emit(op.equal(data, relax.const(float("inf"), dtype))) if skips else strange
            sought = as_dtype(b, sought, "int64")
            there = b.emit(op.greater(b.emit(op.max(sought, [dim], keepdims=True)), relax.const(0, "int64")))
            if skips:
                there = b.emit(op.logical_and(there, b.emit(op.gather_elements(strange, place, dim))))
            place = b.emit(op.where(there, b.emit(op.argmax(sought, dim, True)), place))
        both = [b.emit(op.gather_elements(data, place, dim)), place]
        return relax.Tuple(both if keepdim else [b.emit(op.squeeze(one, [dim])) for one in both])

    return make


def _middle(b: relax.BlockBuilder, order: Any, dim: int) -> Any:
    """Gathered: a slice of what a sort gives would be sorted by a slower kernel."""
    extents = list(order.ty.shape.values)
    at, extents[dim] = tirx.floordiv(extents[dim] - 1, 2), 1
    number = relax.const(int(at), "int64") if isinstance(at, tirx.IntImm) else of_size(b, at)
    return b.emit(relax.op.gather_elements(order, b.emit(relax.op.broadcast_to(number, extents)), dim))


def _middle_of_numbers(b: relax.BlockBuilder, order: Any, strange: Any, dim: int) -> Any:
    """Of those that are not ``strange``, which come last; of the first where all are."""
    op, one = relax.op, relax.const(1, "int64")
    count = b.emit(op.sum(as_dtype(b, b.emit(op.logical_not(strange)), "int64"), [dim], keepdims=True))
    middle = b.emit(op.floor_divide(b.emit(op.subtract(count, one)), relax.const(2, "int64")))
    return b.emit(op.gather_elements(order, b.emit(op.maximum(middle, relax.const(0, "int64"))), dim))


def _median_of_all(*, skips: bool) -> Callable[..., Any]:
    """Of nothing NaN, as in torch."""

    def make(b: relax.BlockBuilder, data: Any) -> Any:
        dtype = str(data.ty.dtype)
        if 0 in [int(e) for e in data.ty.shape.values if isinstance(e, tirx.IntImm)]:
            if not dtype.startswith(("float", "bfloat")):
                raise EqsatError(f"the median of no numbers ({dtype}) is not done")
            return relax.const(float("nan"), dtype)
        return _median(skips=skips)(b, b.emit(relax.op.reshape(data, [-1])), 0).fields[0]

    return make


def _most_frequent(b: relax.BlockBuilder, data: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """``mode``: of those that are there as often the least, and its last place."""
    op, rank = relax.op, len(data.ty.shape)
    if not rank:
        return relax.Tuple([data, relax.const(0, "int64")])
    axis = dim % rank
    each, others = (b.emit(op.expand_dims(data, axis + at)) for at in (1, 0))
    same = b.emit(op.astype(b.emit(op.equal(each, others)), "int64"))
    counts = b.emit(op.sum(same, [axis + 1]))
    most = b.emit(op.equal(counts, b.emit(op.max(counts, [axis], keepdims=True))))
    largest = b.emit(op.max(data, [axis], keepdims=True))
    value = b.emit(op.min(b.emit(op.where(most, data, largest)), [axis], keepdims=True))
    own = b.emit(op.where(b.emit(op.equal(data, value)), _places(b, data, axis), relax.const(0, "int64")))
    place = b.emit(op.max(own, [axis], keepdims=True))
    both = [value, place] if keepdim else [b.emit(op.squeeze(one, [axis])) for one in (value, place)]
    return relax.Tuple(both)


def _sorted(b: relax.BlockBuilder, data: Any, dim: int = -1, descending: bool = False) -> Any:
    """Values and places; equal ones stay in order always."""
    if not len(data.ty.shape):
        return relax.Tuple([data, relax.const(0, "int64")])
    order = b.emit(relax.op.argsort(data, dim, descending, "int64"))
    return relax.Tuple([b.emit(relax.op.gather_elements(data, order, dim)), order])


def _sorted_stably(
    b: relax.BlockBuilder, data: Any, stable: Any = None, dim: int = -1, descending: bool = False
) -> Any:
    return _sorted(b, data, dim, descending)


def _first(b: relax.BlockBuilder, data: Any, k: Any, dim: int = -1, largest: bool = True, _: bool = True) -> Any:
    """``topk``, always sorted: any order will do where it is not asked for."""
    if not len(data.ty.shape) and k == 1:
        return relax.Tuple([data, relax.const(0, "int64")])
    if isinstance(k, int) and k == 0:
        return first_of_none(b, data, dim)
    return b.emit(relax.op.topk(data, k=k, axis=dim, largest=largest, ret_type="both", dtype="int64"))


MAKERS: Final[dict[str, Callable[..., Any]]] = {
    "sort.default": _sorted,
    "sort.stable": _sorted_stably,
    "topk.default": _first,
    "cummax.default": _running(relax.op.greater_equal),
    "cummin.default": _running(relax.op.less_equal),
    "logcumsumexp.default": _log_of_sums,
    "median.dim": _median(skips=False),
    "median.default": _median_of_all(skips=False),
    "nanmedian.dim": _median(skips=True),
    "nanmedian.default": _median_of_all(skips=True),
    "mode.default": _most_frequent,
}
"""By the names of torch's ops."""
