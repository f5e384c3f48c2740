"""``OneHot`` and ``Hardmax``: one value where an index says, another one elsewhere. TVM's converters take numbers only.

In: a node's inputs and attributes. Out: its result, in Relax.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import ir, relax, te, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.layers.dtypes import as_dtype

_ALONG_ONE_AXIS = 13
"""Since this version of ONNX Hardmax is along one axis, before along that and all that follow."""


def one_hot(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``OneHot``; the number of places is a number, maybe a float, or a size of the model."""
    given, count, values = inputs[:3]
    depth = list(count.values) if isinstance(count, relax.ShapeExpr) else [count]
    if isinstance(count, ir.GenericConst):
        depth = [int(one) for one in count.value.numpy().reshape(-1)]
    if len(depth) != 1 or not (isinstance(depth[0], int) or isinstance(depth[0].ty, ir.PrimType)):
        raise EqsatError(f"OneHot of as many places as is known at run time only ({count.name}) is not done")
    axis = int(attributes["axis"]) % (len(given.ty.shape) + 1)

    def places(index: Any, off_and_on: Any) -> Any:
        shape = [*index.shape[:axis], depth[0], *index.shape[axis:]]

        def element(*at: Any) -> Any:
            own = index(*at[:axis], *at[axis + 1 :])
            is_here = tirx.any(own == at[axis], own + depth[0] == at[axis])  # below 0 from the end
            return tirx.Select(is_here, off_and_on(1), off_and_on(0))

        return te.compute(shape, element, "places")

    return builder.emit_te(places, as_dtype(builder, given, "int64"), values, primfunc_name_hint="one_hot")


def hardmax(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``Hardmax``: 1 at the first of the largest elements."""
    data, axis = inputs[0], int(attributes["axis"])
    shape = list(data.ty.shape.values)
    if attributes["opset"] < _ALONG_ONE_AXIS:
        axis += len(shape) if axis < 0 else 0
        rows = [
            math.prod(shape[:axis], start=tirx.IntImm("int64", 1)),
            math.prod(shape[axis:], start=tirx.IntImm("int64", 1)),
        ]
        made = _largest(builder, builder.emit(relax.op.reshape(data, rows)), 1)
        return builder.emit(relax.op.reshape(made, shape))
    return _largest(builder, data, axis % len(shape))


def _largest(builder: relax.BlockBuilder, data: Any, axis: int) -> Any:
    place, dtype = builder.emit(relax.op.argmax(data, axis, keepdims=True)), str(data.ty.dtype)

    def places(x: Any, first: Any) -> Any:
        def element(*at: Any) -> Any:
            is_here = first(*at[:axis], 0, *at[axis + 1 :]) == at[axis]
            return tirx.Select(is_here, tirx.const(1, dtype), tirx.const(0, dtype))

        return te.compute(x.shape, element, "places")

    return builder.emit_te(places, data, place, primfunc_name_hint="hardmax")
