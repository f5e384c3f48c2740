"""Shapes that an ONNX graph computes, computed before TVM's frontend sees them.

Exporters write ``x.reshape(n, -1)`` as Shape, Gather, Concat and Reshape; the frontend takes few of these as what they
are. In: a model, and sizes for symbolic ones. Out: a model in which what does not depend on values is constant, by
onnxscript. Nodes that stay keep their names. What depends on open sizes: :mod:`eqsat_layout.readers.onnx.known_sizes`.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from typing import Any, Final

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.model import Sizes
from eqsat_layout.readers.onnx.graphs import graphs_of
from eqsat_layout.readers.onnx.versions import with_functions_of_its_version

LARGEST: Final = 1 << 20
"""Elements of what is computed here: shapes, indices and masks are smaller."""

MOST_FOLDED: Final = 1 << 24
"""Elements of all that is computed here, and of what it is computed from; Swin takes a tenth."""

MOST_NODES: Final = 1 << 16
"""Of a graph whose functions are written out."""

_KEPT: Final = frozenset({"QuantizeLinear", "DequantizeLinear"})
"""Weights that bytes stand for stay bytes; onnxscript does not compute these either."""

_ORIGIN: Final = "pkg.onnxscript.optimizer.folded_from"


def folded(model: Any, sizes: Sizes | None = None) -> Any:
    """``model`` with constant arithmetic done; the same object where there is none, or nothing is installed for it."""
    sized = _sized(model, sizes or {})
    return _fold(sized) if _computes(sized) and _folds() else sized


def with_functions_inlined(model: Any) -> Any:
    """``model`` with the nodes of its own functions in the place of calls; the same object where there are none."""
    if not model.functions or not _folds():
        return model
    _check_functions(model)
    model = with_functions_of_its_version(model)
    ir, passes = (importlib.import_module(name) for name in ("onnx_ir", "onnx_ir.passes.common"))
    program = ir.serde.deserialize_model(model)
    passes.InlinePass()(program)
    return ir.serde.serialize_model(program)


def _folds() -> bool:
    try:
        importlib.import_module("onnxscript")
    except ImportError:
        return False
    return True


def _sized(model: Any, sizes: Sizes) -> Any:
    """A copy whose symbols are the sizes that are asked for, where these fit; others say what does not fit."""
    asked: dict[str, set[int]] = {}
    for dim, size in _dims(model, sizes):
        if not dim.HasField("dim_value") and dim.dim_param:
            asked.setdefault(dim.dim_param, set()).add(size)
    known = {symbol: next(iter(found)) for symbol, found in asked.items() if len(found) == 1}
    nameless = any(not dim.dim_param and not dim.HasField("dim_value") for dim, _ in _dims(model, sizes))
    if not known and not nameless:
        return model
    changed = type(model)()
    changed.CopyFrom(model)
    for dim, size in _dims(changed, sizes):
        if not dim.dim_param and not dim.HasField("dim_value"):
            dim.dim_value = size
    for value in changed.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in known:
                dim.dim_value = known[dim.dim_param]
    del changed.graph.value_info[:]  # they speak of the symbols, and are inferred anew
    for value in changed.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            if not dim.HasField("dim_value"):
                dim.Clear()
    return changed


def _dims(model: Any, sizes: Sizes) -> Iterator[tuple[Any, int]]:
    """The axes of inputs that a size is asked for."""
    for value in model.graph.input:
        dims, asked = value.type.tensor_type.shape.dim, sizes.get(value.name, ())
        if len(dims) == len(asked):
            yield from ((dim, size) for dim, size in zip(dims, asked, strict=True) if size is not None)


def _computes(model: Any) -> bool:
    """Whether shapes are asked for, or some node has constants only."""
    constants = {tensor.name for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant":
            constants.update(node.output)
        elif node.op_type in ("Shape", "Size") or all(name in constants for name in node.input):
            return True
    return False


def _fold(model: Any) -> Any:
    ir = importlib.import_module("onnx_ir")
    passes = importlib.import_module("onnx_ir.passes.common")
    optimizer = importlib.import_module("onnxscript.optimizer")
    program = ir.serde.deserialize_model(model)
    _gather_by_slices(ir, program.graph)
    optimizer.fold_constants_ir(program, onnx_shape_inference=True, should_fold=_Small())
    passes.RemoveUnusedNodesPass()(program)
    return ir.serde.serialize_model(program)


class _Small:
    """Whether to compute a node; None: as onnxscript does. Its results are looked at before there are any."""

    def __init__(self) -> None:
        self._left = MOST_FOLDED

    def __call__(self, node: Any) -> bool | None:
        for given in node.inputs:
            if given is not None:
                given.meta.pop(_ORIGIN, None)  # onnxscript keeps all names that a value came from: a square of them
        if node.op_type in _KEPT or any(getattr(made.dtype, "name", None) == "STRING" for made in node.outputs):
            return False  # text is refused by its name, later
        shapes = [output.shape for output in node.outputs]
        if any(shape is None or not shape.is_static() for shape in shapes):
            return False
        sizes = [math.prod(shape.numpy()) for shape in shapes]
        work = sum(sizes) + sum(value.const_value.size for value in node.inputs if value is not None)
        if max(sizes, default=0) > LARGEST or work > self._left:
            return False
        self._left -= work
        return True if node.op_type == "ConstantOfShape" else None


def _gather_by_slices(ir: Any, graph: Any) -> None:
    """``Squeeze(Shape(x, start=k, end=k + 1))`` for ``Gather(Shape(x), k)``: known where that one extent is known."""
    for node in list(graph):
        shape = node.inputs[0].producer() if node.op_type == "Gather" and node.inputs[0] is not None else None
        index = _scalar(ir, node.inputs[1]) if shape is not None and shape.op_type == "Shape" else None
        version = graph.opset_imports.get("", 0)
        if index is None or shape is None or version < 15 or {"start", "end"} & shape.attributes.keys():
            continue
        bounds = {"start": index} if index == -1 else {"start": index, "end": index + 1}
        one = ir.node("Shape", [shape.inputs[0]], attributes=bounds)
        number = ir.node("Squeeze", [one.outputs[0]])
        ir.convenience.replace_nodes_and_values(
            graph, node, [node], [one, number], [node.outputs[0]], [number.outputs[0]]
        )


def _scalar(ir: Any, value: Any) -> int | None:
    """The number that ``value`` always is."""
    constant = None if value is None else ir.convenience.get_const_tensor(value)
    if constant is None or constant.size != 1 or len(constant.shape) != 0:
        return None
    return int(constant.numpy())


def _check_functions(model: Any) -> None:
    """:class:`EqsatError` for functions that call themselves, or make a huge graph."""
    functions = {(one.domain, one.name): one for one in model.functions}
    sizes: dict[Any, int | None] = {}

    def size(key: Any) -> int:
        known = sizes.get(key, 0)
        if known is None:
            raise EqsatError(f"function {key[1]!r} calls itself")
        if key not in sizes:
            sizes[key] = None
            sizes[key] = known = total(functions[key].node)
        return known

    def total(nodes: Any) -> int:
        calls = [(node.domain, node.op_type) for node in nodes]
        inner = (graph.node for node in nodes for graph in graphs_of(node))
        return sum(size(key) if key in functions else 1 for key in calls) + sum(map(total, inner))

    if total(model.graph.node) > MOST_NODES:
        raise EqsatError(f"functions that are written out make more than {MOST_NODES} nodes")
