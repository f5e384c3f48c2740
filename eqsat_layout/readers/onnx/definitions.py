"""Nodes beside ONNX's own definitions of their ops.

In: a model, or the name of an op. Out: :class:`EqsatError` for a node that is none of its op, and why one is not taken.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from eqsat_layout.errors import EqsatError, did_you_mean
from eqsat_layout.readers.onnx.graphs import all_nodes, of_node, opset_of

_OF_TOOLS: Final = "__"
"""Attributes of this beginning are notes of those who make models: ONNX's own checker passes them over."""


def check_nodes(model: Any) -> None:
    """:class:`EqsatError` for an attribute that an op of ONNX does not have (``dilation`` for ``dilations``), for
    attributes and operands that it has to have, and for too many operands."""
    defs, opset = importlib.import_module("onnx").defs, opset_of(model)
    for node in all_nodes(model.graph):
        op = str(node.op_type)
        if not node.domain and defs.has(op):
            _check_node(node, *_definitions(op, opset))


@cache
def _definitions(op: str, opset: int) -> tuple[Any, Any]:
    """Of an op, of its version and the newest one: nodes of a model that says an older version than it means are taken
    as well."""
    defs = importlib.import_module("onnx").defs
    newest = defs.get_schema(op)
    return (defs.get_schema(op, opset) if defs.has(op, opset) else newest), newest


_TERM: Final = r"[A-Za-z ]*(\.\.\.[A-Za-z ]*)?"
_EQUATION: Final = re.compile(rf"{_TERM}(,{_TERM})*(->{_TERM})?")


def _check_equation(node: Any) -> None:
    """:class:`EqsatError` for an ``Einsum`` of anything but letters, where ONNX's own inference never ends; and for one
    whose result has an axis twice."""
    for attribute in node.attribute:
        if attribute.name != "equation":
            continue
        said = attribute.s.decode()
        if not _EQUATION.fullmatch(said):
            raise EqsatError(f"{of_node(node)} with equation={said} is not done: only letters may stand in it")
        made = re.sub("[ .]", "", said.partition("->")[2])
        if len(set(made)) < len(made):
            raise EqsatError(f"{of_node(node)} with equation={said} is not done: its result has an axis twice")


def _check_node(node: Any, own: Any, newest: Any) -> None:
    if own.name == "Einsum":
        _check_equation(node)
    names = own.attributes.keys() | newest.attributes.keys()
    given = {str(attribute.name) for attribute in node.attribute}
    for name in (str(attribute.name) for attribute in node.attribute):
        if name not in names and not name.startswith(_OF_TOOLS):
            near = did_you_mean(name, names)
            raise EqsatError(f"{of_node(node)} has an attribute {name!r}, which {own.name} has not. {near}".rstrip())
    for name in names - given:
        if all(name in one.attributes and one.attributes[name].required for one in (own, newest)):
            raise EqsatError(f"{of_node(node)} has no attribute {name!r}, which {own.name} needs")
    most, least = max(own.max_input, newest.max_input), min(own.min_input, newest.min_input)
    if len(node.input) > most:
        raise EqsatError(f"{of_node(node)} has {len(node.input)} operands, and {own.name} {most} at most")
    for at in range(least):
        what = own.inputs[min(at, len(own.inputs) - 1)]
        may_be_empty = at < len(node.input) and what.option == type(what.option).Optional  # the condition of a Loop
        if not (may_be_empty or any(node.input[at : at + 1])):
            raise EqsatError(f"{of_node(node)} has no operand {at} ({what.name}), which {own.name} needs")


def why_mistyped(op: str, opset: int, names: Sequence[str], dtypes: Mapping[str, str]) -> str:
    """Which operands of a node, by ``names``, are not of one type where ONNX has one for them, or of none that the op
    takes; "" where that is not so in this version of the op, or in its newest one, or not known."""
    if not importlib.import_module("onnx").defs.has(op):
        return ""
    own, newest = _definitions(op, opset)
    fitting = [one for one in (own, newest) if len(names) <= one.max_input]
    told = [_mistyped(one.inputs, newest.inputs, names, dtypes) for one in fitting]
    return told[0] if told and all(told) else ""


def _mistyped(roles: Sequence[Any], newest: Sequence[Any], names: Sequence[str], dtypes: Mapping[str, str]) -> str:
    first: dict[str, tuple[str, str]] = {}
    for at, name in enumerate(names):
        if name not in dtypes or not roles:
            continue
        what, dtype = roles[min(at, len(roles) - 1)], dtypes[name]
        other, told = first.setdefault(what.type_str, (name, dtype)) if what.is_homogeneous else (name, dtype)
        if dtype != told:
            return f"its operands {other!r}, {told}, and {name!r}, {dtype}, have to be of one type"
        taken = {*what.types, *(type_ for one in newest if one.name == what.name for type_ in one.types)}
        if f"tensor({_IN_DEFINITIONS.get(dtype, dtype)})" not in taken:
            return f"its operand {name!r} is {dtype}, which it does not take"
    return ""


_IN_DEFINITIONS: Final = {"float32": "float", "float64": "double"}


def draws(op: str) -> bool:
    """Whether an op makes random numbers in all that it may be asked for."""
    defs = importlib.import_module("onnx").defs
    return bool(defs.has(op)) and "seed" in (schema := defs.get_schema(op)).attributes and schema.max_input < 2


def why_not_taken(node: Any, opset: int) -> str:
    """Of a node whose op nothing here converts."""
    defs, op = importlib.import_module("onnx").defs, str(node.op_type)
    if node.domain:
        return f"nothing here converts this op of the domain {node.domain!r}"
    if not defs.has(op):
        near = did_you_mean(op, {schema.name for schema in defs.get_all_schemas() if not schema.domain})
        return f"ONNX has no op of this name, and nothing here converts it. {near}".rstrip()
    if not defs.has(op, opset):
        first = min(one.since_version for one in _history() if one.name == op)
        return f"nothing here converts this op, which ONNX has since opset {first}, in a model that says opset {opset}"
    if draws(op):
        return "nothing here converts this op, which makes random numbers: give them as an input of the model"
    return "nothing here converts this op: compute it outside of the model, and give its result as an input"


@cache
def _history() -> tuple[Any, ...]:
    schemas = importlib.import_module("onnx").defs.get_all_schemas_with_history()
    return tuple(one for one in schemas if not one.domain)
