"""TVM's importer of ONNX graphs, that keeps the names of nodes and says which one is at fault.

In: a graph. Out: a module, and what its variables were called. Import it late: TVM's own takes long, and needs onnx.
"""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import tvm
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter, _get_convert_map, onnx_input

from eqsat_layout.errors import EqsatError
from eqsat_layout.notes import said_by
from eqsat_layout.readers.onnx import (
    auto_pads,
    contrib,
    converter_fixes,
    halves,
    missing_ops,
    of_sizes,
    pads,
    quantized,
    recurrent,
    resizes,
    windowed_attention,
)
from eqsat_layout.readers.onnx.converter_errors import said_of_failure
from eqsat_layout.readers.onnx.definitions import why_mistyped, why_not_taken
from eqsat_layout.readers.onnx.equal_extents import with_equal_extents
from eqsat_layout.readers.onnx.graphs import (
    COMPLEX,
    TEXT,
    ConstantBudget,
    OnnxNodeError,
    graphs_of,
    names_read,
    node_name,
    of_node,
    said_names,
)
from eqsat_layout.readers.onnx.known_sizes import KnownSizes, as_operands, as_result
from eqsat_layout.readers.onnx.ranks import check_ranks, with_known_rank
from eqsat_layout.readers.onnx.reductions import of_each
from eqsat_layout.readers.onnx.suppression import non_max_suppression
from eqsat_layout.readers.onnx.types import check_dtypes, check_operand_types, dtypes_of
from eqsat_layout.readers.onnx.versions import with_operands


