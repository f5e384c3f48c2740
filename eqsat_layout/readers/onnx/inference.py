"""ONNX's own inference of types and shapes, which follows small values as well.

In: a model. Out: the same with types. It follows slices by steps that it takes for 32-bit numbers: one that is 0 then
never comes to an end, and fills the memory. So it is not told steps that are large, or that it would work out.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any, Final

from eqsat_layout.readers.onnx.graphs import graphs_of, nodes_of

_LARGEST: Final = (1 << 31) - 1
_STEPS: Final = 4
"""Which operand of ``Slice`` they are."""
_UNTOLD: Final = "steps that are not told"


def inferred(model: Any) -> Any:
    """A copy of ``model`` with the types that are known."""
    slices = [node for one in (model.graph, *model.functions) for node in _endless_slices(one)]
    told = [str(node.input[_STEPS]) for node in slices]
    for node in slices:
        node.input[_STEPS] = _UNTOLD
    try:
        found = importlib.import_module("onnx").shape_inference.infer_shapes(model, data_prop=True)
    finally:
        for node, steps in zip(slices, told, strict=True):
            node.input[_STEPS] = steps
    return found


def _endless_slices(graph: Any) -> Iterator[Any]:
    """Those of a graph, or a function, whose steps are no small constants."""
    slices = [node for node in nodes_of(graph) if node.op_type == "Slice" and len(node.input) > _STEPS]
    slices = [node for node in slices if node.input[_STEPS]]
    small = _small_constants(graph) if slices else {}
    yield from (node for node in slices if not small.get(str(node.input[_STEPS])))


def _small_constants(graph: Any) -> dict[str, bool]:
    """By name, whether the numbers of a stored tensor are small; where several have the name, of all."""
    numpy_helper = importlib.import_module("onnx").numpy_helper
    found: dict[str, bool] = {}

    def note(name: str, tensor: Any) -> None:
        steps = numpy_helper.to_array(tensor) if len(tensor.dims) < 2 and tensor.ByteSize() < 1 << 12 else None
        is_small = steps is not None and all(abs(int(step)) <= _LARGEST for step in steps.reshape(-1))
        found[name] = found.get(name, True) and is_small

    graphs = [graph, *(inner for node in nodes_of(graph) for inner in graphs_of(node))]
    for tensor in (tensor for one in graphs for tensor in getattr(one, "initializer", ())):
        note(str(tensor.name), tensor)
    for node in nodes_of(graph):
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            note(str(node.output[0]), node.attribute[0].t)
    return found
