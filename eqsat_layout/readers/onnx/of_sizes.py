"""Nodes that make tensors as large as a graph's sizes say, where TVM's frontend wants numbers.

In: a node's inputs and attributes. Out: its result, in Relax; None where TVM's frontend takes the node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tvm import ir, relax, sym, tirx
from tvm_ffi import structural_equal

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.onnx.equal_extents import with_extent
from eqsat_layout.readers.onnx.known_sizes import simplified_sizes


def converted(builder: relax.BlockBuilder, op: str, inputs: Any, attributes: dict[str, Any]) -> Any:
    """The result of a node."""
    make = _MAKERS.get(op)
    return None if make is None else make(builder, inputs, attributes)


def _counted(builder: relax.BlockBuilder, inputs: Any, _: dict[str, Any]) -> Any:
    """``Range``, of a length that is known: TVM's converter makes a new size of all that is no constant."""
    values = [_whole(one) for one in inputs]
    if any(one is None for one in values):
        return None
    start, limit, step = values
    if not isinstance(step, tirx.IntImm) or int(step) == 0:
        return None
    steps = (
        tirx.floordiv(limit - start + step - 1, step)
        if int(step) > 0
        else tirx.floordiv(start - limit - step - 1, -step)
    )
    made = relax.op.arange(0, simplified_sizes(tirx.Max(steps, tirx.IntImm("int64", 0))), 1, "int64")
    if int(step) != 1:
        made = relax.op.multiply(builder.emit(made), relax.const(int(step), "int64"))
    if isinstance(start, tirx.IntImm):
        return made if int(start) == 0 else relax.op.add(builder.emit(made), relax.const(int(start), "int64"))
    first = builder.emit(relax.op.shape_to_tensor(relax.ShapeExpr([start])))
    return relax.op.add(builder.emit(made), first)


def _whole(value: Any) -> Any:
    """A size or constant of int64; None for what is another, or not known."""
    if isinstance(value, ir.GenericConst):
        array = value.value.numpy()
        return tirx.IntImm("int64", int(array.item())) if array.size == 1 and array.dtype == "int64" else None
    is_size = isinstance(value, ir.Expr) and isinstance(value.ty, ir.PrimType) and str(value.ty) == "int64"
    return value if is_size else None


def _spread(builder: relax.BlockBuilder, inputs: Any, _: dict[str, Any]) -> Any:
    """``Expand``: extents that may be equal are taken to be, which each run checks."""
    data, wanted = inputs[0], _extents(inputs[1])
    if isinstance(inputs[1], ir.Var) and isinstance(inputs[1].ty, relax.TensorType):
        raise EqsatError(f"to a shape that is known at run time only ({inputs[1].name}) is not done")
    have = _extents(getattr(data.ty, "shape", None))
    if wanted is None or have is None:
        return None
    rank = max(len(have), len(wanted))
    one = tirx.IntImm("int64", 1)
    spread = [one] * (rank - len(have)) + have
    asked = [one] * (rank - len(wanted)) + wanted
    made, analyzer = list(spread), sym.Analyzer()
    for axis, (extent, want) in enumerate(zip(spread, asked, strict=True)):
        if _is(want, 1) or _is(want, -1) or analyzer.can_prove_equal(extent, want):
            continue
        if _is(extent, 1):
            made[axis] = want
        elif isinstance(extent, tirx.IntImm) and isinstance(want, tirx.IntImm):
            raise EqsatError(f"an axis of {int(extent)} elements can't be spread to {int(want)}")
        elif not isinstance(extent, tirx.IntImm):
            made[axis] = spread[axis] = want
    own = spread[rank - len(have) :]
    for axis, (old, new) in enumerate(zip(have, own, strict=True)):
        if not structural_equal(old, new):
            data = with_extent(builder, data, axis, new)
    if rank == len(have) and structural_equal(relax.ShapeExpr(own), relax.ShapeExpr(made)):
        return data
    return relax.op.broadcast_to(data, relax.ShapeExpr(made))


def _extents(value: Any) -> list[Any] | None:
    if isinstance(value, relax.ShapeExpr):
        return list(value.values)
    if not isinstance(value, ir.GenericConst):
        return None
    return [tirx.IntImm("int64", int(one)) for one in value.value.numpy().reshape(-1)]


def _is(value: Any, number: int) -> bool:
    return isinstance(value, tirx.IntImm) and int(value) == number


def _grid(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``AffineGrid``: of batches and channels it takes what the matrices have."""
    size = inputs[1]
    if not isinstance(size, relax.ShapeExpr):
        return None
    extents, is_aligned = list(size.values)[2:], bool(attributes.get("align_corners", 0))
    made = builder.emit(relax.op.image.affine_grid(inputs[0], relax.ShapeExpr(extents), is_aligned))
    return relax.op.permute_dims(made, [0, *range(2, len(extents) + 2), 1])


_MAKERS: Final[dict[str, Callable[..., Any]]] = {"AffineGrid": _grid, "Expand": _spread, "Range": _counted}
