"""Loops of ONNX graphs, written out: Relax has none.

In: a model whose constants are folded. Out: one in which each ``Loop`` and ``Scan`` whose number of rounds is known is
its body so many times; :class:`OnnxNodeError` for others.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from eqsat_layout.readers.onnx.graphs import OnnxNodeError, all_nodes, graphs_of, of_node, opset_of
from eqsat_layout.readers.onnx.inference import inferred

MOST_NODES: Final = 4096
"""Of all loops that are written out."""

KINDS: Final = ("Loop", "Scan")
_SCANS_WITHOUT_BATCH: Final = 9
"""The version from which a ``Scan`` has no axis of batches and no lengths."""
_AXES_ARE_AN_INPUT: Final = 13


def without_loops(model: Any) -> Any:
    """``model``, or a copy without loops."""
    if all(node.op_type not in KINDS for node in all_nodes(model.graph)):
        return model
    changed = type(model)()
    changed.CopyFrom(model)
    del changed.graph.value_info[:]
    writer = _Writer(changed)
    while any(node.op_type in KINDS for node in changed.graph.node):  # bodies may hold loops
        writer.write_out()
    inner = next((node for node in all_nodes(changed.graph) if node.op_type in KINDS), None)
    if inner is not None:
        raise _refused(inner, "in a branch of an If is not done")
    return changed


def _refused(node: Any, why: str) -> OnnxNodeError:
    return OnnxNodeError(f"{of_node(node)}: a {node.op_type} {why}", node.op_type)


class _Writer:
    def __init__(self, model: Any) -> None:
        self._onnx = importlib.import_module("onnx")
        self._model, self._graph = model, model.graph
        self._opset = opset_of(model)
        self._left = MOST_NODES
        self._loops = 0

    def write_out(self) -> None:
        """Every loop of the graph itself once."""
        nodes = list(self._graph.node)
        constants = _constants(self._onnx, self._graph, nodes)
        extents = self._extents()
        del self._graph.node[:]
        for node in nodes:
            if node.op_type == "Loop":
                self._loop(node, constants)
            elif node.op_type == "Scan":
                self._scan(node, extents)
            else:
                self._graph.node.append(node)

    def _loop(self, node: Any, constants: Mapping[str, Any]) -> None:
        most, condition, *first = [*node.input, "", ""][: max(2, len(node.input))]
        body = node.attribute[0].g
        seen = {**constants, **_constants(self._onnx, body, body.node)}
        goes_on = body.output[0].name
        names = [value.name for value in body.input]
        source = {one.output[0]: one.input[0] for one in body.node if one.op_type == "Identity"}
        while goes_on in source:
            goes_on = source[goes_on]
        stays = goes_on == names[1] or (goes_on not in names and goes_on in seen and bool(seen[goes_on].all()))
        known = most in constants and (not condition or condition in constants)
        if not known or not stays:
            raise _refused(node, "that runs as often as is known at run time only is not done")
        rounds = max(0, int(constants[most].reshape(-1)[0]))
        if condition and not constants[condition].all():
            rounds = 0
        carried, scanned = list(first), len(body.output) - 1 - len(first)
        parts: list[list[str]] = [[] for _ in range(scanned)]
        prefix = self._begin(node, body, rounds)
        rank = len(body.input[0].type.tensor_type.shape.dim)
        for turn in range(rounds):
            number = self._constant(f"{prefix}{turn}/turn", np.full((1,) * rank, turn, "int64"))
            truth = self._constant(f"{prefix}{turn}/goes_on", np.full((), True))
            results = self._round(body, prefix, turn, [number, truth, *carried])[1:]
            carried = results[: len(first)]
            for part, name in zip(parts, results[len(first) :], strict=True):
                part.append(name)
        self._end(node, body, carried, parts, [0] * scanned)

    def _scan(self, node: Any, extents: Mapping[str, list[int | None]]) -> None:
        if self._opset < _SCANS_WITHOUT_BATCH:
            raise _refused(node, f"of version {self._opset} is not done")
        helper = self._onnx.helper
        attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        body, count = attributes["body"], int(attributes["num_scan_inputs"])
        states, given = list(node.input[:-count]), list(node.input[-count:])
        scanned = len(body.output) - len(states)
        axes = list(attributes.get("scan_input_axes", [0] * count))
        shapes = [extents.get(name) for name in given]
        known = [None if shape is None else shape[axis] for shape, axis in zip(shapes, axes, strict=True)]
        rounds = next((extent for extent in known if extent is not None), None)
        if rounds is None:
            raise _refused(node, "over as many elements as are known at run time only is not done")
        turned = list(attributes.get("scan_input_directions", [0] * count))
        parts: list[list[str]] = [[] for _ in range(scanned)]
        prefix = self._begin(node, body, rounds)
        for turn in range(rounds):
            slices = []
            for i, name in enumerate(given):
                at = rounds - 1 - turn if turned[i] else turn
                place = self._constant(f"{prefix}{turn}/place{i}", np.int64(at))
                slices.append(self._made("Gather", [name, place], f"{prefix}{turn}/slice{i}", axis=axes[i]))
            results = self._round(body, prefix, turn, [*states, *slices])
            states = results[: len(states)]
            for part, name in zip(parts, results[len(states) :], strict=True):
                part.append(name)
        for part, is_turned in zip(parts, attributes.get("scan_output_directions", [0] * scanned), strict=True):
            if is_turned:
                part.reverse()
        self._end(node, body, states, parts, list(attributes.get("scan_output_axes", [0] * scanned)))

    def _begin(self, node: Any, body: Any, rounds: int) -> str:
        """What names of this loop begin with; its constants are those of the graph."""
        self._left -= rounds * sum(1 for _ in all_nodes(body))
        if self._left < 0:
            raise _refused(node, f"of {rounds} rounds: loops that are written out make more than {MOST_NODES} nodes")
        self._loops += 1
        prefix = f"{node.name or node.op_type}/{self._loops}."
        for tensor in body.initializer:
            copied = self._graph.initializer.add()
            copied.CopyFrom(tensor)
            copied.name = prefix + tensor.name
        return prefix

    def _round(self, body: Any, prefix: str, turn: int, given: list[str]) -> list[str]:
        """The nodes of one round, and what they give."""
        names = {value.name: name for value, name in zip(body.input, given, strict=True)}
        names |= {tensor.name: prefix + tensor.name for tensor in body.initializer}
        for node in body.node:
            own = {name: f"{prefix}{turn}/{name}" for name in node.output if name}
            copied = self._graph.node.add()
            copied.CopyFrom(node)
            _rename(copied, names, f"{prefix}{turn}/")
            names |= own
            copied.output[:] = [own.get(name, "") for name in node.output]
            if node.name:
                copied.name = f"{prefix}{turn}/{node.name}"
        return [names.get(value.name, value.name) for value in body.output]

    def _end(self, node: Any, body: Any, carried: list[str], parts: list[list[str]], axes: list[int]) -> None:
        results = [*carried, *[""] * len(parts)]
        for wanted, name in zip(node.output, results, strict=False):
            if wanted and name:
                self._made("Identity", [name], wanted)
        for i, (part, axis) in enumerate(zip(parts, axes, strict=True)):
            at = len(carried) + i
            wanted = node.output[at] if at < len(node.output) else ""
            if not wanted:
                continue
            if not part:
                self._none(node, list(body.output)[i - len(parts)], wanted, axis)
                continue
            self._made("Concat", [self._longer(name, f"{wanted}/{j}", axis) for j, name in enumerate(part)], wanted,
                       axis=axis)  # fmt: skip

    def _none(self, node: Any, value: Any, wanted: str, axis: int) -> None:
        """What no rounds give of a result of the body's: no elements of its shape."""
        kind = value.type.tensor_type
        extents = [int(one.dim_value) for one in kind.shape.dim if one.HasField("dim_value")]
        if not kind.HasField("shape") or len(extents) < len(kind.shape.dim):
            raise _refused(node, "of no rounds, whose results are of no known shape, is not done")
        extents.insert(axis % (len(extents) + 1), 0)
        none = np.zeros(extents, self._onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
        self._made("Identity", [self._constant(f"{wanted}/none", none)], wanted)

    def _longer(self, name: str, made: str, axis: int) -> str:
        if self._opset < _AXES_ARE_AN_INPUT:
            return self._made("Unsqueeze", [name], made, axes=[axis])
        return self._made("Unsqueeze", [name, self._constant(f"{made}/axis", np.array([axis]))], made)

    def _made(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self._graph.node.append(self._onnx.helper.make_node(op, inputs, [output], **attributes))
        return output

    def _constant(self, name: str, value: Any) -> str:
        self._graph.initializer.append(self._onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def _extents(self) -> dict[str, list[int | None]]:
        """The extents of all tensors whose rank is known."""
        found = inferred(self._model).graph
        values = (*found.input, *found.value_info, *found.output)
        shapes = {v.name: v.type.tensor_type.shape.dim for v in values if v.type.tensor_type.HasField("shape")}
        known = {
            name: [d.dim_value if d.HasField("dim_value") else None for d in dims] for name, dims in shapes.items()
        }
        return known | {tensor.name: list(tensor.dims) for tensor in found.initializer}


def _constants(onnx: Any, graph: Any, nodes: Any) -> dict[str, Any]:
    """Small ones by name."""
    tensors = {tensor.name: tensor for tensor in graph.initializer if len(tensor.dims) < 2}
    for node in nodes:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            tensors[node.output[0]] = node.attribute[0].t
        elif node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value_int":
            tensors[node.output[0]] = onnx.numpy_helper.from_array(np.int64(node.attribute[0].i))
    return {name: onnx.numpy_helper.to_array(t) for name, t in tensors.items() if len(t.dims) < 2 and sum(t.dims) < 2}


def _rename(node: Any, names: Mapping[str, str], prefix: str) -> None:
    """What a node, and the graphs in it, read of outside; what these make gets the prefix, so that rounds differ."""
    node.input[:] = [names.get(name, name) for name in node.input]
    for graph in graphs_of(node):
        held = [*graph.initializer, *graph.input]
        own = {one.name for one in held} | {name for inner in graph.node for name in inner.output if name}
        inside = {**names, **{name: prefix + name for name in own}}
        del graph.value_info[:]
        for inner in graph.node:
            _rename(inner, inside, prefix)
            inner.output[:] = [inside.get(name, name) for name in inner.output]
        for one in (*held, *graph.output):
            one.name = inside.get(one.name, one.name)
