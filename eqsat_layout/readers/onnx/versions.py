"""ONNX graphs as newer or wider ones that mean the same.

In: a model. Out: the same object, or a copy: of opset 7 where it is older, by ONNX's own converter; with whole bytes
for weights of 2 and 4 bits. In: a node. Out: the same with operands that were attributes once.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from tvm import relax

from eqsat_layout.errors import EqsatError
from eqsat_layout.notes import first_line
from eqsat_layout.readers.onnx.graphs import all_nodes, opset_of
from eqsat_layout.readers.onnx.inference import inferred

OLDEST: Final = 7
"""Before it operands were broadcast by attributes."""

_WIDER: Final = {"INT4": "INT8", "INT2": "INT8", "UINT4": "UINT8", "UINT2": "UINT8"}


def of_a_known_version(model: Any) -> Any:
    """Of opset :data:`OLDEST` or newer, ONNX's own ops by the name that ONNX's tools look up."""
    model = _with_plain_domain(model)
    onnx, version = importlib.import_module("onnx"), opset_of(model, unsaid=OLDEST)
    for what, own, newest in (
        ("opset", version, onnx.defs.onnx_opset_version()),
        ("IR version", model.ir_version, onnx.IR_VERSION),
    ):
        if own > newest:
            raise EqsatError(
                f"of {what} {own}, and the package onnx {onnx.__version__}, which reads it, knows {newest} at most"
            )
    if version >= OLDEST:
        return model
    model = _with_slopes_of_channels(model)
    converter = importlib.import_module("onnx.version_converter")
    try:
        return converter.convert_version(model, OLDEST)
    except (RuntimeError, converter.ConvertError) as error:
        raise EqsatError(f"of opset {version}, which ONNX does not convert to {OLDEST}: {first_line(error)}") from error


def _with_slopes_of_channels(model: Any) -> Any:
    """Slopes of ``PRelu``, which are of the axis 1, as newer versions spread them: ONNX's converter leaves them."""
    slopes = {str(node.input[1]): str(node.input[0]) for node in all_nodes(model.graph) if node.op_type == "PRelu"}
    if not slopes:
        return model
    onnx, changed = importlib.import_module("onnx"), inferred(model)
    graph = changed.graph
    ranks = {one.name: len(one.type.tensor_type.shape.dim) for one in (*graph.input, *graph.value_info, *graph.output)}
    for tensor in graph.initializer:
        if tensor.name in slopes and len(tensor.dims) == 1 and tensor.dims[0] > 1:
            tensor.dims.extend([1] * (ranks.get(slopes[tensor.name], 2) - 2))
            for value in (one for one in graph.input if one.name == tensor.name):
                value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, tensor.data_type, tensor.dims))
    return changed


def with_functions_of_its_version(model: Any) -> Any:
    """Functions in ONNX's own ops as the model's version has them, by ONNX's converter where they differ."""
    version = opset_of(model)
    if all(opset_of(one, version) == version for one in model.functions):
        return model
    changed = type(model)()
    changed.CopyFrom(model)
    for one in changed.functions:
        own = opset_of(one, version)
        if _means_another(one, own, version):
            _convert_function(one, own, version)
        for said in one.opset_import:
            if not said.domain:
                said.version = version
    return changed


def _means_another(function: Any, own: int, version: int) -> bool:
    """Whether some op of the function has been defined anew between the versions."""
    defs = importlib.import_module("onnx.defs")

    def defined(op: str, at: int) -> int:
        try:
            return int(defs.get_schema(op, at, "").since_version)
        except defs.SchemaError:
            return 0

    ops = {str(node.op_type) for node in all_nodes(function) if not node.domain}
    return any(defined(op, own) != defined(op, version) for op in ops)


def _convert_function(function: Any, own: int, version: int) -> None:
    onnx = importlib.import_module("onnx")
    converter = importlib.import_module("onnx.version_converter")
    what = f"function {function.name!r} is of opset {own}, which ONNX does not convert to the model's {version}"
    if any(one.ref_attr_name for node in all_nodes(function) for one in node.attribute):
        raise EqsatError(f"{what}: its nodes have attributes of the function's")  # ONNX's converter takes them for 0
    ports = [[onnx.ValueInfoProto(name=name) for name in names] for names in (function.input, function.output)]
    body = onnx.helper.make_model(
        onnx.helper.make_graph(function.node, function.name, *ports), opset_imports=function.opset_import
    )
    try:
        converted = converter.convert_version(body, version)
    except (RuntimeError, converter.ConvertError) as error:
        raise EqsatError(f"{what}: {first_line(error)}") from error
    del function.node[:]
    function.node.extend(converted.graph.node)


def _with_plain_domain(model: Any) -> Any:
    """``ai.onnx`` is another name of ONNX's own domain, whose name is empty."""
    if next(_of_long_name(model), None) is None:
        return model
    changed = type(model)()
    changed.CopyFrom(model)
    for one in _of_long_name(changed):
        one.domain = ""
    return changed


def _of_long_name(model: Any) -> Iterator[Any]:
    """The imports, functions and nodes that say ``ai.onnx``."""
    for owner, body in ((model, model.graph), *((one, one) for one in model.functions)):
        said = (*owner.opset_import, *model.functions, *all_nodes(body))
        yield from (one for one in said if one.domain == _LONG_NAME)


_LONG_NAME: Final = "ai.onnx"


def with_whole_bytes(model: Any) -> Any:
    """Weights of 2 and 4 bits that are only dequantised, as numbers of 8."""
    onnx = importlib.import_module("onnx")
    kinds = {getattr(onnx.TensorProto, old): getattr(onnx.TensorProto, new) for old, new in _WIDER.items()
             if hasattr(onnx.TensorProto, old)}  # fmt: skip
    narrow = {tensor.name for tensor in model.graph.initializer if tensor.data_type in kinds}
    for node in all_nodes(model.graph):
        if node.op_type != "DequantizeLinear":
            narrow.difference_update(node.input)
    if not narrow:
        return model
    changed = type(model)()
    changed.CopyFrom(model)
    for tensor in changed.graph.initializer:
        if tensor.name in narrow:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kinds[tensor.data_type])
            tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor).astype(dtype), tensor.name))
    for value in changed.graph.input:
        if value.name in narrow:
            value.type.tensor_type.elem_type = kinds[value.type.tensor_type.elem_type]
    return changed


_BECAME_OPERANDS: Final = {"Slice": ("starts", "ends", "axes"), "TopK": ("k",)}
"""What was attributes before version 10; converters know operands since :data:`_SINCE`."""

_SINCE: Final = 11


def with_operands(op: str, inputs: Any, attributes: dict[str, Any], opset: int) -> tuple[Any, dict[str, Any], int]:
    """Inputs, attributes and version of a node of an older version, as they are today; others as they are."""
    names = _BECAME_OPERANDS.get(op)
    if names is None:
        return inputs, attributes, opset
    if attributes.keys() & set(names):
        given = [attributes.get(name) for name in names]
        operands = [None if one is None else relax.const(np.atleast_1d(one).astype("int64"), "int64") for one in given]
        inputs = type(inputs)([inputs[0], *operands])
        attributes = {name: value for name, value in attributes.items() if name not in names}
    return inputs, attributes, max(opset, _SINCE)
