"""Frozen layouts follow their bindings through passes that rename or drop these.

In: a module before and after such passes. Out: the one after, whose attributes name bindings that are there: what was
bound again under another name (``gv = lv``) is frozen under that, and what is gone is frozen no more.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from eqsat_layout.graph.frozen import FROZEN_ATTRIBUTE


def with_frozen_names(after: tvm.IRModule, before: tvm.IRModule) -> tvm.IRModule:
    """``after`` itself where nothing that is frozen has gone."""
    known = {str(var.name_hint): function for var, function in before.functions_items()}
    changed: dict[Any, Any] = {}
    for var, function in after.functions_items():
        given: Any = None
        if isinstance(function, relax.Function) and function.attrs:
            given = function.attrs.get(FROZEN_ATTRIBUTE)
        old = known.get(str(var.name_hint))
        if not hasattr(given, "items") or not isinstance(old, relax.Function):
            continue
        names, aliases, left = _bound(old), _aliases(old), _bound(function)
        found = {_place(str(name), names, aliases, left): layouts for name, layouts in given.items()}
        found.pop("", None)
        if set(found) != set(map(str, given)):
            changed[var] = function.with_attr(FROZEN_ATTRIBUTE, found)
    if not changed:
        return after
    functions = {var: changed.get(var, function) for var, function in after.functions_items()}
    return tvm.IRModule(functions, attrs=after.attrs, global_infos=after.global_infos)


def _place(name: str, names: dict[str, Any], aliases: dict[str, str], left: dict[str, Any]) -> str:
    """The name under which it is bound now; empty if under none. What was no binding's name before stays.

    A pass may give the name of an alias that is gone to something else, which is a call of another op.
    """
    if name not in names or name in left:
        return name
    op = names[name]
    while name not in left and name in aliases:
        name = aliases[name]
    return name if name in left and (op is None or left[name] in (None, op)) else ""


def _bindings(function: Any) -> list[Any]:
    body = function.body
    return [b for block in body.blocks for b in block.bindings] if isinstance(body, relax.SeqExpr) else []


def _bound(function: Any) -> dict[str, Any]:
    """The names of what is bound, and the ops of calls."""
    return {str(binding.var.name): _op_of(getattr(binding, "value", None)) for binding in _bindings(function)}


def _op_of(value: Any) -> str | None:
    return str(value.op.name) if isinstance(value, tvm.ir.Call) and isinstance(value.op, tvm.ir.Op) else None


def _aliases(function: Any) -> dict[str, str]:
    """By variable another one that is bound to it and to nothing else."""
    pairs = [(b.value, b.var) for b in _bindings(function) if isinstance(getattr(b, "value", None), relax.Var)]
    return {str(value.name): str(var.name) for value, var in reversed(pairs)}
