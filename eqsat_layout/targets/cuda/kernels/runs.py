"""Elements that lie together in memory, as many as one instruction moves.

In: a buffer, indices, the group of axes along whose last one elements are taken, and a number of them. Out: whether
each such run lies in one piece, at an address of whole runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import tirx

from eqsat_layout.targets.cuda.kernels.extents import is_whole_tiles, tiles_over
from eqsat_layout.targets.cuda.kernels.operands import FlatAxes
from eqsat_layout.targets.cuda.kernels.statements import number
from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.tir.structural import nodes_of, substitute


def in_runs(
    buffer: Any, indices: Sequence[Any], group: FlatAxes, lanes: int, fixed: Mapping[Any, Any], condition: Any = None
) -> bool:
    """``condition``: it does not tell the elements of a run apart either."""
    if not group.axes or not is_whole_tiles(group.last, lanes):
        return False
    last = group.axes[-1]
    analyzer, outer, lane = tvm.sym.Analyzer(), tirx.Var("outer", "int32"), tirx.Var("lane", "int32")
    analyzer.bind(outer, tvm.ir.Range(0, tiles_over(group.last, lanes)))
    analyzer.bind(lane, tvm.ir.Range(0, lanes))
    offset: Any = number(0)
    for index, extent in zip(indices, buffer.ty.shape, strict=True):
        offset = offset * extent + index
    places = {**fixed, last.var: outer * lanes + lane}
    there = analyzer.simplify(substitute(offset, places))
    first = analyzer.simplify(substitute(there, {lane: number(0)}))
    if any(as_int(analyzer.simplify(one)) != 0 for one in (there - first - lane, tirx.floormod(first, lanes))):
        return False
    guard = None if condition is None else analyzer.simplify(substitute(condition, places))
    return guard is None or not any(var.same_as(lane) for var in nodes_of(guard, tirx.Var))
