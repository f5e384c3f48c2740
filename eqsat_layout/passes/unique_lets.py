"""Every ``Let`` binds a variable of its own, none binds a number, and none stands in an integer that another one binds.
None of integers, or of floats that are made of them, stands in a condition, or in anything that another one binds.

In: PrimFuncs in which an expression with a ``Let`` was copied to several places. Out: the same, with fresh variables in
each copy, as TVM expects and its ``ConvertSSA`` does not do. TVM's analyzer may visit one place twice, what a variable
stands for among them, and refuses to be told twice that a variable is a number, or of bounds that it has narrowed. Of
other floats it knows no bounds, and values one after the other in place of one in the other take it for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import tirx

from eqsat_layout.tir.intrinsics import is_choice
from eqsat_layout.tir.structural import nodes_of, primfunc_pass, structural_map_outermost, substitute


def with_unique_lets() -> Any:
    """A pass."""
    return primfunc_pass("NamesOnce", _named_once)


def _named_once(func: Any) -> Any:
    lets = nodes_of(func.body, tirx.Let)
    are_plain = all(_number(let) is None and not _is_nested(let) for let in lets)
    are_plain = are_plain and not (lets and any(map(_asks, nodes_of(func.body, tirx.Select, tvm.ir.Call))))
    if are_plain and len({let.var for let in lets}) == len(lets):
        return func

    def renamed(let: Any) -> Any:
        number = _number(let)
        if number is not None:
            return inside(substitute(let.body, {let.var: number}))
        var, first = tirx.Var(str(let.var.name), let.var.ty), list[Any]()
        value = inside(let.value)
        value = _without_lets(value, first, every=_is_integer(let)) if _is_nested(let) else value
        return _behind(first, tirx.Let(var, value, inside(substitute(let.body, {let.var: var}))))

    def chosen(choice: Any) -> Any:
        if not _asks(choice):
            return None
        first = list[Any]()
        condition, *values = map(inside, _parts(choice))
        condition = _without_lets(condition, first)
        is_select = isinstance(choice, tirx.Select)
        made = tirx.Select(condition, *values) if is_select else tirx.if_then_else(condition, *values)
        return _behind(first, made)

    def inside(node: Any) -> Any:
        return structural_map_outermost(node, (tirx.Let, renamed), (tirx.Select, chosen), (tvm.ir.Call, chosen))

    return func.with_body(inside(func.body))


def _behind(first: Sequence[Any], value: Any) -> Any:
    for let in reversed(first):
        value = tirx.Let(let.var, let.value, value)
    return value


def _asks(node: Any) -> bool:
    """It is a choice whose condition holds a name with bounds."""
    return (isinstance(node, tirx.Select) or is_choice(node)) and _holds(_parts(node)[0])


def _parts(choice: Any) -> list[Any]:
    if isinstance(choice, tirx.Select):
        return [choice.condition, choice.true_value, choice.false_value]
    return list(choice.args)


def _is_nested(let: Any) -> bool:
    """An integer in which others have names, or anything in which one does that has bounds."""
    return bool(nodes_of(let.value, tirx.Let)) if _is_integer(let) else _holds(let.value)


def _is_integer(let: Any) -> bool:
    return "int" in str(let.var.ty.dtype)


def _holds(value: Any) -> bool:
    return any(map(_has_bounds, nodes_of(value, tirx.Let)))


def _has_bounds(let: Any) -> bool:
    """An integer, or a float that is made of some: of its bits, TVM's analyzer knows nothing."""
    return _is_integer(let) or any(map(_is_number_of_integer, nodes_of(let.value, tirx.Cast)))


def _is_number_of_integer(cast: Any) -> bool:
    return "float" in str(cast.ty.dtype) and "float" not in str(cast.value.ty.dtype)


def _without_lets(value: Any, found: list[Any], *, every: bool = False) -> Any:
    """``value`` without those that have bounds, or ``every`` one, and that it always computes, which are ``found``."""

    def taken_out(let: Any) -> Any:
        if not every and not _has_bounds(let):
            return tirx.Let(let.var, _without_lets(let.value, found), let.body)
        found.append(let)
        return _without_lets(let.body, found, every=every)

    def kept(call: Any) -> Any:
        return call if is_choice(call) else None

    return structural_map_outermost(value, (tirx.Let, taken_out), (tvm.ir.Call, kept))


def _number(let: Any) -> Any:
    """What the name stands for, if TVM knows the number."""
    if nodes_of(let.value, tvm.ir.Var, tvm.ir.TensorLoad):
        return None
    number = tvm.sym.Analyzer().simplify(let.value)
    return number if isinstance(number, tirx.FloatImm | tirx.IntImm) else None
