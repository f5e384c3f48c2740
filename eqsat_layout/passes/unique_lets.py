"""Every ``Let`` binds a variable of its own, none binds a number, and none stands in an integer that another one binds.

In: PrimFuncs in which an expression with a ``Let`` was copied to several places. Out: the same, with fresh variables in
each copy, as TVM expects and its ``ConvertSSA`` does not do. TVM's analyzer may visit one place twice, what a variable
stands for among them, and refuses to be told twice that a variable is a number, or of bounds that it has narrowed. Of
floats it knows no bounds, and values one after the other in place of one in the other take it for ever.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

from eqsat_layout.tir.structural import nodes_of, primfunc_pass, structural_map_outermost, substitute


def with_unique_lets() -> Any:
    """A pass."""
    return primfunc_pass("NamesOnce", _named_once)


def _named_once(func: Any) -> Any:
    lets = nodes_of(func.body, tirx.Let)
    are_plain = all(_number(let) is None and not _is_nested(let) for let in lets)
    if are_plain and len({let.var for let in lets}) == len(lets):
        return func

    def renamed(let: Any) -> Any:
        number = _number(let)
        if number is not None:
            return inside(substitute(let.body, {let.var: number}))
        var, first = tirx.Var(str(let.var.name), let.var.ty), list[tuple[Any, Any]]()
        value = inside(let.value)
        value = _without_lets(value, first) if _is_nested(let) else value
        made = tirx.Let(var, value, inside(substitute(let.body, {let.var: var})))
        for own, bound in reversed(first):
            made = tirx.Let(own, bound, made)
        return made

    def inside(node: Any) -> Any:
        return structural_map_outermost(node, (tirx.Let, renamed))

    return func.with_body(inside(func.body))


def _is_nested(let: Any) -> bool:
    """An integer in which others have names."""
    return "int" in str(let.var.ty.dtype) and bool(nodes_of(let.value, tirx.Let))


def _without_lets(value: Any, found: list[tuple[Any, Any]]) -> Any:
    """``value`` without those that it always computes, which are ``found``."""

    def taken_out(let: Any) -> Any:
        found.append((let.var, let.value))
        return _without_lets(let.body, found)

    def kept(call: Any) -> Any:
        return call if str(getattr(call.op, "name", "")) == "prim.if_then_else" else None

    return structural_map_outermost(value, (tirx.Let, taken_out), (tvm.ir.Call, kept))


def _number(let: Any) -> Any:
    """What the name stands for, if TVM knows the number."""
    if nodes_of(let.value, tvm.ir.Var, tvm.ir.TensorLoad):
        return None
    number = tvm.sym.Analyzer().simplify(let.value)
    return number if isinstance(number, tirx.FloatImm | tirx.IntImm) else None
