"""The graph of a TVM JSON file, checked before TVM loads it.

TVM's loader follows what a node names: the functions of the process, libraries of machine code, itself again. In: the
text. Out: the graph that was checked, as text again, so that TVM reads what we read; or :class:`UnsafeGraphError`.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import tvm
from tvm_ffi import core

from eqsat_layout.readers.guards.calls import UnsafeCallError, check_calls
from eqsat_layout.readers.guards.operands import UnsafeOperandsError, check_operands
from eqsat_layout.readers.guards.stored_tensors import is_stored_tensor
from eqsat_layout.readers.text.script_words import OWN_FUNCTIONS

LARGEST: Final = 4 << 30
"""Characters of a file, most of which are constants."""

DEEPEST: Final = 1000
"""Nodes within nodes: the loader calls itself for each."""

_UNFOLDED: Final = 10_000_000
_FACTOR: Final = 1000
"""How large a graph may be as a tree, and how much larger than its nodes: what visits it may see shared parts again."""

_ROOTS: Final = ("ir.IRModule", "relax.expr.Function", "ffi.Map")
_NUMBERS: Final[Mapping[str, tuple[type, ...]]] = {"int": (int,), "bool": (bool,), "float": (int, float)}
_LISTS: Final = frozenset(("ffi.Array", "ffi.List", "ffi.Map", "ffi.Dict"))
_TEXTS: Final = frozenset(("ffi.String", "ffi.SmallStr", "ffi.Bytes", "ffi.SmallBytes", "DataType"))
_SHAPES: Final = frozenset(("ffi.Shape", "Device"))
_BIG: Final = re.compile(r"-?\d{1,40}")
"""An integer that 64 bits do not hold, as text."""

_DATA: Final = frozenset(("None", "ffi.BigInt", "ffi.Tensor", *_NUMBERS, *_LISTS, *_TEXTS, *_SHAPES))
_NAMED: Final = frozenset(("ir.Op", "ir.EnvFunc", "ir.SourceName", "target.TargetKind", "tirx.Axis"))
"""Written as a name, which TVM looks up."""


class UnsafeGraphError(ValueError):
    """No graph of a module, or one that would do more than be loaded."""


def checked_json(text: str) -> str:
    """The graph in ``text``, which is a module or its constants and nothing else."""
    if len(text) > LARGEST:
        raise UnsafeGraphError(f"holds more than {LARGEST >> 30} thousand million characters")
    try:
        graph = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnsafeGraphError(f"not JSON as tvm.ir.save_json writes it: {str(error)[:100]}") from None
    nodes: Any = graph.get("nodes") if isinstance(graph, dict) else None
    root: Any = graph.get("root_index") if isinstance(graph, dict) else None
    if not isinstance(nodes, list) or not _is_index(root):
        raise UnsafeGraphError("not JSON as tvm.ir.save_json writes it")
    if not 0 <= root < len(nodes):
        raise UnsafeGraphError(f"invalid node index {root}")
    _check_nodes(nodes)
    try:
        check_calls(nodes)
        check_operands(nodes)
    except (UnsafeCallError, UnsafeOperandsError) as error:
        raise UnsafeGraphError(str(error)) from None
    return json.dumps({"root_index": root, "nodes": nodes, "metadata": _metadata(graph)})


def _check_nodes(nodes: list[Any]) -> None:
    depths: list[int] = []
    sizes: list[int] = []
    for number, node in enumerate(nodes):
        depth = size = 1
        for child in _children(node, number):
            depth = max(depth, depths[child] + 1)
            size += sizes[child]
        if depth > DEEPEST:
            raise UnsafeGraphError(f"node {number} stands {DEEPEST} deep")
        if size > _UNFOLDED + _FACTOR * len(nodes):
            raise UnsafeGraphError(f"node {number} stands for more than {size} nodes")
        depths.append(depth)
        sizes.append(size)


def _children(node: Any, number: int) -> Iterator[int]:
    """The nodes that a node names; all stand before it, as TVM writes them, so no node is within itself."""
    if not isinstance(node, dict) or not isinstance(node.get("type"), str) or not node.keys() <= {"type", "data"}:
        raise UnsafeGraphError(f"node {number} is none")
    kind, data = node["type"], node.get("data")
    if kind in _DATA:
        _check_data(kind, data, number)
        children: Any = data if kind in _LISTS else []
    elif kind in _NAMED:
        if not isinstance(data, str):
            raise UnsafeGraphError(f"node {number} of type {kind!r} has no name")
        if kind == "ir.EnvFunc" and data not in OWN_FUNCTIONS:
            raise UnsafeGraphError(f"node {number} calls {data!r}: a file may name only {', '.join(OWN_FUNCTIONS)}")
        children = []
    else:
        children = _fields(kind, data, number)
    for child in children:
        if not _is_index(child) or not 0 <= child < number:
            raise UnsafeGraphError(f"invalid node index {str(child)[:40]} in node {number} of type {kind!r}")
        yield child


def _check_data(kind: str, data: Any, number: int) -> None:
    if kind == "None":
        fits = data is None
    elif kind == "ffi.BigInt":
        fits = isinstance(data, str) and _BIG.fullmatch(data) is not None
    elif kind in _NUMBERS:
        fits = _fits(kind, data)
    elif kind == "ffi.Tensor":
        fits = isinstance(data, str) and is_stored_tensor(data)
    elif kind in _TEXTS:
        fits = isinstance(data, str)
    else:
        fits = isinstance(data, list) and (kind not in _SHAPES or all(_fits("int", value) for value in data))
    if not fits or (kind in ("ffi.Map", "ffi.Dict") and len(data) % 2):
        raise UnsafeGraphError(f"node {number} of type {kind!r} holds something else")


def _fields(kind: str, data: Any, number: int) -> list[Any]:
    """The nodes that an object's fields name; its numbers stand in it."""
    inline = _objects().get(kind)
    if inline is None:
        raise UnsafeGraphError(f"node {number} is of type {kind[:60]!r}, which is no part of a module")
    if not isinstance(data, dict) or not data.keys() <= inline.keys():
        raise UnsafeGraphError(f"node {number} of type {kind!r} has other fields")
    for name, value in data.items():
        if inline[name] is not None and not _fits(inline[name], value):
            raise UnsafeGraphError(f"{name!r} of node {number} of type {kind!r} holds something else")
    return [value for name, value in data.items() if inline[name] is None]


