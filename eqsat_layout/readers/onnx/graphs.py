"""Which nodes an ONNX graph may have, and what a node may make.

In: a ``GraphProto``; or a node as TVM's importer has it, before it is converted. Out: nothing, or an error that names
the node. TVM's converters compute what is constant at once, and take an op of any domain for ONNX's own of that name.
"""

from __future__ import annotations

import importlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import chain
from typing import Any, Final

import numpy as np
import tvm
from tvm import relax

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.guards.tensor_sizes import UnsafeTensorError, check_extents

MOST_COMPUTED: Final = 1 << 26
"""Elements of all constants that the converters compute, beside :data:`MOST_PER_GIVEN` for each byte of the weights."""

MOST_PER_GIVEN: Final = 4
"""Weights are numbers that bytes stand for, which are transposed and scaled."""

MOST_RESULTS: Final = 2048
"""Of one node: TVM's time grows with their square."""

_LARGEST_NUMBER: Final = (1 << 31) - 1
"""Of an attribute: the axis 2^32 is the axis 0 in 32 bits."""

_ANY_NUMBER: Final = ("value_int", "start", "end")
"""Attributes that no 32 bits hold: a constant, and where the part of a shape ends, which may be "at the end"."""

TEXT: Final = 8
"""ONNX's number of that type of elements."""

COMPLEX: Final = (14, 15)
"""Those of 64 and 128 bits."""

_DOMAINS: Final = ("", "com.microsoft")
"""Whose ops the converters mean; functions of other domains are written out before."""


class OnnxNodeError(EqsatError):
    """A node that can't be taken as it is; ``op``: what ONNX itself may write in other ops."""

    def __init__(self, text: str, op: str) -> None:
        super().__init__(text)
        self.op = op


def node_name(name: str, op: str, results: Iterable[str]) -> str:
    """How errors call a node: one without a name by what it makes."""
    if name:
        return f"node {name!r} ({op})"
    made = next(filter(None, results), "")
    return f"the node of {made!r} ({op})" if made else f"a node without a name ({op})"


def of_node(node: Any) -> str:
    """How errors call a node of a graph."""
    return node_name(str(node.name), str(node.op_type), node.output)


def said_names(graph: Any) -> Iterator[str]:
    """What each node is called, with its first result where others of the graph have its name."""
    taken = Counter(str(node.name) for node in graph.node)
    for node in graph.node:
        name, made = str(node.name), next(filter(None, node.output), "")
        yield f"{name}:{made}" if name and made and taken[name] > 1 else name


def in_topological_order(model: Any) -> Any:
    """``model``, each node of which reads what is made before it; a copy where that takes sorting. Tools that put casts
    into models append them, and ONNX Runtime sorts. :class:`EqsatError` where no order will do."""
    try:
        check_order(model.graph)
    except EqsatError:
        ordered = type(model)()
        ordered.CopyFrom(model)
        _sort(ordered.graph)
        check_order(ordered.graph)
        return ordered
    return model


def _sort(graph: Any) -> None:
    """By what nodes read, else as they stand; nodes that wait for themselves stand last."""
    nodes = list(graph.node)
    makers = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    waits = [0] * len(nodes)
    readers: list[list[int]] = [[] for _ in nodes]
    for at, node in enumerate(nodes):
        inner = graphs_of(node)
        for graph_inside in inner:
            _sort(graph_inside)
        for maker in {makers[name] for name in {*node.input, *chain(*map(names_read, inner))} if name in makers}:
            waits[at] += 1
            readers[maker].append(at)
    ready = [at for at, count in enumerate(waits) if not count]
    order = []
    while ready:
        at = heappop(ready)
        order.append(at)
        for reader in readers[at]:
            waits[reader] -= 1
            if not waits[reader]:
                heappush(ready, reader)
    order += [at for at, count in enumerate(waits) if count]
    moved = [type(node).FromString(nodes[at].SerializeToString()) for at, node in zip(order, nodes, strict=True)]
    del graph.node[:]
    graph.node.extend(moved)


def check_order(graph: Any, known: Iterable[str] = ()) -> None:
    """:class:`EqsatError` unless each node reads what is made before it, and no name is made twice in a graph."""
    own = {*(tensor.name for tensor in graph.initializer), *(value.name for value in graph.input)}
    made = {"", *known, *own}
    _check_weights(graph)
    for node in graph.node:
        what = of_node(node)
        for name in node.input:
            if name not in made:
                raise EqsatError(f"{what} reads {name!r}, which nothing makes before it")
        for inner in graphs_of(node):
            check_order(inner, made)
        _check_attributes(node, what)
        for name in filter(None, node.output):
            if name in own:
                raise EqsatError(f"{what} makes {name!r}, which is made already")
            own.add(name)
        made.update(node.output)
    for value in graph.output:
        if value.name not in made:
            raise EqsatError(f"the result {value.name!r} is made by no node")


