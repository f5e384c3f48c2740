"""Results of a torch graph that share memory with an input or with each other: whoever writes to one writes to both.
And those that are no tensors: sizes.

In: a graph of Dynamo's. Out: :class:`Split`, what is left to compute, and the views and sizes that torch itself takes
of it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat_layout.errors import EqsatError


@dataclass(frozen=True)
class Split:
    """``computed`` gives what has memory of its own; ``views``, of the graph's inputs and those, the graph's results.
    ``views`` is None where these are the results."""

    computed: Any
    views: Any | None

    @property
    def is_only_views(self) -> bool:
        """Nothing is left to compute."""
        return not _results(self.computed)


def views_split(torch: Any, graph: Any) -> Split:
    """``graph``, its results that share memory as views of what they are views of, and sizes as torch finds them."""
    _check_shapes_stay(torch, graph)
    results = _results(graph)
    memory = [_memory(result) for result in results]
    inputs = {_memory(node) for node in graph.graph.nodes if node.op == "placeholder"}
    shared = {one for one in memory if one is not None and (one in inputs or memory.count(one) > 1)}
    if not shared and None not in memory:
        return Split(graph, None)
    sources = _sources(graph, shared)
    tensors = [(one, result) for one, result in zip(memory, results, strict=True) if one is not None]
    own = [sources[one] if one in shared else result for one, result in tensors]
    own = list(dict.fromkeys(one for one in own if one.op != "placeholder"))
    return Split(_ending_in(torch, graph, own), _views(torch, graph, own, inputs | shared))


def orders(graph: Any) -> list[list[int]]:
    """The axes of each result of a graph, those first along which steps in torch's memory are longest: whoever gets
    one may ask for a view that there is in that order only."""
    return [_order(node.meta["example_value"]) for node in _results(graph)]


def _order(tensor: Any) -> list[int]:
    steps = [step if isinstance(step, int) else step.node.hint for step in tensor.stride()]
    axes = list(range(len(steps)))
    return axes if None in steps or 0 in steps else sorted(axes, key=lambda axis: -steps[axis])


def _check_shapes_stay(torch: Any, graph: Any) -> None:
    """Refuses what turns a tensor itself round, as ``t_()``: what was noted of that tensor holds of it before or
    after, and nothing says which."""
    for node in graph.graph.nodes:
        name = str(node.target if node.op == "call_method" else getattr(node.target, "__name__", ""))
        packet = getattr(torch.ops.aten, name, None) if name.endswith("_") and not name.startswith("_") else None
        overloads = [getattr(packet, one) for one in packet.overloads()] if packet else []
        if any(torch.Tag.inplace_view in one.tags for one in overloads):
            raise EqsatError(f"node {node.name} changes the shape of a tensor in place")


def _sources(graph: Any, shared: set[int]) -> dict[int, Any]:
    """The first tensor in each of these memories."""
    found: dict[int, Any] = {}
    for node in graph.graph.nodes:
        memory = _memory(node)
        if memory in shared:
            found.setdefault(memory, node)
    return found


def _ending_in(torch: Any, graph: Any, results: Sequence[Any]) -> Any:
    """``graph`` with these of its nodes as its results."""
    made, copied = _copy(torch, graph)
    (output,) = (node for node in made.graph.nodes if node.op == "output")
    output.args = (tuple(copied[one] for one in results),)  # what nobody uses stays: it may write to something
    made.recompile()
    return made


def _views(torch: Any, graph: Any, own: Sequence[Any], known: set[Any]) -> Any:
    """``graph`` with further inputs for its nodes ``own``."""
    made, copied = _copy(torch, graph)
    last = [node for node in made.graph.nodes if node.op == "placeholder"][-1:]
    for i, one in reversed(list(enumerate(own))):
        with made.graph.inserting_after(last[0]) if last else made.graph.inserting_before():
            given = made.graph.placeholder(f"own{i}")
            given.meta = copied[one].meta
        copied[one].replace_all_uses_with(given)
    for node in made.graph.nodes:  # what writes gives what it wrote to, and has written already
        if viewed := [one for one in node.all_input_nodes if node.op != "output" and _is_same(node, one)]:
            node.replace_all_uses_with(viewed[0])
    made.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))
    made.recompile()
    known = known | {_memory(one) for one in own}
    steps = [node for node in made.graph.nodes if node.op not in ("placeholder", "output")]
    values = [value for node in steps for value in _leaves(node.meta.get("example_value"), "untyped_storage")]
    if any(_memory_of(value) not in known for value in values):
        raise EqsatError("results that share memory in a way that is not understood")
    return made


def _copy(torch: Any, graph: Any) -> tuple[Any, Mapping[Any, Any]]:
    made = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))
    return made, dict(zip(graph.graph.nodes, made.graph.nodes, strict=True))


def _results(graph: Any) -> list[Any]:
    """The nodes that are results."""
    (output,) = (node for node in graph.graph.nodes if node.op == "output")
    return list(_leaves(output.args, "meta"))


def _memory(node: Any) -> Any:
    """What names the memory of a node's tensor; None for what is no tensor."""
    value = node.meta.get("example_value")
    return _memory_of(value) if hasattr(value, "untyped_storage") else None


def _is_same(one: Any, other: Any) -> bool:
    """Whether two nodes give the same elements of one memory."""
    return _memory(one) is not None and _memory(one) == _memory(other) and _place(one) == _place(other)


def _place(node: Any) -> list[Any]:
    """Extents, strides and where it begins. Symbols as what they are: to compare two as numbers is a guard."""
    value = node.meta["example_value"]
    numbers = [*value.shape, *value.stride(), value.storage_offset()]
    return [value.dtype, *(number if isinstance(number, int) else number.node.expr for number in numbers)]


def _memory_of(tensor: Any) -> Any:
    return tensor.untyped_storage()._cdata


def _leaves(value: Any, attribute: str) -> Iterator[Any]:
    """What has the attribute, in lists of lists."""
    if isinstance(value, list | tuple):
        for one in value:
            yield from _leaves(one, attribute)
    elif hasattr(value, attribute):
        yield value
