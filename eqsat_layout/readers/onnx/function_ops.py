"""Ops that ONNX itself writes in other ops.

In: a model. Out: one in whose graph these other ops stand, where an op has no converter or is asked for.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

from tvm.relax.frontend.onnx import onnx_frontend

from eqsat_layout.errors import EqsatError
from eqsat_layout.notes import last_of
from eqsat_layout.readers.onnx.definitions import draws
from eqsat_layout.readers.onnx.graphs import all_nodes, opset_of
from eqsat_layout.readers.onnx.inference import inferred


def has_function(op: str, opset: int) -> bool:
    """Whether ONNX writes an op in others."""
    defs = importlib.import_module("onnx").defs
    if not defs.has(op, opset):
        return False
    schema = defs.get_schema(op, opset)
    return bool(schema.has_function or schema.has_context_dependent_function)


def with_functions_written_out(model: Any, asked: frozenset[str]) -> Any:
    """``model`` without ops that have no converter, or are ``asked`` for, and that ONNX itself writes in other ops
    (``Celu``); the same object where there are none."""
    onnx = importlib.import_module("onnx")
    found: dict[str, None] = {}
    converters = onnx_frontend._get_convert_map()
    opset = opset_of(model)
    for node in all_nodes(model.graph):
        is_open = node.op_type in asked or not (node.op_type in converters or draws(node.op_type))
        if not node.domain and is_open and has_function(node.op_type, opset):
            found[node.op_type] = None
    if not found:
        return model
    typed = type(model)()
    typed.CopyFrom(model)
    for tensor in model.graph.initializer:  # whose types the inliner does not look up
        typed.graph.value_info.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    for node in all_nodes(typed.graph):
        if node.op_type in found:
            _say_defaults(onnx, node, opset)
            while node.input and not node.input[-1]:  # left out, as if it were not there
                del node.input[-1]
    inliner = importlib.import_module("onnx.inliner")
    if any(onnx.defs.get_schema(op, opset).has_context_dependent_function for op in found):
        typed = inferred(typed)  # the inliner asks for the types of these ops' operands
    is_said = _say_functions(onnx, typed, found, opset)
    try:
        typed = inliner.inline_local_functions(typed) if is_said else typed
        written = inliner.inline_selected_functions(
            typed, [("", op) for op in found], exclude=False, inline_schema_functions=True
        )
    except RuntimeError as error:
        raise EqsatError(f"ONNX does not write {', '.join(found)} in other ops: {last_of(error)}") from error
    if not is_said and written.graph == typed.graph:  # of another version of the op, which the inliner does not take
        return model
    return with_functions_written_out(written, asked)  # definitions may hold such ops themselves


def _say_defaults(onnx: Any, node: Any, opset: int) -> None:
    """Attributes that are left out, whose defaults the inliner does not look up."""
    known = {one.name for one in node.attribute}
    for name, one in onnx.defs.get_schema(node.op_type, opset).attributes.items():
        if one.default_value.name and name not in known:
            node.attribute.append(one.default_value)


def _say_functions(onnx: Any, model: Any, ops: Any, opset: int) -> bool:
    """Of nodes that leave out operands, the definitions that depend on which: the inliner asks for these operands'
    types. They are functions of the model then; whether there are any."""
    nodes = [node for node in model.graph.node if node.op_type in ops and "" in node.input]
    open_ones = [(node, onnx.defs.get_schema(node.op_type, opset)) for node in nodes]
    open_ones = [(node, schema) for node, schema in open_ones if schema.has_context_dependent_function]
    if not open_ones:
        return False
    graph = model.graph
    types = {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}
    for number, (node, schema) in enumerate(open_ones):
        version = max(v for v in schema.context_dependent_function_opset_versions if v <= opset)
        given = [types.get(name, onnx.TypeProto()).SerializeToString() for name in node.input]
        text = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), given)
        function = onnx.FunctionProto.FromString(text)
        function.domain, function.name = _WRITTEN, f"{node.op_type}{number}"
        model.functions.append(function)
        node.domain, node.op_type = function.domain, function.name
    model.opset_import.append(onnx.helper.make_opsetid(_WRITTEN, 1))
    return True


_WRITTEN: Final = "eqsat_layout.written"
"""The domain of functions that stand for one node."""
