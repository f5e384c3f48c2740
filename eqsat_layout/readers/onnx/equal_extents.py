"""Extents of two operands that are equal, though nothing proves it before a run.

In: a node's operands and attributes. Out: operands of which a ``match_cast`` says so, which checks it in every run.
Exporters write one size in several ways, ``(h - 1) // 8 + 1`` of one convolution and the same after three of them; TVM
gives no shape to the result of such operands, and then to nothing that is made of it.
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from tvm import ir, relax, sym, tirx


def with_equal_extents(
    builder: relax.BlockBuilder, op: str, inputs: Any, attributes: Mapping[str, Any], opset: int
) -> Any:
    """``inputs`` where ONNX lets extents differ only if one is 1, or not at all; as they are for other nodes."""
    shapes = [shape for one in inputs if (shape := _shape(one)) is not None]
    if len(shapes) < max(2, len(inputs)) or not any(map(_is_open, shapes)):
        return inputs
    if op == "Concat":
        axis = int(attributes.get("axis", 0)) % len(shapes[0])
    elif _broadcasts(op, tuple(str(one.ty.dtype) for one in inputs), opset):
        axis = None
    else:
        return inputs
    return type(inputs)(agreeing(builder, inputs, axis))


def agreeing(builder: relax.BlockBuilder, given: Any, apart: int | None = None) -> list[Any]:
    """``given``, tensors of known rank, with one expression for extents that must be equal, all but those of the axis
    ``apart``."""
    found: list[Any] = list(given)
    shapes: list[Any] = [_shape(one) for one in given]
    if any(shape is None for shape in shapes):
        return found
    for at in range(1, len(found)):
        for before in range(at):
            one, other = _agreed(shapes[before], shapes[at], apart)
            for place, shape in ((before, one), (at, other)):
                if not all(map(operator.is_, shape, shapes[place])):  # ``==`` of expressions makes another one
                    found[place] = builder.match_cast(
                        builder.normalize(found[place]), relax.TensorType(shape, str(found[place].ty.dtype))
                    )
                    shapes[place] = shape
    return found


def _shape(value: Any) -> list[Any] | None:
    ty: Any = value.ty if isinstance(value, ir.Expr) else None
    is_known = isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr)
    return list(ty.shape.values) if is_known else None


def _is_open(shape: Any) -> bool:
    return not all(isinstance(extent, tirx.IntImm) for extent in shape)


def _agreed(one: Any, other: Any, apart: int | None) -> tuple[list[Any], list[Any]]:
    """Both with one expression for extents that must be equal; axes are counted from the last. ``apart``: the axis
    along which they may differ."""
    one, other, analyzer = list(one), list(other), sym.Analyzer()
    for back in range(1, min(len(one), len(other)) + 1):
        first, second = one[-back], other[-back]
        is_apart = apart is not None and len(one) - back == apart
        numbers = [int(extent) for extent in (first, second) if isinstance(extent, tirx.IntImm)]
        spreads = apart is None and 1 in numbers
        if is_apart or spreads or len(numbers) == 2 or analyzer.can_prove_equal(first, second):
            continue
        if not isinstance(first, tirx.Var):  # TVM takes a size that is made of itself for an equation to solve
            other[-back] = first
        elif not isinstance(second, tirx.Var):
            one[-back] = second
    return one, other


@cache
def _broadcasts(op: str, dtypes: tuple[str, ...], opset: int) -> bool:
    """Whether ONNX's own inference spreads each operand of a node along each axis where it has one element."""
    onnx = importlib.import_module("onnx")
    names = [f"i{at}" for at in range(len(dtypes))]
    plain = [np.dtype(dtype.replace("bfloat16", "float16")) for dtype in dtypes]  # which spreads as that does
    numbers = map(onnx.helper.np_dtype_to_tensor_dtype, plain)
    shapes = [[*(3 if axis == at else 1 for axis in range(len(dtypes))), 2] for at in range(len(dtypes))]
    types = map(onnx.helper.make_tensor_type_proto, numbers, shapes)
    try:
        schema = onnx.defs.get_schema(op, opset)
        node = onnx.helper.make_node(op, names, ["o"])
        found = onnx.shape_inference.infer_node_outputs(schema, node, dict(zip(names, types, strict=True)))
    except (onnx.defs.SchemaError, onnx.shape_inference.InferenceError, onnx.checker.ValidationError):
        return False
    dims = found["o"].tensor_type.shape.dim if "o" in found else ()
    return [dim.dim_value for dim in dims] == [3] * len(dtypes) + [2]
