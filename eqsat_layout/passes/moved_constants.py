"""Constants that ops only move: reshaped, transposed, laid out anew.

In: constant bindings of a Relax function. Out: the values of those that are constants, each element in another place,
made by NumPy here: to have them computed is to wait until another process has imported TVM.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import tvm_ffi
from tvm import ir, relax

from eqsat_layout.graph.legalised_calls import legalise_calls
from eqsat_layout.graph.templates import leaf_exprs, settings_of
from eqsat_layout.maps import IndexMap
from eqsat_layout.tir.access_maps import view_map


def moved_constants(bindings: Sequence[Any]) -> dict[Any, Any]:
    """The constants by their variables. ``bindings``, in order, read constants and one another."""
    alone = {b.var: operands[0] for b in bindings if len(operands := leaf_exprs(b.value)) == 1 and _is_op(b.value)}
    known: dict[Any, Any] = {}
    keys: dict[Any, Hashable] = {}
    calls: dict[Hashable, Any] = {}
    for binding in bindings:
        if binding.var in alone:
            keys[binding.var] = key = _key(binding.value)
            calls.setdefault(key, binding.value)
    maps = dict(zip(calls, map(_move, legalise_calls(list(calls.values()))), strict=True))
    for var, key in keys.items():
        operand, index_map = known.get(alone[var], alone[var]), maps[key]
        if index_map is not None and isinstance(operand, ir.GenericConst):
            known[var] = relax.const(index_map.apply(operand.value.numpy()), str(operand.ty.dtype))
    return known


def _is_op(call: Any) -> bool:
    return isinstance(call.op, ir.Op) and call.op.name != "relax.call_tir"


def _key(call: Any) -> Hashable:
    return call.op.name, settings_of(call), *(tvm_ffi.StructuralKey(leaf.ty) for leaf in leaf_exprs(call))


def _move(legalised: Any) -> IndexMap | None:
    """Where the one PrimFunc of a call puts the elements of its operand, if that is all it does."""
    computation = legalised.understood()
    return None if computation is None else view_map(computation)
