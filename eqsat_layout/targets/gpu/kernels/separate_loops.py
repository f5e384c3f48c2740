"""Loops of their own for statements that have nothing to do with one another but share a loop.

In: a statement without blocks. Out: several, to run one after the other. What sums rows and columns in one pass has no
loop that may run at once; the loop of either sum alone has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import tirx

from eqsat_layout.targets.gpu.kernels.independent_loops import does_more_than_store
from eqsat_layout.tir.blocks import sequence
from eqsat_layout.tir.structural import changed_loop, is_one_of, nodes_of, substitute


def separate_loops(statement: Any) -> list[Any]:
    """The statement itself where nothing in it can be taken apart."""
    return [statement] if does_more_than_store(statement) else _apart(statement)


def _apart(statement: Any) -> list[Any]:
    if isinstance(statement, tirx.SeqStmt):
        if any(isinstance(one, tirx.AllocBuffer | tirx.Bind) for one in statement.seq):
            return [statement]  # names for all that follows
        return [part for one in statement.seq for part in _apart(one)]
    if isinstance(statement, tirx.For) and statement.thread_binding is None:
        bounds = (statement.min, statement.extent)
        return [_loop_of(statement, part) for part in _unrelated(_apart(statement.body), bounds)]
    if isinstance(statement, tirx.IfThenElse) and statement.else_case is None:
        condition = statement.condition
        parts = _unrelated(_apart(statement.then_case), (condition,))
        return [tirx.IfThenElse(condition, part, None) for part in parts]
    return [statement]


def _unrelated(parts: Sequence[Any], around: Sequence[Any]) -> list[Any]:
    """``parts`` in groups of which none writes what another one touches; all in one if some write what is asked
    ``around`` them."""
    groups: list[list[Any]] = []
    asked = [load.source for one in around for load in nodes_of(one, tvm.ir.TensorLoad)]
    if any(is_one_of(buffer, asked) for part in parts for buffer in _written(part)):
        return [sequence(parts)]
    for part in parts:
        related = [group for group in groups if any(_meet(part, one) for one in group)]
        groups = [group for group in groups if not any(group is one for one in related)]
        groups.append([*(one for group in related for one in group), part])
    return [sequence(sorted(group, key=lambda one: _place(one, parts))) for group in groups]


def _place(part: Any, parts: Sequence[Any]) -> int:
    return next(place for place, one in enumerate(parts) if one is part)


def _meet(one: Any, other: Any) -> bool:
    """Either writes what the other one reads or writes."""
    return any(
        is_one_of(buffer, _touched(second))
        for first, second in ((one, other), (other, one))
        for buffer in _written(first)
    )


def _written(part: Any) -> list[Any]:
    return [store.buffer for store in nodes_of(part, tirx.BufferStore)]


def _touched(part: Any) -> list[Any]:
    return [*_written(part), *(load.source for load in nodes_of(part, tvm.ir.TensorLoad))]


def _loop_of(loop: Any, body: Any) -> Any:
    """The loop with another body, and a variable of its own."""
    own = tirx.Var(loop.loop_var.name, loop.loop_var.ty.dtype)
    return changed_loop(loop, loop_var=own, body=substitute(body, {loop.loop_var: own}))
