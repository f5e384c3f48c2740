"""What ONNX itself says of the types of a graph's tensors, beside what TVM's frontend made of them.

In: a model, and the frontend's expressions by name. Out: nothing, or an error that names the node: one whose operands
are of types that its op does not take, or whose result is of another type, as a converter ignored something.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any, Final

import tvm
from tvm import relax, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.onnx.definitions import why_mistyped
from eqsat_layout.readers.onnx.graphs import OnnxNodeError, of_node, opset_of
from eqsat_layout.readers.onnx.inference import inferred

MOST_KNOWN: Final = 1_024
"""Elements of constants that the inference may look into: shapes are smaller, and weights need not be copied."""

_MISCOUNTED: Final = ("AveragePool", "MaxPool", "LpPool", "Resize", "STFT", "Upsample")
"""ONNX's inference counts windows that begin in the padding, and frequencies that are left out; its runtimes don't. It
multiplies extents by scales in double precision, and these in that of the scales: 10 by .7 are 6, and 7."""

_Type = tuple[str, tuple[int | None, ...] | None]
"""Element type, and extents where they are known."""


def check_operand_types(model: Any, made: dict[str, Any]) -> None:
    """:class:`OnnxNodeError` unless all operands are of types that ops take, and what was ``made`` of results of the
    types that ONNX infers."""
    types, opset = _inferred(model), opset_of(model)
    for node in model.graph.node:
        dtypes = {name: types[name][0] for name in node.input if name in types}
        if not node.domain and (why := why_mistyped(str(node.op_type), opset, node.input, dtypes)):
            raise OnnxNodeError(f"{of_node(node)}: {why}", node.op_type)
    _check_results(model, types, made)


def _check_results(model: Any, types: dict[str, _Type], made: dict[str, Any]) -> None:
    miscounted = set[str]()
    for node in model.graph.node:
        is_miscounted = node.op_type in _MISCOUNTED or not miscounted.isdisjoint(node.input)
        for name in node.output:
            if name not in types or name not in made:
                continue
            if is_miscounted and _differ(types[name], made[name], is_miscounted=False):
                miscounted.add(name)  # and so is what is made of it
            if _differ(types[name], made[name], is_miscounted):
                dtype, shape = types[name]
                extents = ", ".join("?" if extent is None else str(extent) for extent in shape or ())
                raise OnnxNodeError(
                    f"{of_node(node)}: its result {name!r} is {dtype} of shape ({extents}), "
                    f"and TVM's frontend makes {made[name].ty} of it; this is not done",
                    node.op_type,
                )


def _differ(said: _Type, made: Any, is_miscounted: bool) -> bool:
    ty = getattr(made, "ty", None)
    if not isinstance(ty, relax.TensorType) or ty.dtype is None:
        return False
    dtype, shape = said
    if str(ty.dtype) != dtype:
        return True
    if shape is None or not isinstance(ty.shape, relax.ShapeExpr):
        return False
    extents = list(ty.shape.values)
    both = [] if is_miscounted else zip(extents, shape, strict=False)
    return len(extents) != len(shape) or any(
        known is not None and isinstance(extent, tirx.IntImm) and int(extent) != known for extent, known in both
    )


def _inferred(model: Any) -> dict[str, _Type]:
    onnx = importlib.import_module("onnx")
    found = inferred(_without_weights(onnx, model))
    dtypes = _dtypes(onnx)
    types: dict[str, _Type] = {
        tensor.name: (dtypes[tensor.data_type], tuple(tensor.dims))
        for tensor in model.graph.initializer
        if tensor.data_type in dtypes
    }
    for value in (*model.graph.input, *found.graph.value_info, *found.graph.output):
        tensor = value.type.tensor_type
        if value.type.HasField("tensor_type") and tensor.elem_type in dtypes:
            dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
            types[value.name] = dtypes[tensor.elem_type], tuple(dims) if tensor.HasField("shape") else None
    return types


def _dtypes(onnx: Any) -> dict[int, str]:
    kinds = onnx.TensorProto
    whole = [f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)]
    names = {kind: kind.lower() for kind in ("FLOAT16", "BFLOAT16", "BOOL", *whole)}
    names |= {"FLOAT": "float32", "DOUBLE": "float64"}
    return {getattr(kinds, kind): name for kind, name in names.items()}


def _without_weights(onnx: Any, model: Any) -> Any:
    """The same graph, of which large constants and what the file says of results are left out."""
    light = type(model)()
    light.ir_version = model.ir_version
    light.opset_import.extend(model.opset_import)
    light.graph.name = model.graph.name
    light.graph.node.extend(model.graph.node)
    light.graph.input.extend(model.graph.input)
    given = {value.name for value in model.graph.input}
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) <= MOST_KNOWN:
            light.graph.initializer.append(tensor)
        elif tensor.name not in given:
            light.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    for value in model.graph.output:
        light.graph.output.add().name = value.name
    return light


_NARROW: Final = ("float4_", "float6_", "float8_", "int2", "int4", "uint2", "uint4", "custom")


def check_dtypes(what: str, values: Any) -> None:
    """TVM's conversions of narrow types give other numbers: of zero in ``float8_e4m3fn`` 2^-7."""
    for value in values:
        ty = value.ty if isinstance(value, tvm.ir.Expr) else None
        for one in ty.fields if isinstance(ty, tvm.ir.TupleType) else [ty]:
            if isinstance(one, tvm.relax.TensorType) and str(one.dtype).startswith(_NARROW):
                raise EqsatError(f"{what} is {one.dtype}: numbers of fewer than 8 bits, and floats of 8, are not done")


def dtypes_of(names: Sequence[str], values: Any) -> dict[str, str]:
    """Of operands that are tensors, by their names."""
    types = {name: getattr(value, "ty", None) for name, value in zip(names, values, strict=False)}
    return {name: str(ty.dtype) for name, ty in types.items() if isinstance(ty, tvm.relax.TensorType)}
