"""What tiles of a chain's result need of each of its stages, for many tiles at once.

In: a chain, and tiles of its last stage: for every axis an array with an element for each tile. Out: for every stage
the extents that a tile needs along each axis, and what these read of each operand, as such arrays too.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import cached_property, reduce
from typing import Any, TypeAlias

import numpy as np
import tvm
from numpy.typing import NDArray

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.model.chain import Chain, Extents, full_extents
from eqsat_layout.targets.schedules.accesses import StageAxis, depends_on
from eqsat_layout.targets.schedules.stages import Stage

Numbers: TypeAlias = NDArray[np.int64]
"""One for each tile; or a single one, the same for all of them."""

Sizes: TypeAlias = tuple[Numbers, ...]
"""Along each axis."""

_LARGEST = 1 << 62  # elements along an axis: TVM's bounds of what it knows nothing of are beyond it


def as_arrays(tiles: Sequence[Extents]) -> Sizes:
    """The tiles' sizes along each axis."""
    return tuple(np.array(tiles, np.int64).reshape(len(tiles), -1).T)


class TileNeeds:
    """Reads indices of loads; what is known of a stage's loads is remembered from one chain to the next."""

    def __init__(self) -> None:
        self._regions: dict[int, tuple[Stage, list[list[_Span]]]] = {}

    def of_chain(self, chain: Chain, tiles: Sizes, widened: Container[int] = ()) -> list[Sizes] | None:
        """The needs of every stage; ``None`` where one is not read along its axes, or not at all.

        ``widened``: stages that will make whatever is asked of them, beyond their axes too.
        """
        needed: list[Sizes | None] = [None] * len(chain.stages)
        needed[-1] = tiles
        for number in range(len(chain.stages) - 1, -1, -1):
            extents = needed[number]
            if extents is None:
                return None
            loads = list(zip(chain.links[number], self._spans(chain.stages[number]), strict=True))
            for source in dict.fromkeys(link.source for link, _ in loads):
                if source is None:
                    continue
                full = full_extents(chain.stages[source])
                spans = [own for link, own in loads if link.source == source]
                if any(len(own) != len(full) for own in spans):
                    return None
                before = needed[source] or (np.ones(1, np.int64),) * len(full)
                along = [_from_first_to_last(one, extents) for one in zip(*spans, strict=True)]
                asked = [np.maximum(size, known) for size, known in zip(along, before, strict=True)]
                if source not in widened:
                    asked = [np.minimum(most, size) for most, size in zip(full, asked, strict=True)]
                needed[source] = tuple(asked)
        return [extents for extents in needed if extents is not None]

    def of_loads(self, stage: Stage, extents: Sizes) -> list[Sizes]:
        """For every load of a stage the elements that it touches along each axis, for so many of the result."""
        return [tuple(span.of(extents)[1] for span in spans) for spans in self._spans(stage)]

    def _spans(self, stage: Stage) -> list[list[_Span]]:
        """The spans of every load, for each of its indices."""
        if id(stage) not in self._regions:  # kept with it, for no other one to have its number
            spans = [[_Span(stage, index) for index in load.indices] for load in stage.loads]
            self._regions[id(stage)] = (stage, spans)
        return self._regions[id(stage)][1]


def _from_first_to_last(spans: Sequence[_Span], extents: Sizes) -> Numbers:
    """Elements that loads of one buffer touch along one axis, with what lies between: a tile of it is one piece."""
    ranges = [span.of(extents) for span in spans]
    firsts, ends = zip(*((first, first + size) for first, size in ranges), strict=True)
    found: Numbers = reduce(np.maximum, ends) - reduce(np.minimum, firsts)
    return found


class _Span:
    """From the smallest to the largest value of one index of a load."""

    def __init__(self, stage: Stage, index: Any) -> None:
        self._stage, self._index = stage, index
        self._known: dict[Extents, tuple[int, int]] = {}

    def of(self, extents: Sizes) -> tuple[Numbers, Numbers]:
        """The smallest one in the first tile of so many elements along every spatial axis, and how many there are."""
        if self._axis is not None:
            return np.zeros(1, np.int64), extents[self._axis]
        given = np.zeros((0, 1), np.int64)
        if self._moving:
            given = np.stack(np.broadcast_arrays(*(extents[n] for n in self._moving)))
        sizes, places = (
            np.unique(given, axis=1, return_inverse=True) if given.shape[1] > 1 else (given, np.zeros(1, int))
        )
        first, count = np.array([self._span(tuple(size)) for size in sizes.T.tolist()], np.int64).T
        return first[places.ravel()], count[places.ravel()]

    @cached_property
    def _axis(self) -> int | None:
        """The spatial axis that the index is, as it stands."""
        return next((n for n, axis in enumerate(self._stage.spatial) if self._index.same_as(axis.var)), None)

    @cached_property
    def _moving(self) -> list[int]:
        """The spatial axes that the index moves along."""
        return [n for n, axis in enumerate(self._stage.spatial) if depends_on(self._index, axis.var)]

    @cached_property
    def _reduced(self) -> list[StageAxis]:
        return [axis for axis in self._stage.reduced if depends_on(self._index, axis.var)]

    def _span(self, extents: Extents) -> tuple[int, int]:
        if extents not in self._known:
            analyzer = tvm.sym.Analyzer()
            for number, extent in zip(self._moving, extents, strict=True):
                analyzer.bind(self._stage.spatial[number].var, tvm.ir.Range(0, extent))
            for axis in self._reduced:
                analyzer.bind(axis.var, tvm.ir.Range(0, axis.extent))
            bound = analyzer.const_int_bound(self._index)
            first, span = int(bound.min_value), int(bound.max_value) - int(bound.min_value) + 1
            if span > _LARGEST:
                raise Refused("places that only the data says")
            self._known[extents] = first, span
        return self._known[extents]
