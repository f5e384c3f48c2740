"""Extents of two operands that are equal, though nothing proves it before a run.

In: a node's operands and attributes. Out: operands of which a ``match_cast`` or a reshape says so, which each run
checks.
Exporters write one size in several ways, ``(h - 1) // 8 + 1`` of one convolution and the same after three of them; TVM
gives no shape to the result of such operands, and then to nothing that is made of it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
from tvm import ir, relax, sym, tirx


def with_equal_extents(
    builder: relax.BlockBuilder, op: str, inputs: Any, attributes: Mapping[str, Any], opset: int
) -> Any:
    """``inputs`` where ONNX lets extents differ only if one is 1, or not at all; as they are for other nodes."""
    shapes = [shape for one in inputs if (shape := _shape(one)) is not None]
    if op == "Split":
        return type(inputs)(_as_long_as_its_parts(builder, list(inputs), attributes))
    if len(shapes) < len(inputs) or not any(map(_is_open, shapes)):
        return inputs
    if op == "Einsum":
        equation = attributes["equation"]
        text = equation.decode() if isinstance(equation, bytes) else str(equation)
        return type(inputs)(_with_one_extent(builder, inputs, _letters(text, shapes)))
    if len(shapes) < 2:
        return inputs
    if op == "MatMul" and all(shapes):
        return type(inputs)(_with_one_extent(builder, inputs, _of_product(*shapes)))
    if op == "Concat":
        return type(inputs)(agreeing(builder, inputs, int(attributes.get("axis", 0)) % len(shapes[0])))
    if _broadcasts(op, tuple(str(one.ty.dtype) for one in inputs), opset):
        return type(inputs)(agreeing(builder, inputs))
    return inputs


def agreeing(builder: relax.BlockBuilder, given: Any, apart: int | None = None) -> list[Any]:
    """``given``, tensors of known rank, with one expression for extents that must be equal, all but those of the axis
    ``apart``. Axes are counted from the last."""
    shapes = [shape for one in given if (shape := _shape(one)) is not None]
    if len(shapes) < len(given):
        return list(given)
    labels = [[None if at == apart else at - len(shape) for at in range(len(shape))] for shape in shapes]
    return _with_one_extent(builder, given, labels, spreads=apart is None)


def _with_one_extent(
    builder: relax.BlockBuilder, given: Any, labels: Sequence[Sequence[Any]], *, spreads: bool = True
) -> list[Any]:
    """``given`` with one expression for the extents of axes of one label, if any; one element goes with any number of
    them where it ``spreads``."""
    found, analyzer = list(given), sym.Analyzer()
    places: dict[Any, list[tuple[int, int]]] = {}
    for at, own in enumerate(labels):  # a number has no axes, and its place
        for axis, label in enumerate(own):
            if label is not None:
                places.setdefault(label, []).append((at, axis))
    for before, after in (pair for alike in places.values() for pair in combinations(alike, 2)):
        first, second = (_extents(found[at])[axis] for at, axis in (before, after))
        numbers = [int(extent) for extent in (first, second) if isinstance(extent, tirx.IntImm)]
        if (spreads and 1 in numbers) or len(numbers) == 2 or analyzer.can_prove_equal(first, second):
            continue
        is_first = _is_free(first, second) or _is_made_of(first, second)
        (at, axis), extent = (before, second) if is_first else (after, first)
        found[at] = with_extent(builder, found[at], axis, extent)
    return found


def _is_free(extent: Any, other: Any) -> bool:
    """Whether ``extent`` is a size by itself, and ``other`` an expression of others, which it may be called."""
    is_plain = isinstance(extent, tirx.Var) and not isinstance(other, tirx.Var)
    return is_plain and not _is_made_of(other, extent)


def _is_made_of(extent: Any, size: Any) -> bool:
    """Whether ``extent`` is an expression of the size, as ``min(s, 64)`` is; TVM computes no size of itself."""
    is_expression = isinstance(size, tirx.Var) and not isinstance(extent, tirx.Var)
    return is_expression and any(size.same_as(one) for one in tirx.analysis.undefined_vars(extent))


def with_extent(builder: relax.BlockBuilder, data: Any, axis: int, extent: Any) -> Any:
    """``data``, along ``axis`` as long as ``extent``, which each run checks."""
    shape = _extents(data)
    is_circular = _is_made_of(extent, shape[axis])
    shape[axis] = extent
    if not isinstance(extent, tirx.Var) and not is_circular:
        return builder.match_cast(builder.normalize(data), relax.TensorType(shape, str(data.ty.dtype)))
    # TVM drops a cast of one size to another, and takes none of a size to what is made of it; a reshape keeps its
    # elements (passes/fitting_sizes.py).
    return builder.normalize(builder.emit(relax.op.reshape(data, relax.ShapeExpr(shape))))


def _letters(equation: str, shapes: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """For each axis of the operands of ``Einsum`` its letter, or its place from the last of those that have none."""
    found = []
    for term, shape in zip(equation.replace(" ", "").partition("->")[0].split(","), shapes, strict=True):
        before, dots, after = term.partition("...")
        between = len(shape) - len(before) - len(after) if dots else 0
        found.append([*before, *range(-between, 0), *after])
    return found


def _of_product(one: Sequence[Any], other: Sequence[Any]) -> list[list[Any]]:
    """For each axis of two matrices, vectors, or stacks of matrices its place from the last in a stack, the same text
    for what is summed over, None for what is in one only."""
    first, second = ([*range(-len(shape), -2), None, None][-len(shape) :] for shape in (one, other))
    first[-1] = second[-2 if len(other) > 1 else -1] = "summed"
    return [first, second]


def _as_long_as_its_parts(builder: relax.BlockBuilder, inputs: list[Any], attributes: Mapping[str, Any]) -> list[Any]:
    """The inputs of a ``Split``, with data that are as long as its parts together, or that their number divides."""
    shape, given = _shape(inputs[0]), [*inputs, None][1]
    parts = given.value.numpy().tolist() if isinstance(given, ir.GenericConst) else attributes.get("split")
    if shape is None or "num_outputs" in attributes or not (parts or given is None):
        return inputs
    axis = int(attributes.get("axis", 0)) % len(shape)
    extent, count = shape[axis], int(attributes["tvm_custom"]["num_outputs"])
    if isinstance(extent, tirx.IntImm):
        return inputs
    whole = tirx.IntImm("int64", sum(map(int, parts))) if parts else tirx.floordiv(extent, count) * count
    if sym.Analyzer().can_prove_equal(extent, whole):
        return inputs
    shape[axis] = whole
    return [builder.normalize(builder.emit(relax.op.reshape(inputs[0], relax.ShapeExpr(shape)))), *inputs[1:]]


def _shape(value: Any) -> list[Any] | None:
    ty: Any = value.ty if isinstance(value, ir.Expr) else None
    is_known = isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr)
    return list(ty.shape.values) if is_known else None


def _extents(value: Any) -> list[Any]:
    return list(value.ty.shape.values)


def _is_open(shape: Any) -> bool:
    return not all(isinstance(extent, tirx.IntImm) for extent in shape)


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
