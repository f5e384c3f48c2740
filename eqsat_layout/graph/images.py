"""Ops on images as PrimFuncs, where TVM's own legalisation fails.

In: that legalisation, a builder, a call. Out: what it makes of the call, or of one like it; a PrimFunc of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tvm import relax, te, tirx


def _resized(ordinary: Any, builder: Any, call: Any) -> Any:
    """With aligned corners, to one element too: it is the first one, and TVM divides by the 0 steps between corners."""
    if call.attrs.coordinate_transformation_mode != "align_corners" or not isinstance(call.args[1], relax.ShapeExpr):
        return ordinary(builder, call)
    sizes = list(call.args[1].values)
    longer = [2 if isinstance(size, tirx.IntImm) and int(size) == 1 else size for size in sizes]
    if all(size is own for size, own in zip(longer, sizes, strict=True)):
        return ordinary(builder, call)
    resize = relax.Call(call.op, [call.args[0], relax.ShapeExpr(longer)], call.attrs)
    made = builder.emit(ordinary(builder, builder.normalize(resize)))

    def first(x: te.Tensor) -> te.Tensor:
        kept = [1 if own == 1 else size for own, size in zip(_numbers(call.ty.shape), x.shape, strict=True)]
        return te.compute(kept, lambda *at: x(*at), "first")

    return builder.call_te(first, made, primfunc_name_hint="first")


def _numbers(shape: Any) -> list[int | None]:
    return [int(extent) if isinstance(extent, tirx.IntImm) else None for extent in shape.values]


def _grid(ordinary: Any, builder: Any, call: Any) -> Any:
    """Of open sizes too."""
    if None not in _numbers(call.args[1]):
        return ordinary(builder, call)
    is_aligned = bool(call.attrs.align_corners)

    def grid(matrices: te.Tensor, sizes: Any) -> te.Tensor:
        dtype, rank = matrices.dtype, len(sizes)

        def place(step: Any, size: Any) -> Any:
            """From -1 to 1, of the first and last element or of their outer borders."""
            count = tirx.Cast(dtype, tirx.Max(size - 1, tirx.IntImm("int64", 1)) if is_aligned else size)
            at = tirx.Cast(dtype, 2 * step if is_aligned else 2 * step + 1)
            return at / count - tirx.const(1, dtype)

        def element(matrix: Any, row: Any, *at: Any) -> Any:
            value = matrices(matrix, row, rank)
            for column, (step, size) in enumerate(zip(reversed(at), reversed(list(sizes)), strict=True)):
                value += matrices(matrix, row, column) * place(step, size)
            return value

        return te.compute((matrices.shape[0], rank, *sizes), element, "affine_grid")

    return builder.call_te(grid, *call.args, primfunc_name_hint="affine_grid")


LEGALIZERS: Final[dict[str, Callable[..., Any]]] = {
    "relax.image.affine_grid": _grid,
    "relax.image.resize2d": _resized,
    "relax.image.resize3d": _resized,
}
