"""Stages as a chain: which of them makes what another one loads.

In: stages in order. Out: their links, which are epilogues of which, and whether their loops can become one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from eqsat_layout.cost.vectorise import MOST_PHASES
from eqsat_layout.targets.cpu.cut_loops import phases_are_cut
from eqsat_layout.targets.schedules.accesses import StageAccess, StageAxis
from eqsat_layout.targets.schedules.stages import Stage
from eqsat_layout.tir.structural import is_one_of

_WORD = 4  # bytes of elements that LLVM puts into phases in vectors: bytes it moves one by one
_MOST_STAGES = 12  # in one kernel, as TVM's compute_at takes longer with each

Extents = tuple[int, ...]


@dataclass(frozen=True)
class Link:
    """One load of a stage: the number of the stage that makes what it reads; ``None``: a parameter."""

    access: StageAccess
    source: int | None


@dataclass(frozen=True)
class Chain:
    """Stages in order. ``links[i]``: the loads of stage ``i``. The last one makes the result, others only feed it.

    ``has_pads``: pads were moved into epilogues, which are to have conditions for that reason.
    """

    stages: tuple[Stage, ...]
    links: tuple[tuple[Link, ...], ...]
    has_pads: bool = False

    @property
    def last(self) -> Stage:
        """The stage that makes the result."""
        return self.stages[-1]

    @cached_property
    def is_known(self) -> bool:
        """All stages store one element of an axis each, of known extents, and those without reductions in vectors."""
        return all(
            s.simple and s.is_in_order and all(a.extent for a in s.axes) and (s.is_reduction or _is_in_vectors(s))
            for s in self.stages
        )

    @cached_property
    def is_regular(self) -> bool:
        """All stages can be cut into tiles, and what each makes is for later ones."""
        used = {link.source for links in self.links for link in links}
        pairs = list(zip(self.stages, self.links, strict=True))
        return (
            self.is_known
            and len(self.stages) <= _MOST_STAGES
            # what feeds a pad would have a tile of its own size at every border, and conditions inside
            and not any(
                any(map(s.branches_on, (axis.var for axis in s.spatial)))
                and any(link.source is not None for link in links)
                and not (self.has_pads and number in self.epilogues)
                and not _pads_rows_alone(s)
                for number, (s, links) in enumerate(pairs)
            )
            and all(number in used for number in range(len(self.stages) - 1))
        )

    @cached_property
    def row_reductions(self) -> frozenset[int]:
        """Reductions along memory that are no products: of rows that other stages make, as in a softmax."""
        return frozenset(number for number, stage in enumerate(self.stages) if reduces_rows(stage))

    @cached_property
    def has_products(self) -> bool:
        """Some reductions are none of rows."""
        return any(s.is_reduction and n not in self.row_reductions for n, s in enumerate(self.stages))

    @cached_property
    def epilogues(self) -> frozenset[int]:
        """Elementwise stages of which each runs on the accumulators of a reduction that nothing else reads."""
        readers = Counter(source for links in self.links for source in {link.source for link in links})
        found: set[int] = set()
        for number, (stage, links) in enumerate(zip(self.stages, self.links, strict=True)):
            sources = {link.source for link in links if link.source is not None}
            if len(sources) == 1 and not stage.is_reduction:
                (source,) = sources
                before = self.stages[source]
                if before.is_reduction and readers[source] == 1 and math.prod(full_extents(before)) == stage.domain:
                    found.add(number)
        return frozenset(found)

    @cached_property
    def in_registers(self) -> frozenset[int]:
        """Reductions whose results only an epilogue reads."""
        sources = (link.source for number in self.epilogues for link in self.links[number])
        return frozenset(source for source in sources if source is not None)

    @cached_property
    def in_pieces(self) -> frozenset[int]:
        """Elementwise stages after rows are reduced, of each of which one product alone reads a piece at a time."""
        found: set[int] = set()
        for number in range(max(self.row_reductions, default=len(self.stages)) + 1, len(self.stages)):
            readers = [n for n, links in enumerate(self.links) for link in links if link.source == number]
            if not self.stages[number].is_reduction and len(readers) == 1 and self.stages[readers[0]].is_reduction:
                found.add(number)
        return frozenset(found)

    @cached_property
    def padded(self) -> frozenset[int]:
        """Stages of which a pad is made: the reduction, and what is elementwise between it and the pad."""
        found: set[int] = set()
        waiting = [n for n, stage in enumerate(self.stages) if stage.conditions]
        while waiting:
            number = waiting.pop()
            sources = {link.source for link in self.links[number]} - {None} - found
            found |= sources  # type: ignore[arg-type]
            waiting += [n for n in sources if n is not None and not self.stages[n].is_reduction]
        return frozenset(found)

    @cached_property
    def is_padded_reduction(self) -> bool:
        """One reduction of operands that are given, copied or padded; all else runs on its accumulators."""
        first = [stage for number, stage in enumerate(self.stages) if number not in self.in_registers | self.epilogues]
        pads = [stage for stage in first if not stage.is_reduction]
        is_plain = all(stage.is_copy or (stage.conditions and len(stage.loads) == 1) for stage in pads)
        return is_plain and sum(stage.is_reduction for stage in self.stages) == 1

    @cached_property
    def has_phases(self) -> bool:
        """Some stage only puts data in phases."""
        return any(map(is_of_phases, self.stages))

    @cached_property
    def most_between(self) -> int:
        """Bytes of the largest result of a stage that others read."""
        return max((result_bytes(stage) for stage in self.stages[:-1]), default=0)

    @property
    def passes(self) -> int:
        """Stages that have loops of their own."""
        return len(self.stages) - len(self.epilogues)

    def then(self, other: Chain, operands: Sequence[Any]) -> Chain:
        """Both, where ``other`` reads the result of this one as these parameters."""
        before = len(self.stages)

        def moved(link: Link) -> Link:
            if is_one_of(link.access.buffer, operands):
                return replace(link, source=before - 1)
            return link if link.source is None else replace(link, source=link.source + before)

        links = tuple(tuple(map(moved, links)) for links in other.links)
        return Chain(self.stages + other.stages, self.links + links, self.has_pads)


def chain_of(stages: Sequence[Stage], *, has_pads: bool = False) -> Chain:
    """The stages of one function."""
    made = [stage.write.buffer for stage in stages]

    def source(access: StageAccess) -> int | None:
        return next((number for number, buffer in enumerate(made) if access.buffer.same_as(buffer)), None)

    links = tuple(tuple(Link(load, source(load)) for load in stage.loads) for stage in stages)
    return Chain(tuple(stages), links, has_pads)


def reduces_rows(stage: Stage) -> bool:
    """A reduction along memory that is no product, and no window: elements beside each other are of one row."""
    if not stage.is_along_memory or stage.is_product or stage.has_window:
        return False
    along = stage.reduced[-1]
    return along.extent != 1 and any(load.stride(along.var) == 1 for load in stage.loads)


def row_axes(stages: Sequence[Stage]) -> int:
    """How many axes of the last stage number the rows: those that every reduction keeps. 0: there are no rows."""
    *earlier, last = stages
    kept = [_extents(stage.spatial) for stage in earlier if stage.is_reduction]
    if not kept or last.is_reduction or not all(stage.simple and stage.is_plain for stage in stages):
        return 0
    counts = range(1, len(last.axes) + 1)
    return next((n for n in counts if all(extents == _extents(last.axes[:n]) for extents in kept)), 0)


def _extents(axes: Sequence[StageAxis]) -> list[int | None]:
    return [axis.extent for axis in axes if axis.extent != 1]


def _is_in_vectors(stage: Stage) -> bool:
    """An elementwise stage whose last axis runs along memory, without conditions, or that LLVM puts into vectors."""
    lane = stage.axes[-1].var
    is_along = all(load.stride(lane) in (0, 1) for load in (*stage.loads, stage.write))
    return (is_along and not stage.branches_on(lane)) or is_of_phases(stage)


def is_of_phases(stage: Stage) -> bool:
    """A copy, or a pad, in which elements a few places apart come to lie side by side (:mod:`.single.phases`)."""
    lane = stage.axes[-1].var
    is_near = all(1 < (load.stride(lane) or 0) <= MOST_PHASES for load in stage.loads)
    is_plain = len(stage.loads) == 1 and stage.write.stride(lane) == 1 and stage.write.element_bytes == _WORD
    return is_near and is_plain and (stage.is_copy or phases_are_cut(stage))


def _pads_rows_alone(stage: Stage) -> bool:
    """Data are put in phases, with padding at the ends of rows only."""
    return is_of_phases(stage) and not any(stage.branches_on(axis.var) for axis in stage.axes[:-2])


def full_extents(stage: Stage) -> Extents:
    """The extents of the axes of a stage's result."""
    return tuple(axis.extent or 1 for axis in stage.spatial)


def result_bytes(stage: Stage) -> int:
    """The bytes of a stage's result."""
    return math.prod(full_extents(stage)) * stage.write.element_bytes
