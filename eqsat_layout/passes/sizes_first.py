"""Symbolic sizes are bound before the tensors whose shapes use them.

In: Relax functions as TVM's FuseOps makes them: a group stands where its operands are defined, whether or not the
symbols of its shape are. Out: the same, with each ``match_cast`` that binds a symbol before the symbol's first use.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import tvm
from tvm import ir, relax

from eqsat_layout.tir.structural import nodes_of, structural_map, with_relax_functions


def sizes_first(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` itself where nothing says a symbol on the way."""

    def ordered(own: Any) -> Any:
        if not nodes_of(own.body, relax.MatchCast):
            return own
        return relax.Function(own.params, _ordered_in(own), own.ret_ty, own.is_pure, own.attrs)

    return with_relax_functions(mod, ordered)


def _ordered_in(function: Any) -> Any:
    known = {var for param in function.params for var in nodes_of(param.ty, ir.Var)}

    def ordered(block: Any) -> Any:
        bindings = _ordered(block.bindings, known)
        known.update(var for one in bindings if isinstance(one, relax.MatchCast) for var in nodes_of(one.ty, ir.Var))
        return relax.DataflowBlock(bindings)

    return structural_map(function.body, (relax.DataflowBlock, ordered))


def _ordered(bindings: Sequence[Any], known: Collection[Any]) -> list[Any]:
    """As they stand where they may. ``known``: symbols that are said before."""
    makers: dict[Any, int] = {}
    for number, binding in enumerate(bindings):
        said = nodes_of(binding.ty, ir.Var) if isinstance(binding, relax.MatchCast) else []
        for var in (binding.var, *(one for one in said if one not in known)):
            makers.setdefault(var, number)
    found: dict[int, None] = {}
    begun: set[int] = set()

    def put(number: int) -> None:
        begun.add(number)
        binding = bindings[number]
        for var in (*nodes_of(binding.value, ir.Var), *nodes_of(binding.var.ty, ir.Var)):
            maker = makers.get(var, number)
            if maker not in begun:
                put(maker)
        found[number] = None

    for number in range(len(bindings)):
        if number not in begun:
            put(number)
    return [bindings[number] for number in found]
