"""Steps of a sum that a border makes zero, left out.

In: a scheduled PrimFunc. Out: the same, where a sum that adds a product with what is zero under a condition, as beyond
the border of an image, is done under that condition. A load under a condition is a branch for each vector, of which
LLVM makes copies until registers spill; a statement under one is a branch around all that it holds for.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from tvm import ir, s_tir, tirx

from eqsat_layout.tir.blocks import added_factors
from eqsat_layout.tir.intrinsics import conjuncts, is_choice, is_zero
from eqsat_layout.tir.structural import changed_block, mapped_body, nodes_of


def skip_zero_steps(func: Any) -> Any:
    """``func`` itself where there are none. A zero times infinity, which is NaN, is left out too."""
    if not any(is_choice(call) for call in nodes_of(func.body, ir.Call)):
        return func
    loops = nodes_of(func.body, tirx.For)
    depth = {loop.loop_var: 0 for loop in loops}
    for loop in loops:
        for inner in nodes_of(loop.body, tirx.For):
            depth[inner.loop_var] += 1
    lanes = {loop.loop_var for loop in loops if loop.kind == tirx.ForKind.VECTORIZED}

    def on_realize(realize: Any) -> Any:
        block = realize.block
        if block.init is not None or not isinstance(block.body, tirx.BufferStore):
            return realize
        values = zip(block.iter_vars, realize.iter_values, strict=True)
        uses = {axis.var: frozenset(nodes_of(value, ir.Var)) for axis, value in values}
        body = _skipping(block.body, uses, lanes, depth)
        if body is None:
            return realize
        return s_tir.SBlockRealize(realize.iter_values, realize.predicate, changed_block(block, body=body))

    return mapped_body(func, (s_tir.SBlockRealize, on_realize))


def _skipping(
    store: Any, uses: Mapping[Any, AbstractSet[Any]], lanes: AbstractSet[Any], depth: Mapping[Any, int]
) -> Any:
    """The statement; ``None`` for one of another kind. ``uses``: the loops that each axis of the block depends on."""
    factors = added_factors(store)
    chosen = next((factor for factor in factors if is_choice(factor) and is_zero(factor.args[2])), None)
    if chosen is None:
        return None
    condition, element, zero = chosen.args
    outside: dict[AbstractSet[Any], list[Any]] = {}
    inside: list[Any] = []
    for part in conjuncts(condition):
        used = frozenset(var for axis in nodes_of(part, ir.Var) for var in uses.get(axis, ()))
        is_known = used <= depth.keys() and not used & lanes and not nodes_of(part, ir.TensorLoad, ir.Call)
        (outside.setdefault(used, []) if is_known else inside).append(part)
    if not outside:
        return None
    element = tirx.if_then_else(tirx.all(*inside), element, zero) if inside else element
    added = [element if factor is chosen else factor for factor in factors]
    more = tirx.Mul(*added) if added[1:] else added[0]
    body: Any = tirx.BufferStore(store.buffer, tirx.Add(store.value.a, more), store.indices)
    for _, parts in sorted(outside.items(), key=lambda own: -max((depth[var] for var in own[0]), default=0)):
        body = tirx.IfThenElse(tirx.all(*parts), body, None)  # that of the outermost loops is outermost
    return body
