"""``NonMaxSuppression``: of boxes that overlap the one with the highest score, as many rows as there are.

In: a node's inputs and attributes. Out: its result, in Relax, with a symbol for how many are kept; TVM's converter says
that all boxes are.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from tvm import ir, relax, tirx, topi

from eqsat_layout.errors import EqsatError

_MOST_BOXES: Final = (1 << 31) - 1
"""Of a class, as TVM counts them; exporters write the largest number there is for "all"."""

_MANY: Final = 1 << 16
"""Boxes of a class that are said to be kept: beyond it room is for all that there are, because TVM computes in 32 bits
with as many rows as are said."""

_CLEARED: Final = 10
"""Rows of each class that TVM writes zeros to first, whatever room there is."""


def non_max_suppression(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """Rows of batch, class and box."""
    boxes, scores, most, overlap, least = [*inputs, *[None] * 3][:5]
    for what, one in (("boxes", boxes), ("scores", scores)):
        if not isinstance(one.ty.shape, relax.ShapeExpr):  # which TVM looks into
            raise EqsatError(f"NonMaxSuppression of {what} of a shape that is known at run time only is not done")
    batch, classes, extent = scores.ty.shape.values
    count = min(int(_number(most, 0, 2)), _MOST_BOXES)
    rows = _rows(extent, count)
    limit = np.nextafter(np.float32(_number(overlap, 0.0, 3)), np.float32(np.inf))  # what overlaps as much stays
    numbers = [relax.const(limit), relax.const(np.float32(_number(least, float(np.finfo("float32").min), 4)))]
    if attributes.get("center_point_box", 0):
        boxes = _corners(builder, boxes)

    def boxes_kept(boxes: Any, scores: Any, overlap: Any, least: Any) -> Any:
        return topi.vision.all_class_non_max_suppression(
            boxes, scores, tirx.IntImm("int32", count), overlap, least, "onnx", output_shape=(batch * classes * rows, 3)
        )

    found = builder.emit_te(boxes_kept, boxes, scores, *numbers, primfunc_name_hint="boxes_kept")
    indices, counts = (builder.emit(relax.TupleGetItem(found, at)) for at in (0, 1))
    own = tirx.Var("kept", "int64")
    builder.match_cast(builder.emit(relax.op.tensor_to_shape(counts)), relax.ShapeType([own]))
    return builder.emit(relax.op.strided_slice(indices, [0], [0], [own], assume_inbound=True))


def _rows(extent: Any, count: int) -> Any:
    """Room for what is kept of each class."""
    if isinstance(extent, tirx.IntImm):
        return max(_CLEARED, min(count, int(extent)))
    least, most = (tirx.IntImm("int64", number) for number in (_CLEARED, count))
    return tirx.max(least, extent if count > _MANY else tirx.min(most, extent))


def _number(value: Any, usual: float, place: int) -> float:
    if value is None:
        return usual
    if not isinstance(value, ir.GenericConst):
        raise EqsatError(f"NonMaxSuppression whose input {place} is known at run time only is not done")
    return value.value.numpy().reshape(-1)[0].item()  # type: ignore[no-any-return]


def _corners(builder: relax.BlockBuilder, boxes: Any) -> Any:
    """From centres, widths and heights."""
    x, y, width, height = (builder.emit(relax.op.strided_slice(boxes, [2], [at], [at + 1])) for at in range(4))
    ends = []
    for sign in (-0.5, 0.5):
        for centre, size in ((y, height), (x, width)):
            half = builder.emit(relax.op.multiply(size, relax.const(sign, str(boxes.ty.dtype))))
            ends.append(builder.emit(relax.op.add(centre, half)))
    return builder.emit(relax.op.concat(ends, 2))
