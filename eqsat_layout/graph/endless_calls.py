"""Relax functions that never return, as they call themselves whatever happens.

In: a module. Out: the names on such a circle, or nothing. The machine that runs programs has no limit of its own on
calls within calls: it ends the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm
from tvm import ir, relax


def endless_calls(mod: tvm.IRModule) -> list[str]:
    """Functions that call one another in a circle on every way through them, the first one again at the end."""
    functions = {var: func for var, func in mod.functions_items() if isinstance(func, relax.Function)}
    returning: set[Any] = set()
    while more := {
        v for v in functions.keys() - returning if _stops_at(functions[v].body, functions, returning) is None
    }:
        returning |= more
    for start in functions:  # in the module's order
        if start in returning:
            continue
        way = [start]
        while (called := _stops_at(functions[way[-1]].body, functions, returning)) not in way:
            way.append(called)
        return [str(var.name_hint) for var in (*way[way.index(called) :], called)]
    return []


def _stops_at(body: Any, functions: Any, returning: set[Any]) -> Any:
    """The first call that is made in any case, and of which nobody knows that it returns."""
    for value in _values(body):
        if isinstance(value, relax.If):
            stops = [_stops_at(branch, functions, returning) for branch in (value.true_branch, value.false_branch)]
            if all(one is not None for one in stops):
                return stops[0]
        elif isinstance(value, ir.Call) and value.op in functions and value.op not in returning:
            return value.op
    return None


def _values(body: Any) -> Iterator[Any]:
    if not isinstance(body, relax.SeqExpr):
        yield body
        return
    for block in body.blocks:
        for binding in block.bindings:
            yield binding.value
    yield body.body
