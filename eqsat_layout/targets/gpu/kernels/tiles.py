"""Which elements a work item computes: a vector of them along one axis, and some along others.

In: a nest and its reduction. Out: the :class:`ItemTile` that is modelled to load and compute least per element. Lanes
run along an axis that texels and rows of memory run along; a second axis is tiled so that what is loaded serves several
elements; a reduced axis whose elements make texels is taken a texel at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.gpu.kernels.nests import Nest
from eqsat_layout.targets.gpu.kernels.vectors import LANES, is_image
from eqsat_layout.targets.gpu.kernels.work_items import ItemTile
from eqsat_layout.targets.schedules.accesses import StageAccess, as_int
from eqsat_layout.tir.analyzers import analyzer_over
from eqsat_layout.tir.structural import is_one_of, nodes_of, substitute

_SIZES: Final = (2, 3, 4, 5, 6, 7, 8)
"""Of tiles along an axis."""
_REGISTERS: Final = 96
"""Floats of a work item; beyond that they spill, or few work items fit (assumed)."""
_FETCH: Final = 4.0
"""How many vector operations a load takes as long as (assumed)."""
_GATHERED: Final = 1.5
"""Of elements that lie apart, as much again: each has an address of its own."""
_VECTORS: Final = ("float32", "float16", "int32")


def tile_of(nest: Nest, reduction: Nest | None, busy: int) -> ItemTile:
    """For :func:`eqsat_layout.targets.gpu.kernels.work_items.launch_of`. ``busy``: work items that keep a device so."""
    model = _Model(nest, nest if nest.reduced else reduction, busy)
    found = min(model.tiles(), key=model.cost, default=None)
    if found is None:
        raise Refused(f"no axis of {nest.name} runs along the texels that it writes")
    return found


@dataclass(frozen=True)
class _Access:
    """How an access moves: ``moves`` has the axes that it depends on, by variable; ``vectors``: those along which
    neighbours are one load; ``still``: axes with the sizes of tiles in which it stays where it is."""

    is_image: bool
    moves: frozenset[Any]
    vectors: frozenset[Any]
    still: frozenset[tuple[Any, int]]


class _Model:
    def __init__(self, nest: Nest, reduction: Nest | None, busy: int) -> None:
        self._nest, self._reduction, self._busy = nest, reduction, busy
        self._variables = [axis.var for axis in nest.spatial]
        self._reduced = [] if reduction is None else list(reduction.reduced)
        self._extents = {axis.var: as_int(axis.extent) for axis in (*nest.spatial, *self._reduced)}
        self._analyzer = analyzer_over((*nest.spatial, *self._reduced))
        self._stores = [self._access(s.buffer, s.indices, {}) for s in nest.stores]
        self._ends, self._operands = self._loads()
        self._steps = math.prod(self._extents[axis.var] or 64 for axis in self._reduced)
        self._elements = math.prod(self._extents[var] or 64 for var in self._variables)
        self._only_floats = all(str(store.buffer.ty.dtype) in _VECTORS for store in nest.stores)

    def _loads(self) -> tuple[list[_Access], list[_Access]]:
        """Those of the end of a tile, and those of every step."""
        nest, reduction = self._nest, self._reduction
        if reduction is None:
            return [self._access(load.source, load.indices, {}) for load in nest.loads()], []
        if reduction is nest:
            own = [load for load in nest.loads() if not is_one_of(load.source, nest.buffers)]
            return [], [self._access(load.source, load.indices, {}) for load in own]
        (buffer,) = reduction.buffers
        at = nest.loads(buffer)[0].indices
        places = {axis.var: index for axis, index in zip(reduction.spatial, at, strict=True)}
        ends = [load for load in nest.loads() if not load.source.same_as(buffer)]
        steps = [load for load in reduction.loads() if not load.source.same_as(buffer)]
        return (
            [self._access(load.source, load.indices, {}) for load in ends],
            [self._access(load.source, load.indices, places) for load in steps],
        )

    def _access(self, buffer: Any, indices: Sequence[Any], places: Mapping[Any, Any]) -> _Access:
        at = [substitute(index, places) for index in indices]
        moves = frozenset(v for index in at for v in nodes_of(index, tvm.ir.Var) if v in self._extents)
        vectors = frozenset(v for v in moves if self._is_vector(buffer, at, v))
        still = frozenset((v, size) for v in moves for size in _SIZES if self._is_still(at, v, size))
        return _Access(is_image(buffer), moves, vectors, still)

    def _is_still(self, indices: Sequence[Any], var: Any, size: int) -> bool:
        """Only quotients of the axis are used, which are the same in all of a tile."""
        extent = self._extents[var]
        quotients = [q.a for index in indices for q in nodes_of(index, tirx.FloorDiv) if q.a.same_as(var)]
        uses = sum(one.same_as(var) for index in indices for one in nodes_of(index, tvm.ir.Var))
        if extent is None or extent % size or uses != len(quotients):
            return False
        outer, inner = self._parts(var, extent, size)
        at = [self._analyzer.simplify(substitute(index, {var: outer * size + inner})) for index in indices]
        return not any(one.same_as(inner) for index in at for one in nodes_of(index, tvm.ir.Var))

    def _parts(self, var: Any, extent: int, size: int) -> tuple[Any, Any]:
        """Variables that count tiles along an axis, and places in one."""
        outer, inner = (tirx.Var(name, var.ty.dtype) for name in ("o", "i"))
        self._analyzer.bind(outer, tvm.ir.Range(0, extent // size))
        self._analyzer.bind(inner, tvm.ir.Range(0, size))
        return outer, inner

    def _is_vector(self, buffer: Any, indices: Sequence[Any], var: Any) -> bool:
        """Four neighbours along ``var`` are one load."""
        extent = self._extents[var]
        if extent is None or extent % LANES or not extent:
            return False
        outer, lane = self._parts(var, extent, LANES)
        at = tuple(self._analyzer.simplify(substitute(index, {var: outer * LANES + lane})) for index in indices)
        used = [any(one.same_as(lane) for one in nodes_of(index, tvm.ir.Var)) for index in at]
        if is_image(buffer):
            return bool(at[-1].same_as(lane)) and sum(used) == 1
        return StageAccess(buffer, at).stride(lane) == 1

    def tiles(self) -> Iterator[ItemTile]:
        """All that can be made."""
        lanes: list[int | None] = [n for n, var in enumerate(self._variables) if self._may_be_lanes(var)]
        if not any(store.is_image for store in self._stores):
            lanes.append(None)
        steps: list[int | None] = [None]
        for number, axis in enumerate(self._reduced):
            if any(axis.var in operand.vectors for operand in self._operands):
                steps.append(number)
        if self._reduction is not None and len(self._reduction.stores) > 1:
            steps = [None]
        along = {number: self._sizes_along(number) for number in range(len(self._variables))}
        shared = [(number, size) for number, sizes in along.items() for size in sizes if self._is_shared(number, size)]
        for lane in lanes:
            for step in steps:
                yield ItemTile(lane, {}, step)
                for number, sizes in along.items():
                    if number != lane:
                        yield from (ItemTile(lane, {number: size}, step) for size in sizes)
                        seconds = [(other, size) for other, size in shared if other not in (number, lane)]
                        yield from (ItemTile(lane, {number: size} | {o: s}, step) for o, s in seconds for size in sizes)

    def _sizes_along(self, number: int) -> list[int]:
        extent = self._extents[self._variables[number]]
        return [] if extent is None or not self._operands else [size for size in _SIZES if extent % size == 0]

    def _is_shared(self, number: int, size: int) -> bool:
        """Worth a second axis of a tile: something is loaded for all of a step of a quotient, or of a short axis."""
        var = self._variables[number]
        is_whole = self._extents[var] == size
        return any((var, size) in one.still or (is_whole and var not in one.moves) for one in self._operands)

    def _may_be_lanes(self, var: Any) -> bool:
        extent = self._extents[var]
        if extent is None or extent % LANES or not extent or not self._only_floats:
            return False
        return all(var in store.vectors for store in self._stores if store.is_image)

    def cost(self, tile: ItemTile) -> float:
        """Vector operations of the device for one element, about; more where registers don't suffice."""
        sizes = {self._variables[number]: size for number, size in tile.sizes.items()}
        lane = None if tile.lanes is None else self._variables[tile.lanes]
        step = None if tile.steps is None else self._reduced[tile.steps].var
        elements = math.prod(sizes.values()) * (LANES if lane is not None else 1)
        loaded, registers = 0.0, float(elements)
        for operand in self._operands:
            count, held = _loads_of(operand, sizes, lane, step)
            loaded += count
            registers += held
        width = LANES if step is not None else 1
        per_step = loaded * _FETCH + math.prod(sizes.values()) * width
        ends = sum(_loads_of(end, sizes, lane, None)[0] for end in (*self._ends, *self._stores)) * _FETCH
        total = per_step * (self._steps / width if self._operands else 0) + ends
        items = max(1.0, self._elements / elements)
        spilled = max(1.0, registers / _REGISTERS) ** 2
        idle = max(1.0, self._busy / items) ** 0.5
        return float(total / elements * spilled * idle)


def _loads_of(access: _Access, sizes: Mapping[Any, int], lane: Any, step: Any) -> tuple[float, float]:
    """Loads for a tile, and the elements that they fill."""
    count = math.prod(size for var, size in sizes.items() if var in access.moves and (var, size) not in access.still)
    inner = [var for var in (lane, step) if var is not None and var in access.moves]
    held = float(count * LANES ** len(inner))
    vector = any(var in access.vectors for var in inner)
    loads = held / LANES if vector else held
    return (loads if vector or not inner else loads * _GATHERED), held