def _check_weights(graph: Any) -> None:
    """:class:`EqsatError` for stored tensors that can not be read."""
    for tensor in graph.initializer:
        _check_stored(tensor)
    for tensor in graph.sparse_initializer:
        raise EqsatError(f"tensor {tensor.values.name!r} is sparse, which is not known here")


def _check_attributes(node: Any, what: str) -> None:
    """:class:`EqsatError` for tensors in a node that are none, for more or fewer results than it says, and for numbers
    that TVM would cut off without a word."""
    for attribute in node.attribute:
        if attribute.HasField("sparse_tensor"):
            raise EqsatError(f"{what} holds a sparse tensor, which is not known here")
        for tensor in ([attribute.t] if attribute.HasField("t") else []) + list(attribute.tensors):
            _check_stored(tensor)
    if len(node.output) > MOST_RESULTS:
        raise EqsatError(f"{what} has {len(node.output)} results, more than {MOST_RESULTS}")
    said = next((int(attribute.i) for attribute in node.attribute if attribute.name == "num_outputs"), None)
    if said not in (None, len(node.output)):  # ONNX's own inference makes as many as it says
        raise EqsatError(f"{what} says num_outputs={said}, and has {len(node.output)} results")
    large = next((one for one in node.attribute if abs(one.i) > _LARGEST_NUMBER and one.name not in _ANY_NUMBER), None)
    if large is not None:
        raise EqsatError(f"{what} has {large.name}={large.i}, which is not done")


def _check_stored(tensor: Any) -> None:
    """:class:`EqsatError` for elements of a type that ONNX does not have, or of a shape that none has."""
    if not _is_known(tensor.data_type):
        raise EqsatError(f"tensor {tensor.name!r} is of type {tensor.data_type}, which ONNX does not know")
    if any(extent < 0 for extent in tensor.dims):
        raise EqsatError(f"tensor {tensor.name!r} has an extent below zero: {list(tensor.dims)}")


def _is_known(number: int) -> bool:
    """A type of elements."""
    return number != 0 and number in importlib.import_module("onnx").TensorProto.DataType.values()


def check_domains(graph: Any) -> None:
    """:class:`EqsatError` for the first node that is none of ONNX's."""
    for node in graph.node:
        if node.domain not in _DOMAINS:
            raise EqsatError(f"{of_node(node)} is of the domain {node.domain!r}, which is not known here")
        for inner in graphs_of(node):
            check_domains(inner)


def check_ports(graph: Any) -> None:
    """:class:`EqsatError` for an input or a result that is no tensor, an input of no type, two of one name, or no
    result at all."""
    names = [str(value.name) for value in graph.input]
    if twice := [name for name in names if names.count(name) > 1]:
        raise EqsatError(f"has two inputs {twice[0]!r}")
    if not graph.output:
        raise EqsatError("gives nothing: its graph has no outputs")
    for what, values in (("input", graph.input), ("result", graph.output)):
        for value in values:
            kind = value.type.WhichOneof("value")
            if kind not in (None, "tensor_type"):
                raise EqsatError(
                    f"the {what} {value.name!r} is no tensor but of the kind {str(kind).removesuffix('_type')}"
                )
    for value in graph.input:
        number = value.type.tensor_type.elem_type
        if not _is_known(number):
            what = f"is of type {number}, which ONNX does not know" if number else "has no type"
            raise EqsatError(f"the input {value.name!r} {what}")


def graphs_of(node: Any) -> list[Any]:
    """The branches and bodies that a node holds."""
    return [
        inner
        for attribute in node.attribute
        for inner in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs)
    ]


def opset_of(model: Any, unsaid: int = 1) -> int:
    """The version of ONNX's own ops that a model or function is written in; ``unsaid`` where it names none."""
    return next((int(one.version) for one in model.opset_import if not one.domain), unsaid)


def all_nodes(graph: Any) -> Iterator[Any]:
    """Those of a graph and of the graphs in its nodes."""
    for node in graph.node:
        yield node
        for inner in graphs_of(node):
            yield from all_nodes(inner)


def names_read(graph: Any) -> set[str]:
    """The names of what nodes read and of results, in a graph and the graphs in its nodes."""
    names = {str(result.name) for result in graph.output}
    for node in graph.node:
        names.update(node.input)
        for inner in graphs_of(node):
            names |= names_read(inner)
    return names


