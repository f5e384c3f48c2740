"""Sizes as TIR writes them, read as data.

In: expressions of TIR, and PrimFuncs that compare sizes. Out: sizes (:mod:`eqsat_layout.targets.gpu.host.sizes`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.errors import TargetError
from eqsat_layout.targets.gpu.host.sizes import Size, operation
from eqsat_layout.tir.structural import nodes_of

_NAMES: Final = {
    tirx.Add: "add",
    tirx.Sub: "sub",
    tirx.Mul: "mul",
    tirx.FloorDiv: "floordiv",
    tirx.FloorMod: "floormod",
    tirx.Min: "min",
    tirx.Max: "max",
    tirx.EQ: "eq",
    tirx.NE: "ne",
    tirx.LT: "lt",
    tirx.LE: "le",
    tirx.And: "and",
    tirx.Or: "or",
}
_TURNED: Final = {tirx.GT: tirx.LT, tirx.GE: tirx.LE}


def size_expression(expr: Any, symbols: Mapping[Any, Size]) -> Size:
    """``expr`` as data; ``symbols`` by variable. :class:`TargetError` for what is no arithmetic of sizes."""
    if isinstance(expr, int | tirx.IntImm):
        return int(expr)
    if isinstance(expr, tvm.ir.Var) and expr in symbols:
        return symbols[expr]
    if isinstance(expr, tirx.Cast):
        return size_expression(expr.value, symbols)
    if isinstance(expr, tirx.Not):
        return operation("eq", size_expression(expr.a, symbols), 0)
    if type(expr) in _TURNED:
        return size_expression(_TURNED[type(expr)](expr.b, expr.a), symbols)
    name = _NAMES.get(type(expr))
    if name is None:
        raise TargetError(f"a size that the host of a device can't work out: {expr}")
    return operation(name, size_expression(expr.a, symbols), size_expression(expr.b, symbols))


def condition_of(func: Any, sizes: Sequence[Size]) -> Size:
    """What a PrimFunc of nothing but sizes, its first parameters, writes. :class:`TargetError` where it does more."""
    stores = nodes_of(func.body, tirx.BufferStore)
    if len(stores) != 1:
        raise TargetError("it is no comparison of sizes")
    return size_expression(stores[0].value, dict(zip(func.params, sizes, strict=False)))