class Importer(ONNXGraphImporter):  # type: ignore[misc]
    def __init__(self, opset: int, given: int = 0) -> None:
        super().__init__({}, "float32", keep_params_in_input=False, sanitize=True)
        self.original_names: dict[Any, str] = {}
        self._given: set[Any] = set()
        self._is_inside = False
        self._budget = ConstantBudget(given)
        self._sizes = KnownSizes()

    def _convert_operator(self, op_name: str, inputs: Any, attrs: Any, opset: int) -> Any:
        """Tensors of numbers are bound to variables at once; those of integers may be shapes, which the converters
        of other nodes look into."""
        name, results = attrs["tvm_custom"]["name"], attrs["tvm_custom"].get("results", ())
        try:
            check_dtypes("an operand", inputs)
            made = self._made(op_name, inputs, attrs, opset)
            if isinstance(made, tvm.relax.Call):  # whose type converters of other nodes look into
                made = self.bb.normalize(made)
            self._check(op_name, made, attrs["tvm_custom"]["num_outputs"])
        except Exception as error:  # converters raise whatever they meet
            names = attrs["tvm_custom"].get("operands", ())
            types = {} if isinstance(error, EqsatError) else dtypes_of(names, inputs)
            said = why_mistyped(op_name, opset, names, types) or said_of_failure(error, inputs)
            raise OnnxNodeError(f"{node_name(name, op_name, results)}: {said}", op_name) from error
        is_named = name and not self._is_inside and _is_of_numbers(made)
        if is_named and isinstance(made, tvm.ir.Call):
            made = self.bb.emit(made)
        self._sizes.keep(op_name, inputs, attrs, made)
        if (
            name
            and not self._is_inside
            and isinstance(made, tvm.relax.Var | tvm.relax.Call)
            and made not in self._given
        ):
            self.original_names.setdefault(made, name)
        return made

    def _construct_nodes(self, graph: Any) -> None:
        """As TVM's does, which refuses sizes as operands of most ops."""
        read = names_read(graph)
        for node, name in zip(graph.node, said_names(graph), strict=True):
            if node.op_type == "If":
                super()._construct_nodes(SimpleNamespace(node=[node]))
                self._nodes.update({one: with_known_rank(self.bb, self._nodes[one]) for one in node.output})
                continue
            check_ranks(node, {name: self._nodes[name] for name in node.input if name})
            inputs = onnx_input(self._nodes[name] if name else None for name in node.input)
            attributes = self._parse_attr(node.attribute)
            attributes["tvm_custom"] = {
                "name": name,
                "operands": list(node.input),
                "results": list(node.output),
                "num_outputs": len(node.output),
                "outputs": [name if name in read else "" for name in node.output],
            }
            made = self._convert_operator(contrib.name_of(node), inputs, attributes, self.opset)
            if _is_sequence(node.op_type):
                self._nodes[node.output[0]] = made
            else:
                self._nodes.update(zip(node.output, _parts(self.bb, made), strict=False))
        for result in graph.output:
            self._nodes[result.name] = as_result(self.bb, self._nodes[result.name])

    def _made(self, op_name: str, inputs: Any, attrs: Any, opset: int) -> Any:
        self._budget.check(op_name, inputs, attrs, opset)
        if (known := self._sizes.computed(op_name, inputs, attrs)) is not None:
            return known
        inputs = as_operands(self.bb, op_name, inputs)
        if op_name == "Reshape" and (sizes := _reshaped_sizes(inputs)) is not None:
            return sizes
        if op_name == "Constant":
            attrs = _with_tensor(attrs)
        inputs, attrs, opset = with_operands(op_name, inputs, attrs, opset)
        inputs, attrs = auto_pads.with_pads(self.bb, op_name, inputs, attrs)
        if (made := self._made_here(op_name, inputs, attrs, opset)) is not None:
            return made
        if op_name == "Upsample" or (op_name == "Resize" and opset < resizes.BY_PLACE):
            return self._made("Resize", *resizes.as_resize(inputs, attrs), max(opset, resizes.FULL))
        if op_name == "Resize":
            inputs, attrs = resizes.of_all_axes(resizes.without_empty(inputs), attrs)
            if resizes.is_by_rows(inputs, attrs):
                return self.bb.normalize(resizes.by_rows(self.bb, inputs, attrs))
        convert = super()._convert_operator
        if op_name in quantized.KINDS:
            made = quantized.converted(
                self.bb, op_name, inputs, attrs, lambda op, given, a: convert(op, type(inputs)(given), a, opset)
            )
            return self.bb.normalize(made)
        if op_name in ("DequantizeLinear", "QuantizeLinear") and attrs.get("block_size"):
            return self.bb.normalize(quantized.quantised_in_blocks(self.bb, op_name, inputs, attrs))
        converter_fixes.check_attributes(op_name, attrs, opset)
        converter_fixes.check_meaning(op_name, inputs, attrs)
        inputs = with_equal_extents(self.bb, op_name, inputs, attrs, opset)
        inputs = converter_fixes.fixed_inputs(self.bb, op_name, inputs, attrs, opset)

        def converted(given: Any) -> Any:
            own = dict(attrs)  # converters change them
            return converter_fixes.converted(
                self.bb, op_name, given, own, lambda one: convert(op_name, one, own, opset)
            )

        return halves.converted(self.bb, op_name, opset, inputs, converted)

    def _made_here(self, op_name: str, inputs: Any, attrs: Any, opset: int) -> Any:
        """The result of a node that TVM's frontend does not take; None for others."""
        if (made := of_sizes.converted(self.bb, op_name, inputs, attrs)) is not None:
            return self.bb.normalize(made)
        if (made := of_each(self.bb, op_name, inputs, attrs)) is not None:
            return self.bb.normalize(made)
        if op_name == "NonMaxSuppression":
            return non_max_suppression(self.bb, inputs, attrs)
        if pads.is_of_sizes(op_name, inputs):
            return self.bb.normalize(pads.converted(self.bb, inputs, attrs))
        if op_name in recurrent.KINDS:
            return recurrent.converted(self.bb, op_name, inputs, attrs)
        if windowed_attention.takes(op_name, inputs, attrs):
            return windowed_attention.converted(self.bb, inputs, attrs)
        if contrib.takes(op_name):
            return self.bb.normalize(contrib.converted(self.bb, op_name, inputs, attrs))
        if missing_ops.takes(op_name, attrs["tvm_custom"]["num_outputs"]):
            inputs = with_equal_extents(self.bb, op_name, inputs, attrs, opset)
            return self.bb.normalize(missing_ops.converted(self.bb, op_name, inputs, attrs, opset))
        return None

    def check_types(self, model: Any) -> None:
        """:class:`EqsatError` where operands of a node, or what was made of it, are of other types than ONNX says."""
        check_operand_types(model, self._nodes)

    def _check_for_unsupported_ops(self, graph: Any) -> None:
        for node in graph.node:
            is_own = node.op_type in _OWN or missing_ops.takes(node.op_type, len(node.output))
            is_own = is_own or contrib.takes(contrib.name_of(node))
            if not is_own and node.op_type not in _get_convert_map():
                raise OnnxNodeError(f"{of_node(node)}: {why_not_taken(node, self.opset)}", node.op_type)
            for inner in graphs_of(node):
                self._check_for_unsupported_ops(inner)

    def _check(self, op: str, made: Any, results: int) -> None:
        """The results are as many as asked for, and of types that are computed rightly."""
        parts = list(made.fields) if isinstance(made, tvm.relax.Tuple) else [made]
        types = [getattr(part, "ty", None) for part in parts]
        if len(types) == 1 and isinstance(types[0], tvm.ir.TupleType):
            types = list(types[0].fields)
        if len(types) < results and not _is_sequence(op):
            raise EqsatError(f"with {results} results is not done")
        check_dtypes("its result", parts)

    def _parse_attr(self, attributes: Any) -> Any:
        """As TVM's does, which refuses empty lists."""
        kinds = importlib.import_module("onnx").AttributeProto
        lists = {kinds.INTS: "ints", kinds.FLOATS: "floats", kinds.STRINGS: "strings"}
        empty = {str(one.name) for one in attributes if one.type in lists and not getattr(one, lists[one.type])}
        read = super()._parse_attr([one for one in attributes if one.name not in empty])
        return read | dict.fromkeys(empty, ())

    def _parse_array(self, tensor: Any) -> Any:
        if tensor.data_type == TEXT:
            raise EqsatError(f"tensor {tensor.name!r} holds text, which is not done")
        if tensor.data_type in _FOUR_BITS_AND_LESS:
            kind = importlib.import_module("onnx").TensorProto.DataType.Name(tensor.data_type).lower()
            raise EqsatError(f"tensor {tensor.name!r} is {kind}: numbers of fewer than 8 bits are not done")
        try:
            return super()._parse_array(tensor)
        except (ValueError, TypeError, MemoryError) as error:
            raise EqsatError(f"tensor {tensor.name!r}: {said_by(error)}") from error

    def _parse_graph_input(self, graph: Any) -> None:
        for value in graph.input:
            if value.type.tensor_type.elem_type == TEXT:
                raise EqsatError(
                    f"input {value.name!r} holds text, which is not done: give numbers (the words' indices)"
                )
            if value.type.tensor_type.elem_type in COMPLEX:
                raise EqsatError(f"input {value.name!r} holds complex numbers, which is not done: give pairs of reals")
        super()._parse_graph_input(graph)
        self._given = set(self._inputs.values())

    def _convert_subgraph(self, bb: Any, graph: Any) -> Any:
        outside, self._is_inside = self._is_inside, True
        try:
            return as_result(bb, super()._convert_subgraph(bb, graph))
        finally:
            self._is_inside = outside


