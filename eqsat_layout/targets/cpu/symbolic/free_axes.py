"""Axes of symbolic size along which every element is made by itself.

In: the blocks of an unscheduled PrimFunc. Out: each such axis, and where buffers and blocks have it. What runs over it
can be done for any number of elements at a time: rows of a product, images of a batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import tvm
import tvm_ffi
from tvm import tirx

from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.tir.blocks import with_accesses
from eqsat_layout.tir.structural import nodes_of

Place: TypeAlias = tuple[Any, int]
"""A dimension of a buffer, or an axis of a block by its name."""


@dataclass(frozen=True)
class FreeAxis:
    """Neighbouring axes that are taken as one, in ``extents``; the last one is fastest.

    ``dims``: the first dimension of a buffer that they are. ``iters``: the first axis of a block, by its name.
    ``is_value``: some result depends on where it is along the axis, not only on what is read there.
    """

    extents: tuple[Any, ...]
    dims: Mapping[Any, int]
    iters: Mapping[str, int]
    is_value: bool = False

    @property
    def count(self) -> int:
        """How many axes it takes together."""
        return len(self.extents)

    @property
    def extent(self) -> Any:
        """Elements along all of them."""
        product = self.extents[0]
        for extent in self.extents[1:]:
            product = product * extent
        return product

    def indices(self, number: Any) -> list[Any]:
        """Those of one element, one for each axis."""
        found: list[Any] = []
        for extent in reversed(self.extents[1:]):
            found.insert(0, tirx.floormod(number, extent))
            number = tirx.floordiv(number, extent)
        return [number, *found]


def free_axes(blocks: Sequence[Any], results: Sequence[Any]) -> list[FreeAxis]:
    """In the order of the dimensions of ``results``, each of which has all of them."""
    found = _axes(blocks, results, lambda extent: as_int(extent) is None)
    return _taken_together(sorted(found, key=lambda axis: axis.dims[results[0]]), blocks)


def axis_at(place: Place, extent: int, blocks: Sequence[Any], results: Sequence[Any]) -> FreeAxis | None:
    """The axis of this known ``extent`` that is at such a place, if every element along it is made by itself."""
    found = _axes(blocks, results, lambda other: as_int(other) == extent)
    return next((axis for axis in found if place in {**axis.iters, **axis.dims}.items()), None)


def _axes(blocks: Sequence[Any], results: Sequence[Any], is_wanted: Callable[[Any], bool]) -> Iterator[FreeAxis]:
    links = _Links()
    for block in blocks:
        _link(block, links, is_wanted)
    for places in links.classes():
        axis = _axis_of(places, links, blocks, results)
        if axis is not None:
            yield axis


@dataclass
class _Links:
    """Which places are one axis, by union and find, and of which this is not all there is to say."""

    leader: dict[Place, Place] = field(default_factory=dict)
    extents: dict[Place, Any] = field(default_factory=dict)
    spoilt: set[Place] = field(default_factory=set)
    values: set[Place] = field(default_factory=set)

    def add(self, place: Place, extent: Any) -> None:
        self.leader.setdefault(place, place)
        self.extents[place] = extent

    def find(self, place: Place) -> Place:
        while self.leader[place] != place:
            place = self.leader[place]
        return place

    def join(self, one: Place, other: Place) -> None:
        if not tvm_ffi.structural_equal(self.extents[one], self.extents[other]):
            self.spoilt |= {one, other}
        self.leader[self.find(one)] = self.find(other)

    def classes(self) -> Iterator[list[Place]]:
        groups: dict[Place, list[Place]] = defaultdict(list)
        for place in self.leader:
            groups[self.find(place)].append(place)
        yield from (own for own in groups.values() if not self.spoilt & set(own))


def _link(block: Any, links: _Links, is_wanted: Callable[[Any], bool]) -> None:
    name = str(block.name_hint)
    axes: dict[Any, Place] = {}
    for number, one in enumerate(block.iter_vars):
        if is_wanted(one.dom.extent):
            axes[one.var] = (name, number)
            links.add((name, number), one.dom.extent)
            if one.iter_type != tirx.IterVar.DataPar:
                links.spoilt.add((name, number))

    def on_access(buffer: Any, indices: list[Any]) -> tuple[Any, list[Any]]:
        kept = []
        for number, (index, extent) in enumerate(zip(indices, buffer.ty.shape, strict=True)):
            if is_wanted(extent):
                links.add((buffer, number), extent)
                if index in axes:
                    links.join((buffer, number), axes[index])
                    index = tirx.const(0, str(index.ty.dtype))  # what is left are uses as a value
                else:
                    links.spoilt.add((buffer, number))
            kept.append(index)
        return buffer, kept

    for statement in (block.body, block.init):
        if statement is not None:
            left = with_accesses(statement, on_access)
            links.values |= {axes[var] for var in nodes_of(left, tvm.ir.Var) if var in axes}


def _axis_of(places: Sequence[Place], links: _Links, blocks: Sequence[Any], results: Sequence[Any]) -> FreeAxis | None:
    """``None`` where some place has two of it, or something is made that does not have it."""
    iters = {place: number for place, number in places if isinstance(place, str)}
    dims = {place: number for place, number in places if not isinstance(place, str)}
    if len(iters) + len(dims) < len(places) or not all(result in dims for result in results):
        return None
    if any(str(block.name_hint) not in iters and _takes_long(block) for block in blocks):
        return None  # it would be done again for every part
    return FreeAxis((links.extents[places[0]],), dims, iters, not links.values.isdisjoint(places))


def _takes_long(block: Any) -> bool:
    """It reduces over an axis, or makes a tensor of several axes of which nothing is known."""
    extents = [as_int(axis.dom.extent) for axis in block.iter_vars]
    return block.init is not None or (len(extents) > 1 and not any(extents))


def _taken_together(axes: Sequence[FreeAxis], blocks: Sequence[Any]) -> list[FreeAxis]:
    """Axes that are neighbours wherever they are, as one."""
    found: list[FreeAxis] = []
    for axis in axes:
        before = found[-1] if found else None
        if before is not None and not (before.is_value or axis.is_value) and _are_neighbours(before, axis):
            found[-1] = FreeAxis((*before.extents, *axis.extents), before.dims, before.iters)
        else:
            found.append(axis)
    return found


def _are_neighbours(first: FreeAxis, second: FreeAxis) -> bool:
    def follows(ours: Mapping[Any, int], others: Mapping[Any, int]) -> bool:
        return ours.keys() == others.keys() and all(others[key] == ours[key] + first.count for key in ours)

    return follows(first.dims, second.dims) and follows(first.iters, second.iters)
