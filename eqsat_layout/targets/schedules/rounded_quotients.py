"""Quotients of which every bit counts, since they are made whole numbers after: places, bytes, numbers of steps.

In: a PrimFunc. Out: its divisions whose result reaches a rounding, in the same statement or through tensors and names,
and those that are written like one of these.
6.5 / 3.25 is 2, and 6.5 times the float nearest to 1 / 3.25 a little more: rounded up it is 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import tvm_ffi
from tvm import ir, tirx

from eqsat_layout.tir.scalar_functions import ROUNDED
from eqsat_layout.tir.structural import is_one_of, nodes_of

_ROUNDINGS: Final = {*ROUNDED, "fmod"}
"""As they are called in both of TVM's rooms for such, ``prim`` and ``tirx``."""
_REMAINDERS: Final = (tirx.Mod, tirx.FloorMod)
"""Of a quotient a bit below a whole number all of the divisor is left, and else nothing."""


def rounded_quotients(func: Any, apart: Sequence[Any] = ()) -> list[Any]:
    """The divisions of ``func`` that are rounded after, by other casts and calls than those ``apart``."""
    if not nodes_of(func.body, tirx.Div):
        return []
    casts = (node for node in nodes_of(func.body, tirx.Cast) if _is_of_floats(node.value) and not _is_of_floats(node))
    calls = (node for node in nodes_of(func.body, ir.Call) if isinstance(node.op, ir.Op) and _word(node) in _ROUNDINGS)
    remainders = (node for node in nodes_of(func.body, *_REMAINDERS) if _is_of_floats(node))
    values = [value for value in (*casts, *calls, *remainders) if not is_one_of(value, apart)]
    made = [(store.buffer, store.value) for store in nodes_of(func.body, tirx.BufferStore)]
    made += [(bind.var, bind.value) for bind in nodes_of(func.body, tirx.Bind, tirx.Let)]
    known = set[Any]()
    while new := {name for value in values for name in _read(value)} - known:
        known |= new
        values += [value for name, value in made if name in new and _is_of_floats(value)]
    found = [division for value in values for division in nodes_of(value, tirx.Div)]
    return [own for own in nodes_of(func.body, tirx.Div) if any(_is_same(own, other) for other in found)]


def _is_same(division: Any, other: Any) -> bool:
    """It is that one, or reads like it: a quotient less its own floor is never negative, be they in two stages."""
    return division.same_as(other) or bool(tvm_ffi.structural_equal(division, other, map_free_vars=True))


def _read(value: Any) -> set[Any]:
    return {load.source for load in nodes_of(value, ir.TensorLoad)} | set(nodes_of(value, ir.Var))


def _word(call: Any) -> str:
    return str(call.op.name).rpartition(".")[2]


def _is_of_floats(value: Any) -> bool:
    return "float" in str(value.ty.dtype)
