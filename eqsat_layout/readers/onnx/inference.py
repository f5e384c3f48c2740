"""ONNX's own inference of types and shapes, which follows small values as well.

In: a model. Out: the same with types. It follows slices by steps that it takes for 32-bit numbers: one that is 0 then
never comes to an end, and fills the memory. Where steps are large, or it would work them out, it is not told where the
slice starts, so that it knows nothing but the rank: of steps that are missing it would say that they are 1.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from eqsat_layout.readers.onnx.graphs import all_nodes, graphs_of

_LARGEST: Final = (1 << 31) - 1
_MOST_BYTES: Final = 1 << 12
"""Of steps, one for each axis."""
_STARTS, _STEPS = 1, 4
"""Which operands of ``Slice`` they are."""
_UNTOLD: Final = "starts that are not told"


def inferred(model: Any) -> Any:
    """A copy of ``model`` with the types that are known."""
    slices = [node for one in (model.graph, *model.functions) for node in _endless_slices(one)]
    told = [str(node.input[_STARTS]) for node in slices]
    for node in slices:
        node.input[_STARTS] = _UNTOLD
    try:
        found = importlib.import_module("onnx").shape_inference.infer_shapes(model, data_prop=True)
    finally:
        for node, starts in zip(slices, told, strict=True):
            node.input[_STARTS] = starts
    return found


def _endless_slices(graph: Any) -> Iterator[Any]:
    """Those of a graph, or a function, whose steps are no small constants."""
    slices = [node for node in all_nodes(graph) if node.op_type == "Slice" and len(node.input) > _STEPS]
    steps = {str(node.input[_STEPS]) for node in slices} - {""}
    small = _small_numbers(graph, steps) if steps else {}
    yield from (node for node in slices if node.input[_STEPS] and not small.get(str(node.input[_STEPS])))


def _small_numbers(graph: Any, names: Collection[str]) -> dict[str, bool]:
    """Whether the constants of these names are small; where several have a name, all of them."""
    found: dict[str, bool] = {}
    for name, numbers in _constants(graph, names):
        found[name] = found.get(name, True) and all(abs(int(number)) <= _LARGEST for number in numbers)
    return found


def _constants(graph: Any, names: Collection[str]) -> Iterator[tuple[str, Iterable[int]]]:
    """The numbers of what a graph, or one in its nodes, stores under these names."""
    for one in (graph, *(inner for node in all_nodes(graph) for inner in graphs_of(node))):
        yield from ((str(t.name), _numbers(t)) for t in getattr(one, "initializer", ()) if t.name in names)
    for node in all_nodes(graph):
        if node.op_type == "Constant" and node.output and node.output[0] in names:
            for said in node.attribute:
                stored = _numbers(said.t) if said.HasField("t") else [*said.ints, said.i]
                yield str(node.output[0]), stored


def _numbers(tensor: Any) -> Iterable[int]:
    """Of a stored tensor; one that is not small where they can't be steps."""
    if len(tensor.dims) > 1 or tensor.ByteSize() > _MOST_BYTES or tensor.data_location == tensor.EXTERNAL:
        return [_LARGEST + 1]
    found = importlib.import_module("onnx").numpy_helper.to_array(tensor)
    return found.reshape(-1) if found.dtype.kind == "i" else [_LARGEST + 1]
