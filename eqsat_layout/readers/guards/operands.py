"""How many operands a call has, and results a tuple: what TVM takes for granted of a module.

In: the nodes of a graph as TVM writes it. Out: nothing, or :class:`UnsafeOperandsError`. TVM reads behind the end where
there are too few, and neither it nor its test of well-formed modules says so.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tvm


class UnsafeOperandsError(ValueError):
    """A call with too few operands or too many, or an item that a tuple does not have."""


def check_operands(nodes: Sequence[Any]) -> None:
    """See above. ``nodes`` are checked already to be such: fields name nodes that stand before."""
    for node in nodes:
        kind, data = node["type"], node.get("data")
        if kind == "ir.Call" and {"op", "args"} <= data.keys() and nodes[data["op"]]["type"] == "ir.Op":
            name, count = nodes[data["op"]]["data"], len(nodes[data["args"]].get("data") or ())
            wanted = _operands_of(name)
            if wanted is not None and count != wanted:
                raise UnsafeOperandsError(f"gives {name} {count} operands, which takes {wanted}")
        elif kind == "ir.TupleGetItem" and {"tuple_value", "index"} <= data.keys():
            fields = _fields(nodes, data["tuple_value"])
            if fields is not None and not 0 <= data["index"] < fields:
                raise UnsafeOperandsError(f"takes item {data['index']} of a tuple of {fields}")


@functools.cache
def _operands_of(name: str) -> int | None:
    """None where it takes any number, or is no op of kernels: those of Relax TVM counts itself, by their own rules."""
    if not name.startswith(("tirx.", "prim.")):
        return None
    try:
        count = int(tvm.ir.Op.get(name).num_inputs)
    except AttributeError:
        return None
    return count if count >= 0 else None


def _fields(nodes: Sequence[Any], index: int) -> int | None:
    """How many items the type of an expression has, if that is a tuple's."""
    data = nodes[index].get("data")
    ty = nodes[data["ty"]] if isinstance(data, dict) and "ty" in data else {}
    if ty.get("type") != "ir.TupleType" or "fields" not in ty["data"]:
        return None
    return len(nodes[ty["data"]["fields"]].get("data") or ())
