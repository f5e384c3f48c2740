"""Every ``Let`` binds a variable of its own, and none binds a number.

In: PrimFuncs in which an expression with a ``Let`` was copied to several places. Out: the same, with fresh variables in
each copy, as TVM expects and its ``ConvertSSA`` does not do. TVM's analyzer may visit one place twice, and refuses to
be told twice that a variable is a number.
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
    if len({let.var for let in lets}) == len(lets) and all(_number(let) is None for let in lets):
        return func

    def renamed(let: Any) -> Any:
        number = _number(let)
        if number is not None:
            return inside(substitute(let.body, {let.var: number}))
        var = tirx.Var(str(let.var.name), let.var.ty)
        return tirx.Let(var, inside(let.value), inside(substitute(let.body, {let.var: var})))

    def inside(node: Any) -> Any:
        return structural_map_outermost(node, (tirx.Let, renamed))

    return func.with_body(inside(func.body))


def _number(let: Any) -> Any:
    """What the name stands for, if TVM knows the number."""
    if nodes_of(let.value, tvm.ir.Var, tvm.ir.TensorLoad):
        return None
    number = tvm.sym.Analyzer().simplify(let.value)
    return number if isinstance(number, tirx.FloatImm | tirx.IntImm) else None
