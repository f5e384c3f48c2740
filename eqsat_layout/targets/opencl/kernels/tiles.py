"""Which elements a work item computes: a vector of them along one axis, and some along others.

In: a nest and its reduction. Out: a :class:`Tile`. Lanes are taken along the axis that texels and rows of memory run
along in most accesses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.opencl.kernels.nests import Nest
from eqsat_layout.targets.opencl.kernels.vectors import LANES, is_image
from eqsat_layout.targets.opencl.kernels.work_items import Tile
from eqsat_layout.targets.schedules.accesses import StageAccess, as_int
from eqsat_layout.tir.structural import nodes_of, substitute

_TEXEL, _ROW, _SAME, _APART = 3.0, 2.0, 0.25, -2.0
_FLOATS: Final = ("float32", "float16", "int32")


def tile_of(nest: Nest, reduction: Nest | None) -> Tile:
    """For :func:`eqsat_layout.targets.opencl.kernels.work_items.kernel_of`."""
    return Tile(_lanes(nest, reduction))


def _lanes(nest: Nest, reduction: Nest | None) -> int | None:
    must = any(is_image(store.buffer) for store in nest.stores)
    best, found = 0.0, None
    for number, axis in enumerate(nest.spatial):
        extent = as_int(axis.extent)
        if extent is None or extent % LANES or not extent:
            continue
        worth = _worth(nest, reduction, number)
        if worth is not None and (worth > best or (must and found is None)):
            best, found = worth, number
    if must and found is None:
        raise Refused(f"no axis of {nest.name} runs along the texels that it writes")
    return found


def _worth(nest: Nest, reduction: Nest | None, number: int) -> float | None:
    """Of lanes along an axis; ``None`` where it can't have them."""
    own = nest.spatial[number]
    outer, lane = (tirx.Var(name, own.var.ty.dtype) for name in ("o", "lane"))
    analyzer = tvm.sym.Analyzer()
    analyzer.bind(outer, tvm.ir.Range(0, int(own.extent) // LANES))
    analyzer.bind(lane, tvm.ir.Range(0, LANES))
    for axis in (*nest.spatial, *nest.reduced, *(() if reduction is None else reduction.reduced)):
        analyzer.bind(axis.var, tvm.ir.Range(0, axis.extent))
    places: Mapping[Any, Any] = {own.var: outer * LANES + lane}
    worth = 0.0
    for store in nest.stores:
        if str(store.buffer.ty.dtype) not in _FLOATS:
            return None
        kind = _kind(StageAccess(store.buffer, _indices(store.indices, places, analyzer)), lane)
        if is_image(store.buffer) and kind != _TEXEL:
            return None
        worth += 2 * kind if kind > 0 else -0.5
    accesses = [(load, places) for load in nest.loads()]
    if reduction is not None:
        inside = _places_in(nest, reduction, places)
        accesses = [(load, places) for load in nest.loads() if not load.source.same_as(reduction.buffers[0])]
        accesses += [(load, inside) for load in reduction.loads()]
    written = {store.buffer for store in nest.stores}
    for load, at in accesses:
        if load.source not in written:
            worth += _kind(StageAccess(load.source, _indices(load.indices, at, analyzer)), lane)
    return worth


def _places_in(nest: Nest, reduction: Nest, places: Mapping[Any, Any]) -> Mapping[Any, Any]:
    indices = nest.loads(reduction.buffers[0])[0].indices
    return {axis.var: substitute(index, places) for axis, index in zip(reduction.spatial, indices, strict=True)}


def _indices(indices: Any, places: Mapping[Any, Any], analyzer: Any) -> tuple[Any, ...]:
    return tuple(analyzer.simplify(substitute(index, places)) for index in indices)


def _kind(access: StageAccess, lane: Any) -> float:
    """What lanes are worth for one access."""
    used = [any(var.same_as(lane) for var in nodes_of(index, tvm.ir.Var)) for index in access.indices]
    if not any(used):
        return _SAME
    if is_image(access.buffer):
        return _TEXEL if access.indices[-1].same_as(lane) and sum(used) == 1 else _APART
    return _ROW if access.stride(lane) == 1 else -0.5
