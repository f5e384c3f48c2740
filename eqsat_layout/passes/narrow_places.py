"""Places of a tensor that the data say, as those of samples, of regions and of gathers, in 32 bits.

In: PrimFuncs whose buffers are not flat. Out: the same, where an index made of a float or of a loaded integer, and a
comparison of such a float with a number, are of 32 bits. Of a cast nothing is known, so all indices of a kernel had
64. What is read or written is in the tensor, so an index may be kept within it; a guard is as true of a float that is
kept within much more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tvm import ir, tirx

from eqsat_layout.tir.structural import body_pass, nodes_of

_WIDE: Final = "int64"
_NARROW: Final = "int32"
_LARGEST: Final = {"float16": 1 << 15, "float32": 1 << 30, "float64": 1 << 30}
"""What a float is kept within: exact in its type. Half of it is more than a place or a bound may be, and an eighth more
than what is added on the way there."""
_INTEGERS: Final = 1 << 31
_COMPARISONS: Final = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)


def narrow_places() -> Any:
    """A pass."""
    rules = (
        (ir.expr.TensorLoad, lambda load: tirx.BufferLoad(load.source, _places(load.source, load.indices))),
        (tirx.BufferStore, lambda s: tirx.BufferStore(s.buffer, s.value, _places(s.buffer, s.indices))),
        (_COMPARISONS, _compared),
    )
    return body_pass("NarrowPlaces", *rules)


def _places(buffer: Any, indices: Sequence[Any]) -> list[Any]:
    return [_place(index, extent) for index, extent in zip(indices, buffer.ty.shape, strict=True)]


def _place(index: Any, extent: Any) -> Any:
    loaded = _loaded(index)
    narrow, most = _narrow(index) if loaded is None else (loaded, _INTEGERS)
    if narrow is None or not isinstance(extent, tirx.IntImm) or not 0 < int(extent) < most // 2:
        return index
    last = tirx.IntImm(_NARROW, int(extent) - 1)
    kept = tirx.Max(tirx.Min(narrow, last), tirx.IntImm(_NARROW, 0))
    return kept if str(index.ty.dtype) == _NARROW else tirx.Cast(_WIDE, kept)


def _loaded(index: Any) -> Any | None:
    """An integer that memory has a part in, before it is widened."""
    narrow = index.value if isinstance(index, tirx.Cast) and str(index.ty.dtype) == _WIDE else index
    return narrow if str(narrow.ty.dtype) == _NARROW and nodes_of(narrow, ir.expr.TensorLoad) else None


def _compared(node: Any) -> Any:
    for turned in (False, True):
        own, other = (node.b, node.a) if turned else (node.a, node.b)
        narrow, most = _narrow(own)
        if narrow is not None and isinstance(other, tirx.IntImm) and abs(int(other)) < most // 2:
            number = tirx.IntImm(_NARROW, int(other))
            return type(node)(number, narrow) if turned else type(node)(narrow, number)
    return node


def _narrow(value: Any) -> tuple[Any, int]:
    """``value``, if it is a cast float with at most one number added and bounds, and what it was kept within.

    It is what it was where that is below a half of this, and as far out where it is further out.
    """
    if isinstance(value, tirx.Cast):
        dtype = str(value.value.ty.dtype)
        most = _LARGEST.get(dtype, 0)
        if str(value.ty.dtype) != _WIDE or not most:
            return None, 0
        ends = (tirx.FloatImm(dtype, float(end)) for end in (most, -most))
        return tirx.Cast(_NARROW, tirx.Max(tirx.Min(value.value, next(ends)), next(ends))), most
    if not isinstance(value, tirx.Add | tirx.Sub | tirx.Min | tirx.Max) or not isinstance(value.b, tirx.IntImm):
        return None, 0
    narrow, most = _narrow(value.a)
    is_sum = isinstance(value, tirx.Add | tirx.Sub)
    if narrow is None or abs(int(value.b)) >= most // (8 if is_sum else 2) or (is_sum and _is_sum(value.a)):
        return None, 0
    return type(value)(narrow, tirx.IntImm(_NARROW, int(value.b))), most


def _is_sum(value: Any) -> bool:
    return isinstance(value, tirx.Add | tirx.Sub) or (hasattr(value, "a") and _is_sum(value.a))
