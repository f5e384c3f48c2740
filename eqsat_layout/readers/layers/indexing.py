"""Elements taken and put by tensors of indices, as torch and NumPy mean it: those tensors go side by side.

In: data and an index for each leading axis, None for all of it. Out: what is there, or the data with other elements.
Indices count from the front.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx

from eqsat_layout.errors import EqsatError


def indexed(builder: relax.BlockBuilder, data: Any, indices: Sequence[Any]) -> Any:
    """``data[indices]``."""
    axes, given = _given(indices)
    extents = _common(given)
    front = _front(axes)

    def all_of(x: Any, *tensors: Any) -> Any:
        own = [extent for axis, extent in enumerate(x.shape) if axis not in axes]
        shape = [*own[:front], *extents, *own[front:]]

        def element(*at: Any) -> Any:
            inner, outer = at[front : front + len(extents)], iter([*at[:front], *at[front + len(extents) :]])
            place = {
                axis: tirx.Cast("int64", tensor(*_aligned(tensor.shape, inner)))
                for axis, tensor in zip(axes, tensors, strict=True)
            }
            return x(*(place[axis] if axis in place else next(outer) for axis in range(len(x.shape))))

        return te.compute(shape, element, "taken")

    return builder.emit_te(all_of, data, *given, primfunc_name_hint="index")


def index_put(builder: relax.BlockBuilder, data: Any, indices: Sequence[Any], values: Any, *, adds: bool) -> Any:
    """``data[indices] = values``, or ``+=`` of all that fall on one element."""
    axes, given = _given(indices)
    extents = _common(given)
    emit = builder.emit
    shape = list(data.ty.shape.values)
    others = [axis for axis in range(len(shape)) if axis not in axes]
    own, front = [shape[axis] for axis in others], _front(axes)
    spread = emit(relax.op.broadcast_to(values, [*own[:front], *extents, *own[front:]]))
    inner = list(range(front, front + len(extents)))
    order = [*inner, *range(front), *range(front + len(extents), len(own) + len(extents))]
    updates = emit(relax.op.permute_dims(spread, order))
    places = [emit(relax.op.broadcast_to(emit(relax.op.astype(one, "int64")), extents)) for one in given]
    where = emit(relax.op.stack(places, axis=len(extents)))
    turned = emit(relax.op.permute_dims(data, [*axes, *others]))
    made = emit(relax.op.scatter_nd(turned, where, updates, "add" if adds else "update"))
    back = [[*axes, *others].index(axis) for axis in range(len(shape))]
    return emit(relax.op.permute_dims(made, back))


def index_put_where(builder: relax.BlockBuilder, data: Any, indices: Sequence[Any], values: Any, *, adds: bool) -> Any:
    """``data[mask] = values``, or ``+=``, of one mask; values that say no number of elements are for each of them."""
    axes, given = _given(indices)
    emit = builder.emit
    if len(axes) != 1 or str(given[0].ty.dtype) != "bool":
        raise EqsatError("writing by a mask beside other indices is not done")
    mask, axis, rank = given[0], axes[0], len(data.ty.shape)
    count = len(mask.ty.shape)
    after = rank - axis - count
    extents = list(values.ty.shape.values)
    if len(extents) > after:
        at = len(extents) - after - 1
        if not _is_one(extents[at]):
            raise EqsatError("writing as many elements as a mask has is not done")
        values = emit(relax.op.reshape(values, [*extents[:at], *[1] * count, *extents[at + 1 :]]))
    mask = emit(relax.op.reshape(mask, [*mask.ty.shape.values, *[1] * after]))
    return emit(relax.op.where(mask, emit(relax.op.add(data, values)) if adds else values, data))


def _given(indices: Sequence[Any]) -> tuple[list[int], list[Any]]:
    axes = [axis for axis, one in enumerate(indices) if one is not None]
    return axes, [indices[axis] for axis in axes]


def _front(axes: Sequence[int]) -> int:
    """Axes of the result before those of the indices: none, where these are apart."""
    return axes[0] if list(axes) == list(range(axes[0], axes[0] + len(axes))) else 0


def _common(tensors: Sequence[Any]) -> list[Any]:
    """The shape that they have side by side."""
    shapes = [list(tensor.ty.shape.values) for tensor in tensors]
    rank = max(map(len, shapes))
    found: list[Any] = []
    for axis in range(-rank, 0):
        extents = [shape[axis] for shape in shapes if len(shape) >= -axis]
        wide = [extent for extent in extents if not _is_one(extent)]
        if len({str(extent) for extent in wide}) > 1:
            raise EqsatError(f"indices of {wide[0]} and {wide[1]} elements side by side")
        found.append(wide[0] if wide else extents[0])
    return found


def _aligned(shape: Sequence[Any], at: Sequence[Any]) -> list[Any]:
    """An element of the common shape as one of a tensor that is repeated along some axes."""
    own = at[len(at) - len(shape) :]
    return [0 if _is_one(extent) else one for extent, one in zip(shape, own, strict=True)]


def _is_one(extent: Any) -> bool:
    return isinstance(extent, int | tirx.IntImm) and int(extent) == 1
