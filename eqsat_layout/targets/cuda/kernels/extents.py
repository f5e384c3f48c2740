"""Extents that may be known at run time only, and what kernels work out with them.

In: numbers, or expressions of 32-bit indices that a host knows when it launches. Out: the same. Models take each symbol
for :data:`~eqsat_layout.tir.computation.SYMBOL_SIZE`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeAlias

import tvm
from tvm import tirx

from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.tir.computation import SYMBOL_SIZE
from eqsat_layout.tir.structural import nodes_of, substitute

Extent: TypeAlias = Any
"""``int`` where it is known, else an expression; none is negative."""


def product_of_extents(extents: Iterable[Extent]) -> Extent:
    """The product of all extents; those that are known come first."""
    given = list(extents)
    known = math.prod(extent for one in given if (extent := as_int(one)) is not None)
    found: Extent = known
    for one in given:
        if as_int(one) is None:
            found = one if as_int(found) == 1 else found * one
    return 0 if known == 0 else found


def tiles_over(extent: Extent, size: int) -> Extent:
    """How many tiles of a size cover it."""
    known = as_int(extent)
    if known is not None:
        return -(-known // size)
    return tvm.sym.Analyzer().simplify(tirx.floordiv(extent + (size - 1), size))


def is_whole_tiles(extent: Extent, size: int) -> bool:
    """It is a number of whole tiles of a size, whatever its symbols are."""
    known = as_int(extent)
    if known is not None:
        return known % size == 0
    return as_int(tvm.sym.Analyzer().simplify(tirx.floormod(extent, size))) == 0


def assumed(extent: Extent) -> int:
    """What models take it for: at least 1 where it is not known."""
    known = as_int(extent)
    if known is not None:
        return known
    symbols = {var: tirx.IntImm(str(var.ty.dtype), SYMBOL_SIZE) for var in nodes_of(extent, tirx.Var)}
    return max(1, as_int(tvm.sym.Analyzer().simplify(substitute(extent, symbols))) or SYMBOL_SIZE)
