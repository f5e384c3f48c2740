"""Every ``Let`` binds a variable of its own, none binds a number, and none stands in an integer that another one binds.
Neither integers nor what TVM's analyzer takes for a number stand in what another one binds, nor in a condition.

In: PrimFuncs in which an expression with a ``Let`` was copied to several places. Out: the same, with fresh variables in
each copy, as TVM expects and its ``ConvertSSA`` does not do. The analyzer may visit one place twice, what a variable
stands for among them, and refuses to be told twice that a variable is a number, or of bounds that it has narrowed. Of
other floats it is not told twice, and values one after the other in place of one in the other take it for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import tirx

from eqsat_layout.passes.guarded_divisions import is_integer
from eqsat_layout.tir.intrinsics import is_choice
from eqsat_layout.tir.structural import nodes_of, primfunc_pass, structural_map, structural_map_outermost, substitute


def with_unique_lets() -> Any:
    """A pass."""
    return primfunc_pass("NamesOnce", _named_once)


def _named_once(func: Any) -> Any:
    lets = nodes_of(func.body, tirx.Let)
    if not lets:
        return func
    if any(_number(let) is not None for let in lets) or len({let.var for let in lets}) < len(lets):
        func = func.with_body(_renamed(func.body))
        lets = nodes_of(func.body, tirx.Let)
    return func.with_body(_apart(func.body, {let.var for let in lets if _is_number(let)}))


def _renamed(node: Any) -> Any:
    """With a variable for each, and none for numbers."""

    def renamed(let: Any) -> Any:
        number = _number(let)
        if number is not None:
            return _renamed(substitute(let.body, {let.var: number}))
        var = tirx.Var(str(let.var.name), let.var.ty)
        return tirx.Let(var, _renamed(let.value), _renamed(substitute(let.body, {let.var: var})))

    return structural_map_outermost(node, (tirx.Let, renamed))


def _apart(body: Any, numbers: set[Any]) -> Any:
    """With names in front of what holds them: all in integers, integers in conditions, ``numbers`` anywhere."""

    def named(let: Any) -> Any:
        found = list[Any]()
        value = _without_lets(let.value, (lambda _: True) if is_integer(let.var) else asked, found)
        return _behind(found, tirx.Let(let.var, value, let.body)) if found else let

    def selected(choice: Any) -> Any:
        found = list[Any]()
        condition = _without_lets(choice.condition, asked, found)
        return _behind(found, tirx.Select(condition, choice.true_value, choice.false_value)) if found else choice

    def chosen(call: Any) -> Any:
        found = list[Any]()
        condition = _without_lets(call.args[0], asked, found) if is_choice(call) else None
        return _behind(found, tirx.if_then_else(condition, *call.args[1:])) if found else call

    def asked(var: Any) -> bool:
        return is_integer(var) or var in numbers

    return structural_map(body, (tirx.Let, named), (tirx.Select, selected), (tvm.ir.Call, chosen))


def _behind(found: Sequence[Any], value: Any) -> Any:
    for let in reversed(found):
        value = tirx.Let(let.var, let.value, value)
    return value


def _without_lets(value: Any, is_wanted: Callable[[Any], bool], found: list[Any]) -> Any:
    """``value`` without those whose names are wanted and that it always computes, which are ``found``. Those in others
    stay: of what these are made of, TVM's analyzer would make the same again and again."""

    def taken_out(let: Any) -> Any:
        if not is_wanted(let.var):
            return let
        found.append(let)
        return _without_lets(let.body, is_wanted, found)

    def kept(call: Any) -> Any:
        return call if is_choice(call) else None

    return structural_map_outermost(value, (tirx.Let, taken_out), (tvm.ir.Call, kept))


def _is_number(let: Any) -> bool:
    """TVM's analyzer takes what the name stands for for a number, as ``x - x``."""
    value = structural_map_outermost(let.value, (tirx.Let, lambda one: tirx.Var(str(one.var.name), one.ty)))
    return isinstance(tvm.sym.Analyzer().simplify(value), tirx.FloatImm | tirx.IntImm)


def _number(let: Any) -> Any:
    """What the name stands for, if TVM knows the number."""
    if nodes_of(let.value, tvm.ir.Var, tvm.ir.TensorLoad):
        return None
    number = tvm.sym.Analyzer().simplify(let.value)
    return number if isinstance(number, tirx.FloatImm | tirx.IntImm) else None