def _fits(kind: str | None, value: Any) -> bool:
    if kind == "DataType":
        return isinstance(value, str)
    if kind == "int":
        return _is_index(value) and -(1 << 63) <= value < 1 << 63
    return isinstance(value, _NUMBERS[str(kind)])


def _is_index(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _metadata(graph: Mapping[str, Any]) -> dict[str, str]:
    given = graph.get("metadata")
    return {str(k): v for k, v in given.items() if isinstance(v, str)} if isinstance(given, dict) else {}


@dataclass(frozen=True)
class _Kind:
    """A type of TVM's: those that it is a kind of, and the types of its fields as TVM declares them."""

    ancestors: frozenset[str]
    fields: Mapping[str, Any]


@functools.cache
def _objects() -> Mapping[str, Mapping[str, str | None]]:
    """What a module can hold, by TVM's own declarations: the fields of every type that a field of one may have.

    A field is the type of the number that stands in it, or None where it names a node.
    """
    kinds = _kinds()
    found: dict[str, Mapping[str, str | None]] = {}
    wanted = {*_ROOTS}
    while wanted:
        name = wanted.pop()
        for key, kind in kinds.items():
            if key in found or key in _NAMED or not (key == name or name in kind.ancestors):
                continue
            found[key] = {field: _inline(schema) for field, schema in kind.fields.items()}
            wanted.update(part for schema in kind.fields.values() for part in _names(schema) if part not in found)
    return found


def _kinds() -> dict[str, _Kind]:
    """Every type that is registered, but those of the machinery itself: functions, libraries, Python's objects."""
    keys = [str(key) for key in tvm.get_global_func("ffi.GetRegisteredTypeKeys")()]
    kinds: dict[str, _Kind] = {}
    for key in keys:
        if "." not in key or key.startswith("ffi."):
            continue
        info: Any = core._lookup_or_register_type_info_from_type_key(key)
        ancestors: list[str] = []
        fields: dict[str, Any] = {}
        while info is not None:
            fields = {field.name: json.loads(field.metadata["type_schema"]) for field in info.fields} | fields
            info = info.parent_type_info
            if info is not None and info.type_key != "ffi.Object":
                ancestors.append(info.type_key)
        kinds[key] = _Kind(frozenset(ancestors), fields)
    return kinds


def _inline(schema: Mapping[str, Any]) -> str | None:
    kind = schema["type"]
    return kind if kind in _NUMBERS or kind == "DataType" else None


def _names(schema: Mapping[str, Any]) -> Iterator[str]:
    yield schema["type"]
    for part in schema.get("args", ()):
        yield from _names(part)
