"""Initial values of reductions whose extent is known at run time only, and may be 0.

In: scheduled PrimFuncs whose blocks still have their ``init``. Out: the same, with the results initialised before the
loop. TVM initialises at the first step of the loop: a loop of no steps would leave memory that nobody wrote. Loops of
constant extent are :mod:`eqsat_layout.tir.empty_reductions`' business.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

from tvm import ir, s_tir, tirx

from eqsat_layout.tir.structural import changed_block, changed_loop, mapped_body, nodes_of, primfunc_pass, substitute


def init_empty_loops() -> Any:
    """A pass, for serial loops before ``LowerInitBlock``."""
    return primfunc_pass("BeginOverNothing", _with_beginnings)


def _with_beginnings(func: Any) -> Any:
    realizes = [one for one in nodes_of(func.body, s_tir.SBlockRealize) if one.block.init is not None]
    reduced = {var for realize in realizes for var in _reduced(realize)}
    if not reduced:
        return func

    def on_loop(loop: Any) -> Any:
        is_known = isinstance(loop.extent, tirx.IntImm)
        if is_known or loop.loop_var not in reduced or loop.kind != tirx.ForKind.SERIAL:
            return loop
        beginning = _beginning(loop, reduced, {})
        if beginning is None:
            return loop
        return tirx.SeqStmt([tirx.IfThenElse(loop.extent <= 0, beginning, None), loop])

    return mapped_body(func, (tirx.For, on_loop))


def _reduced(realize: Any) -> Iterator[Any]:
    """The variables of loops that a block reduces over, and over which its results don't move."""
    bound = list(zip(realize.block.iter_vars, realize.iter_values, strict=True))
    kept = {var for axis, value in bound if not _is_reduced(axis) for var in nodes_of(value, ir.Var)}
    for axis, value in bound:
        if _is_reduced(axis):
            yield from (var for var in nodes_of(value, ir.Var) if var not in kept)


def _is_reduced(axis: Any) -> bool:
    return bool(axis.iter_type == tirx.IterVar.CommReduce)


def _beginning(statement: Any, reduced: set[Any], firsts: dict[Any, Any]) -> Any:
    """What the blocks in ``statement`` begin with, without the loops that they reduce over; ``None``: nothing."""
    if isinstance(statement, tirx.For):
        if statement.loop_var in reduced:
            return _beginning(statement.body, reduced, {**firsts, statement.loop_var: statement.min})
        body = _beginning(statement.body, reduced, firsts)
        return None if body is None else changed_loop(statement, body=body)
    if isinstance(statement, tirx.SeqStmt):
        found = [one for part in statement.seq if (one := _beginning(part, reduced, firsts)) is not None]
        return None if not found else found[0] if len(found) == 1 else tirx.SeqStmt(found)
    if not isinstance(statement, s_tir.SBlockRealize) or statement.block.init is None:
        return None
    block = statement.block
    kept = [
        (axis, value)
        for axis, value in zip(block.iter_vars, statement.iter_values, strict=True)
        if not _is_reduced(axis)
    ]
    begun = changed_block(block, iter_vars=[axis for axis, _ in kept], reads=[], body=block.init, init=None)
    conditions = [one for one in _parts(statement.predicate) if not any(v in firsts for v in nodes_of(one, ir.Var))]
    predicate = reduce(tirx.And, conditions) if conditions else tirx.IntImm("bool", 1)
    return s_tir.SBlockRealize([substitute(value, firsts) for _, value in kept], predicate, begun)


def _parts(condition: Any) -> list[Any]:
    return [*_parts(condition.a), *_parts(condition.b)] if isinstance(condition, tirx.And) else [condition]
