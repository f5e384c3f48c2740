"""The largest and the least along axes, also of infinities alone.

In: data, axes. Out: the result, in Relax. TVM's own reductions begin with the lowest finite number, and give it for
nothing but -inf.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx


def extreme(builder: relax.BlockBuilder, data: Any, axes: Sequence[int] | None, *, keeps: bool, is_max: bool) -> Any:
    """Along ``axes``, all where that is None; ``keeps``: they stay as axes of one."""
    dtype = str(data.ty.dtype)
    op = relax.op.max if is_max else relax.op.min
    if dtype == "bool":  # of which TVM knows no largest
        bits = extreme(builder, builder.emit(relax.op.astype(data, "uint8")), axes, keeps=keeps, is_max=is_max)
        return builder.emit(relax.op.astype(bits, dtype))
    if not dtype.startswith(("float", "bfloat")):
        return builder.emit(op(data, axes, keeps))
    rank = len(data.ty.shape)
    along = sorted({int(axis) % rank for axis in (range(rank) if axes is None else axes)})
    if not along:
        return data
    return builder.emit_te(
        lambda x: _reduced(x, along, keeps, is_max), data, primfunc_name_hint="largest" if is_max else "least"
    )


def first_of_none(builder: relax.BlockBuilder, data: Any, axis: int) -> Any:
    """The largest 0 elements and their places; for TVM's op 0 are all."""
    axis %= len(data.ty.shape)
    values = builder.emit(relax.op.strided_slice(data, [axis], [0], [0], assume_inbound=True))
    return relax.Tuple([values, builder.emit(relax.op.astype(values, "int64"))])


def _reduced(x: Any, along: Sequence[int], keeps: bool, is_max: bool) -> Any:
    reduced = {axis: te.reduce_axis((0, x.shape[axis]), f"k{axis}") for axis in along}
    shape = [1 if axis in reduced else extent for axis, extent in enumerate(x.shape) if keeps or axis not in reduced]
    sign = -1.0 if is_max else 1.0
    reducer = te.comm_reducer(
        (lambda a, b: tirx.max(a, b)) if is_max else (lambda a, b: tirx.min(a, b)),
        lambda kind: tirx.const(sign * math.inf, kind),
        name="largest" if is_max else "least",
    )

    def element(*at: Any) -> Any:
        kept = iter(at)
        places = []
        for axis in range(len(x.shape)):
            own = next(kept) if keeps or axis not in reduced else None
            places.append(reduced.get(axis, own))
        return reducer(x(*places), axis=list(reduced.values()))

    return te.compute(shape, element, "extreme")
