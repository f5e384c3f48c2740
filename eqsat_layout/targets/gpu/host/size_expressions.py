"""Sizes as TIR writes them, read as data.

In: expressions of TIR. Out: sizes (:mod:`eqsat_layout.targets.gpu.host.sizes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.errors import TargetError
from eqsat_layout.targets.gpu.host.sizes import Size, operation

_NAMES: Final = {
    tirx.Add: "add",
    tirx.Sub: "sub",
    tirx.Mul: "mul",
    tirx.FloorDiv: "floordiv",
    tirx.FloorMod: "floormod",
    tirx.Min: "min",
    tirx.Max: "max",
}


def size_of(expr: Any, symbols: Mapping[Any, Size]) -> Size:
    """``expr`` as data; ``symbols`` by variable. :class:`TargetError` for what is no arithmetic of sizes."""
    if isinstance(expr, int | tirx.IntImm):
        return int(expr)
    if isinstance(expr, tvm.ir.Var) and expr in symbols:
        return symbols[expr]
    if isinstance(expr, tirx.Cast):
        return size_of(expr.value, symbols)
    name = _NAMES.get(type(expr))
    if name is None:
        raise TargetError(f"a size that the host of a device can't work out: {expr}")
    return operation(name, size_of(expr.a, symbols), size_of(expr.b, symbols))
