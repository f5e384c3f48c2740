"""What the body of a block and the loops around it say, each node looked at once.

In: nodes of the IR. Out: axes, stores, loads, what is called. Nodes are immutable, so that what was read off one is
remembered: a schedule is copied and asked again after every step, and most of its blocks are the same then.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import tvm
from tvm import s_tir, tirx

from eqsat_layout.targets.schedules.accesses import StageAccess, StageAxis, as_int
from eqsat_layout.targets.schedules.math_functions import small_exponent
from eqsat_layout.tir.structural import items_of, nodes_of, walk

_COSTLY = ("exp", "log", "tanh", "erf", "sigmoid", "pow", "sin", "cos", "tan", "atan", "sqrt", "rsqrt", "call_extern")

_REMEMBERED: Final = 4096
"""Nodes; each keeps a piece of a kernel alive."""


@dataclass(frozen=True)
class BlockFacts:
    """As in :class:`eqsat_layout.targets.schedules.stages.Stage`; ``loads``: those of what is not stored to."""

    axes: tuple[StageAxis, ...]
    stores: tuple[StageAccess, ...]
    loads: tuple[StageAccess, ...]
    size: int
    is_costly: bool
    is_copy: bool
    conditions: tuple[Any, ...]


@lru_cache(_REMEMBERED)
def facts_of(block: Any) -> BlockFacts:
    """The facts of an ``SBlock``."""
    axes = tuple(
        StageAxis(iv.var, as_int(iv.dom.extent), int(iv.iter_type) == tirx.IterVar.CommReduce)
        for iv in items_of(block.iter_vars)
    )
    stores: list[StageAccess] = []
    loads: list[StageAccess] = []
    calls: list[Any] = []
    conditions: list[Any] = []

    def on_store(node: Any) -> None:
        stores.append(StageAccess(node.buffer, items_of(node.indices)))

    def on_load(node: Any) -> None:
        loads.append(StageAccess(node.source, items_of(node.indices)))

    def on_call(node: Any) -> None:
        calls.append(node)
        if _name_of(node) == "if_then_else":
            conditions.append(node.args[0])

    def on_select(node: Any) -> None:
        if not nodes_of(node.condition, tvm.ir.TensorLoad):  # else it chooses between values: arithmetic
            conditions.append(node.condition)

    body = block.body
    walk(
        body,
        (tirx.BufferStore, on_store),
        (tvm.ir.TensorLoad, on_load),
        (tvm.ir.Call, on_call),
        (tirx.Select, on_select),
    )
    others = tuple(load for load in loads if not any(load.buffer.same_as(store.buffer) for store in stores))
    return BlockFacts(
        axes,
        tuple(stores),
        others,
        size=len(loads) + len(calls),
        is_costly=any(_name_of(call) in _COSTLY and small_exponent(call) is None for call in calls),
        is_copy=isinstance(body, tirx.BufferStore) and isinstance(body.value, tvm.ir.TensorLoad),
        conditions=tuple(conditions),
    )


def _name_of(call: Any) -> str:
    return str(getattr(call.op, "name", call.op)).rsplit(".", 1)[-1]


@lru_cache(_REMEMBERED)
def runs_axes_in_loops(outermost: Any, block: Any, loops: int) -> bool:
    """The loops from ``outermost`` on are so many, around ``block`` alone: loop ``i`` runs all of axis ``i``."""
    nodes = [outermost]
    while isinstance(nodes[-1].body, tirx.For):
        nodes.append(nodes[-1].body)
    realize = nodes[-1].body
    if not isinstance(realize, s_tir.SBlockRealize) or not is_true(realize.predicate) or len(nodes) != loops:
        return False
    return all(
        value.same_as(node.loop_var) and as_int(node.extent) == axis.extent and as_int(node.min) == 0
        for value, node, axis in zip(items_of(realize.iter_values), nodes, facts_of(block).axes, strict=True)
    )


def is_true(predicate: Any) -> bool:
    """A condition that always holds."""
    return isinstance(predicate, tirx.IntImm) and bool(int(predicate))