def bytes_given(model: Any) -> int:
    """The bytes of the constants that are stored in a model's graph."""
    return sum(int(tensor.ByteSize()) for tensor in model.graph.initializer)


class ConstantBudget:
    """What the constants of one model may become while it is converted. ``given``: bytes of those that it has."""

    def __init__(self, given: int = 0) -> None:
        self._most = self._left = MOST_COMPUTED + MOST_PER_GIVEN * given

    def check(self, op: str, inputs: Sequence[Any], attributes: Mapping[str, Any], opset: int) -> None:
        """:class:`UnsafeTensorError` where a result would be huge; what ONNX can't tell beforehand passes."""
        shapes = _shapes(op, inputs, attributes, opset)
        for dtype, extents in shapes:
            if dtype == "object":
                raise EqsatError("its result is text, which is not done")
            check_extents(extents, len(extents), dtype, "its result")
        if all(given is None or _constant(given) is not None or _is_constant(given) for given in inputs):
            self._left -= sum(math.prod(extents) for _, extents in shapes)
            if self._left < 0:
                raise UnsafeTensorError(f"with it, more than {self._most} elements of constants would be computed")


def _shapes(op: str, inputs: Sequence[Any], attributes: Mapping[str, Any], opset: int) -> list[tuple[str, list[int]]]:
    """The shapes of the results by ONNX's own inference, as far as they are known."""
    onnx = importlib.import_module("onnx")
    names = [f"i{number}" if given is not None else "" for number, given in enumerate(inputs)]
    outputs = [f"o{number}" for number in range(attributes["tvm_custom"]["num_outputs"])]
    own = {name: value for name, value in attributes.items() if name != "tvm_custom"}
    types, values = {}, {}
    for name, given in zip(names, inputs, strict=True):
        if name and (ty := _type(onnx, given)) is not None:
            types[name] = ty
        if name and (value := _constant(given)) is not None:
            values[name] = onnx.numpy_helper.from_array(value, name)
    try:
        schema = onnx.defs.get_schema(op, opset)
        node = onnx.helper.make_node(op, names, outputs, **own)
        inferred = onnx.shape_inference.infer_node_outputs(schema, node, types, values)
    except onnx.shape_inference.InferenceError as error:
        said = re.sub(r"^.*\[\w+Error\] ", "", str(error), flags=re.DOTALL).strip(" .")
        raise EqsatError(f"{said} (operands: {', '.join(map(_shape_said, inputs))})") from error
    except (onnx.defs.SchemaError, onnx.checker.ValidationError, RuntimeError, ValueError, TypeError, KeyError):
        return []  # it is no node of that version, which its converter says better, if it minds
    found = []
    for ty in inferred.values():
        dims = ty.tensor_type.shape.dim
        if ty.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
            dtype = onnx.helper.tensor_dtype_to_np_dtype(ty.tensor_type.elem_type)
            found.append((str(dtype), [dim.dim_value for dim in dims]))
    return found


def _shape_said(given: Any) -> str:
    shape = getattr(getattr(given, "ty", None), "shape", None)
    if isinstance(shape, relax.ShapeExpr):
        return f"[{', '.join(str(extent) for extent in shape.values)}]"
    return "none" if given is None else "of sizes"


def _type(onnx: Any, given: Any) -> Any:
    """The ONNX type of a tensor of known shape, or of a shape, which is a vector here."""
    if isinstance(given.ty, relax.ShapeType):
        return onnx.helper.make_tensor_type_proto(onnx.TensorProto.INT64, [given.ty.ndim])
    if not isinstance(given.ty, relax.TensorType) or not isinstance(given.ty.shape, relax.ShapeExpr):
        return None
    shape = [int(x) if isinstance(x, tvm.tirx.IntImm) else None for x in given.ty.shape.values]
    try:
        dtype = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(str(given.ty.dtype)))
    except (TypeError, ValueError):
        return None
    return onnx.helper.make_tensor_type_proto(dtype, shape)


def _constant(given: Any) -> np.ndarray[Any, Any] | None:
    """The numbers of a constant that may say how large a result is: of a vector."""
    if isinstance(given, relax.ShapeExpr):
        known = [int(x) for x in given.values if isinstance(x, tvm.tirx.IntImm)]
        return np.array(known, np.int64) if len(known) == len(given.values) else None
    if not _is_constant(given) or len(given.value.shape) > 1:
        return None
    return np.asarray(given.value.numpy())


def _is_constant(given: Any) -> bool:
    return isinstance(given, tvm.ir.GenericConst) and isinstance(given.ty, relax.TensorType)