_OWN: Final = recurrent.KINDS | quantized.KINDS | {"If", "Constant"}

_OF_SEQUENCES: Final = frozenset(
    [
        "ConcatFromSequence",
        "Optional",
        "OptionalGetElement",
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceErase",
        "SequenceInsert",
        "SplitToSequence",
    ]
)


def _is_sequence(op: str) -> bool:
    """Whether the result of an op is one, or may be; in Relax these are tuples."""
    return op in _OF_SEQUENCES


def _parts(builder: tvm.relax.BlockBuilder, made: Any) -> list[Any]:
    """The results of a node, one by one."""
    if isinstance(made, tvm.relax.Tuple):
        return list(made)
    if not isinstance(made, tvm.ir.Expr) or not isinstance(made.ty, tvm.relax.TupleType):
        return [made]
    return [builder.emit(tvm.relax.TupleGetItem(made, at)) for at in range(len(made.ty.fields))]


_FOUR_BITS_AND_LESS: Final = frozenset({21, 22, 23, 25, 26})
"""ONNX's numbers of uint4, int4, float4, uint2 and int2."""

_NUMBERS: Final = {"value_float": "float32", "value_floats": "float32", "value_int": "int64", "value_ints": "int64"}


def _with_tensor(attributes: dict[str, Any]) -> dict[str, Any]:
    """Of a ``Constant``: numbers that are attributes of their own as the tensor that they stand for."""
    helper = importlib.import_module("onnx.numpy_helper")
    numbers = [np.asarray(attributes[name], kind) for name, kind in _NUMBERS.items() if name in attributes]
    return attributes | {"value": helper.from_array(numbers[0])} if numbers else attributes


def _reshaped_sizes(inputs: Any) -> Any:
    """Sizes as a vector of as many, which TVM's converter takes for no tensor; None for others."""
    data, shape = list(inputs)[:2]
    sizes = list(data.values) if isinstance(data, tvm.relax.ShapeExpr) else [data]
    is_known = isinstance(data, tvm.relax.ShapeExpr) or (isinstance(data, tvm.ir.Expr) and _is_size(data))
    if not is_known or not isinstance(shape, tvm.ir.GenericConst):
        return None
    return tvm.relax.ShapeExpr(sizes) if shape.value.numpy().tolist() in ([-1], [len(sizes)]) else None


def _is_size(value: Any) -> bool:
    return isinstance(value.ty, tvm.ir.PrimType) and str(value.ty) == "int64"


def _is_of_numbers(made: Any) -> bool:
    ty = made.ty if isinstance(made, tvm.ir.Expr) else None
    return isinstance(ty, tvm.relax.TensorType) and str(ty.dtype).startswith(("float", "bfloat"))
