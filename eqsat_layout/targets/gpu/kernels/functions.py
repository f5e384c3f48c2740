"""PrimFuncs as kernels: each nest that is left after inlining is launched by itself, but for epilogues.

In: an unscheduled PrimFunc. Out: a PrimFunc without blocks whose statements launch work items, one after the other;
what lies between them is allocated in buffers. A function that is not understood runs in one work item.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import tvm_ffi
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.gpu.kernels.nests import Nest, nests_of, without_inlined_nests
from eqsat_layout.targets.gpu.kernels.row_items import row_items
from eqsat_layout.targets.gpu.kernels.shared_sums import has_free_order, shared_sum_of
from eqsat_layout.targets.gpu.kernels.sums_in_parts import in_parts
from eqsat_layout.targets.gpu.kernels.tiles import tile_of
from eqsat_layout.targets.gpu.kernels.work_groups import USUAL, WorkGroups
from eqsat_layout.targets.gpu.kernels.work_items import launch_of
from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.targets.schedules.exact_values import with_hidden_arithmetic
from eqsat_layout.tir.structural import is_one_of
from eqsat_layout.tir.whole_reads import takes_all

Suited: TypeAlias = Callable[[Any, list[Nest]], tuple[Any, list[Nest]]]
"""A PrimFunc and its nests as a device can compute them; the PrimFunc's parameters may be others then."""


def with_work_items(
    func: Any, suited: Suited | None = None, *, in_order: bool = True, groups: WorkGroups = USUAL
) -> Any:
    """``func`` as launches; refused where its blocks are not understood. ``in_order``: sums are added up as stated."""
    nests = without_inlined_nests(nests_of(with_hidden_arithmetic(func)), list(func.params))
    if not nests:
        raise Refused("it computes nothing")
    if suited is not None:
        func, nests = suited(func, nests)
    parameters = list(func.params)
    statements: list[Any] = []
    stages = _grouped(nests, parameters)
    if stages[1:]:
        with suppress(Refused):
            return func.with_body(row_items(nests, parameters, groups))
    for nest, reduction in _with_parts(stages, in_order):
        for buffer in nest.buffers:
            if not is_one_of(buffer, parameters):
                statements.append(tirx.AllocBuffer(buffer))
        if _domain(nest) != 0:
            statements.append(_kernel(nest, reduction, in_order, groups))
    statements = statements or [tirx.Evaluate(tirx.IntImm("int32", 0))]
    body = tirx.SeqStmt(statements) if statements[1:] else statements[0]
    return func.with_body(body)


def _kernel(nest: Nest, reduction: Nest | None, in_order: bool, groups: WorkGroups) -> Any:
    tile = tile_of(nest, reduction, groups.busy)
    if not in_order or has_free_order(nest, reduction):
        with suppress(Refused):
            return shared_sum_of(nest, reduction, tile, groups.busy)
    return launch_of(nest, reduction, tile, groups)


def _with_parts(found: Sequence[tuple[Nest, Nest | None]], in_order: bool) -> Iterator[tuple[Nest, Nest | None]]:
    """Long reductions with few results are two, where their order is free."""
    for nest, reduction in found:
        inner = nest if nest.reduced else reduction
        if inner is not None and (not in_order or has_free_order(nest, reduction)):
            with suppress(Refused):
                parts, inner = in_parts(inner)
                yield parts, None
        yield (nest, inner) if inner is None or not nest.reduced else (inner, None)


def may_follow_sums(func: Any) -> bool:
    """It is elementwise but for layouts: what is as large as its result is read once, each element at one place."""
    try:
        nests = without_inlined_nests(nests_of(func), list(func.params))
    except Refused:
        return False
    if len(nests) != 1 or nests[0].reduced or len(nests[0].stores) != 1:
        return False
    (nest,) = nests
    large = [p for p in func.params if type(p.ty) is tirx.BufferType and _elements(p) == _domain(nest)]
    return len(large) > 1 and all(_is_read_once(nest, buffer) for buffer in large if nest.loads(buffer))


def _is_read_once(nest: Nest, buffer: Any) -> bool:
    first = list(nest.loads(buffer)[0].indices)
    if any(not tvm_ffi.structural_equal(list(load.indices), first) for load in nest.loads(buffer)):
        return False
    return takes_all(first, {axis.var: axis.extent for axis in nest.spatial}, list(buffer.ty.shape))


def _elements(buffer: Any) -> int | None:
    extents = [as_int(extent) for extent in buffer.ty.shape]
    return None if None in extents else math.prod(extent or 0 for extent in extents)


def _grouped(nests: Sequence[Nest], parameters: Sequence[Any]) -> list[tuple[Nest, Nest | None]]:
    """Nests that are launched, each with the reduction that it takes along."""
    taken: dict[str, Nest] = {}
    for nest in nests:
        found = [r for r in nests if r.reduced and _may_take(nest, r, nests, parameters)]
        if len(found) == 1:
            taken[nest.name] = found[0]
    inside = {id(reduction) for reduction in taken.values()}
    return [(nest, taken.get(nest.name)) for nest in nests if id(nest) not in inside]


def _may_take(nest: Nest, reduction: Nest, nests: Sequence[Nest], parameters: Sequence[Any]) -> bool:
    """``nest`` reads each element of the reduction for one of its own, and nobody else does."""
    if nest.reduced or not reduction.is_plain or is_one_of(reduction.buffers[0], parameters):
        return False
    loads = nest.loads(reduction.buffers[0])
    if not loads or any(n.loads(reduction.buffers[0]) for n in nests if n is not nest and n is not reduction):
        return False
    first = list(loads[0].indices)
    if any(not tvm_ffi.structural_equal(list(load.indices), first) for load in loads):
        return False
    return _domain(nest) is not None and _domain(nest) == _domain(reduction)


def _domain(nest: Nest) -> int | tuple[str, ...] | None:
    """Elements of the result."""
    extents = [as_int(axis.extent) for axis in nest.spatial]
    if any(extent is None for extent in extents):
        return tuple(str(axis.extent) for axis in nest.spatial)
    product = 1
    for extent in extents:
        product *= extent or 0
    return product
