"""Which stages run together, tile by tile, so that what is between them stays in L2.

In: stages in order, each with the stages that make what it loads. Out: the tile of the last stage's result for which
all of them take the least time, and that time, by a small model of arithmetic and traffic.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import tvm

from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.overlap import overlapped
from eqsat_layout.targets.cpu.model.register_tiles import tile_cycles
from eqsat_layout.targets.schedules.accesses import StageAccess, StageAxis
from eqsat_layout.targets.schedules.stages import Stage, divisors

_REACHED = 0.97  # of the peak is what the best register tiles reach (measured on Zen 5)
_NEAR = 0.52  # of the bandwidth of L2 is left to loads and stores that take turns
_FAR = 2 / 3  # of that of memory, for what overflows L2 between stages: a line is read before it is written
_GAIN = 0.75  # of the time apart that one kernel must stay below: the model flatters it where work is in registers
_PADDED_GAIN = 0.95  # the same where pads were moved: alone they are conditions in loops, which the model leaves out
_JUMP = 256.0  # bytes that could be moved in the time of going on elsewhere
_BRANCH = 4.0  # cycles of a condition: a comparison, a mask and a select for each operand
_SHORTEST = 20000.0  # nanoseconds of what is worth the compile time
_FILL = 0.6  # of the working set of L2, for what lies between stages
_SIZES = (1, 4, 16, 64)  # of tiles that are tried along an axis, about: others differ by less than the model knows
_MOST_TILES = 2000  # sizes of tiles that are compared, as each costs compile time
_MOST_STAGES = 12  # in one kernel, as TVM's compute_at takes longer with each

Extents = tuple[int, ...]


@dataclass(frozen=True)
class FusedTiles:
    """``tile[i]`` elements of axis ``i`` of the last stage at a time, all stages in one kernel of ``nanoseconds``."""

    tile: Extents
    nanoseconds: float


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
            s.simple and s.is_plain and all(a.extent for a in s.axes) and (s.is_reduction or _is_in_vectors(s))
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
                s.conditions
                and any(link.source is not None for link in links)
                and not (self.has_pads and number in self.epilogues)
                for number, (s, links) in enumerate(pairs)
            )
            and all(number in used for number in range(len(self.stages) - 1))
        )

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
                if before.is_reduction and readers[source] == 1 and math.prod(_full(before)) == stage.domain:
                    found.add(number)
        return frozenset(found)

    @cached_property
    def in_registers(self) -> frozenset[int]:
        """Reductions whose results only an epilogue reads."""
        sources = (link.source for number in self.epilogues for link in self.links[number])
        return frozenset(source for source in sources if source is not None)

    @property
    def passes(self) -> int:
        """Stages that have loops of their own."""
        return len(self.stages) - len(self.epilogues)

    def then(self, other: Chain, operands: Sequence[Any]) -> Chain:
        """Both, where ``other`` reads the result of this one as these parameters."""
        before = len(self.stages)

        def moved(link: Link) -> Link:
            if any(link.access.buffer.same_as(operand) for operand in operands):
                return replace(link, source=before - 1)
            return link if link.source is None else replace(link, source=link.source + before)

        links = tuple(tuple(map(moved, links)) for links in other.links)
        return Chain(self.stages + other.stages, self.links + links)


def chain_of(stages: Sequence[Stage], *, has_pads: bool = False) -> Chain:
    """The stages of one function."""
    made = [stage.write.buffer for stage in stages]

    def source(access: StageAccess) -> int | None:
        return next((number for number, buffer in enumerate(made) if access.buffer.same_as(buffer)), None)

    links = tuple(tuple(Link(load, source(load)) for load in stage.loads) for stage in stages)
    return Chain(tuple(stages), links, has_pads)


def row_axes(stages: Sequence[Stage]) -> int:
    """How many axes of the last stage number the rows: those that every reduction keeps. 0: there are no rows."""
    *earlier, last = stages
    kept = [_extents(stage.spatial) for stage in earlier if stage.is_reduction]
    if not kept or last.is_reduction or not all(stage.simple and stage.is_plain for stage in stages):
        return 0
    counts = range(1, len(last.axes))
    return next((n for n in counts if all(extents == _extents(last.axes[:n]) for extents in kept)), 0)


def _extents(axes: Sequence[StageAxis]) -> list[int | None]:
    return [axis.extent for axis in axes if axis.extent != 1]


class ChainModel:
    """Times of chains on a machine, what is known of a stage remembered from one to the next."""

    def __init__(self, machine: CpuMachine) -> None:
        self._machine = machine
        self._ghz = _REACHED * machine.cycles_per_nanosecond  # of cycles as register tiles count them
        self._launch = machine.parallel_launch * 1e9
        # bytes a nanosecond: of all cores from memory, and of each from L2 within a tile, from the last-level cache for
        # what every tile reads again, and from further away for what overflows L2
        self._memory = min(machine.memory_bandwidth * machine.cores, machine.all_memory_bandwidth) / 1e9
        self._near = _NEAR * machine.l2_bytes_per_cycle * machine.cycles_per_nanosecond
        self._shared = machine.last_level_bandwidth / 1e9
        self._far = _FAR * machine.memory_bandwidth / 1e9
        self._cycles: dict[Any, tuple[Stage, float | None]] = {}
        self._regions: dict[Any, tuple[Stage, tuple[Extents, ...]]] = {}

    def apart(self, chain: Chain) -> float:
        """Nanoseconds of the stages one after the other, each as a loop of its own."""
        total = 0.0
        for number, (stage, links) in enumerate(zip(chain.stages, chain.links, strict=True)):
            cycles = self._cycles_of(stage, _full(stage), joined=True)
            if cycles is None and stage.is_along_memory:
                cycles = _vector_cycles(stage, _full(stage), self._machine)
            if cycles is None:
                return math.inf
            moved = 0 if number in chain.in_registers else math.prod(_full(stage)) * stage.write.element_bytes
            moved += sum(_all_bytes(link.access) for link in links if link.source not in chain.in_registers)
            launch = 0.0 if number in chain.epilogues else self._launch
            total += overlapped(cycles / self._ghz / self._machine.cores, moved / self._memory) + launch
        return total

    def one_operation(self, stage: Stage) -> float:
        """Nanoseconds of an operation on vectors for all that a stage makes, from registers."""
        return stage.domain / self._machine.lanes(stage.write.element_bytes) / self._ghz / self._machine.cores

    def half_peak(self, chain: Chain) -> float:
        """Nanoseconds of the first stage, a reduction, at half of the arithmetic that there is."""
        return self.one_operation(chain.stages[0]) + self._launch

    def in_rows(self, chain: Chain) -> float:
        """Nanoseconds of the stages row by row (:mod:`fused_rows`); infinite where they don't work in rows."""
        if not chain.is_known or not row_axes(chain.stages):
            return math.inf
        cycles = sum(_vector_cycles(stage, _full(stage), self._machine) for stage in chain.stages)
        moved = math.prod(_full(chain.last)) * chain.last.write.element_bytes
        moved += sum(_all_bytes(link.access) for links in chain.links for link in links if link.source is None)
        return overlapped(cycles / self._ghz / self._machine.cores, moved / self._memory) + self._launch

    def faster(self, chain: Chain, nanoseconds: float) -> FusedTiles | None:
        """The fastest tiles, if they take clearly less time than so much."""
        between = sum(math.prod(_full(stage)) * stage.write.element_bytes for stage in chain.stages[:-1])
        most = 2 * between / self._memory + len(chain.stages) * self._launch  # that it can save
        share = _PADDED_GAIN if chain.has_pads else _GAIN
        if most < (1 - share) * nanoseconds or nanoseconds < _SHORTEST or chain.passes < 2 or not chain.is_regular:
            return None
        bounds = ((self._bound(chain, tile), tile) for tile in _tiles(chain.last))
        best: FusedTiles | None = None
        for bound, tile in sorted(bounds):
            if bound >= (best.nanoseconds if best else share * nanoseconds):
                break
            cost = self.nanoseconds(chain, tile)
            if cost is not None and cost < (best.nanoseconds if best else share * nanoseconds):
                best = FusedTiles(tile, cost)
        return best

    def nanoseconds(self, chain: Chain, tile: Extents) -> float | None:
        """The time; ``None`` if a stage has no tile of registers."""
        needed = self._needed(chain, tile)
        cycles = [self._cycles_of(stage, size) for stage, size in zip(chain.stages, needed or (), strict=False)]
        known = [count for count in cycles if count is not None]
        return self._total(chain, tile, needed, sum(known)) if needed and len(known) == len(cycles) else None

    def _bound(self, chain: Chain, tile: Extents) -> float:
        """No more than the time of ``tile``; infinite where it is none of use."""
        needed = self._needed(chain, tile)
        if needed is None or tile == _full(chain.last):
            return math.inf
        best = 1 / (self._machine.fma_units * self._machine.lanes(chain.last.write.element_bytes))
        stages = [(stage, size) for stage, size in zip(chain.stages, needed, strict=True) if stage.is_reduction]
        return self._total(chain, tile, needed, sum(math.prod(size) * stage.steps * best for stage, size in stages))

    def _total(self, chain: Chain, tile: Extents, needed: Sequence[Extents], cycles: float) -> float:
        """Of a tile that takes so many ``cycles`` of arithmetic."""
        full, cache = _full(chain.last), self._machine.l2_working_set
        tiles = math.prod(-(-whole // size) for whole, size in zip(full, tile, strict=True))
        between = sum(
            math.prod(extents) * stage.write.element_bytes
            for number, (stage, extents) in enumerate(zip(chain.stages[:-1], needed, strict=False))
            if number not in chain.in_registers
        )
        own = 2 * between / (self._near if between <= _FILL * cache else self._far)
        moved = math.prod(full) * chain.last.write.element_bytes * _scatter(tile, chain.last.write)
        for stage, links, extents in zip(chain.stages, chain.links, needed, strict=True):
            for link, region in zip(links, self._regions_of(stage, extents), strict=True):
                if link.source is not None:
                    continue
                size, whole = math.prod(region) * link.access.element_bytes, _all_bytes(link.access)
                if size * tiles <= 2 * whole:
                    moved += size * tiles * _scatter(region, link.access)
                else:
                    moved += whole
                    own += size / (self._near if size <= cache // 4 else self._shared)
        rounds = -(-tiles // self._machine.cores)
        return overlapped(overlapped(cycles / self._ghz, own) * rounds, moved / self._memory) + self._launch

    def _needed(self, chain: Chain, tile: Extents) -> list[Extents] | None:
        """For every stage the elements along each axis that a tile needs, read off the indices of loads."""
        needed: list[Extents | None] = [None] * len(chain.stages)
        needed[-1] = tile
        for number in range(len(chain.stages) - 1, -1, -1):
            extents = needed[number]
            if extents is None:
                return None
            regions = self._regions_of(chain.stages[number], extents)
            for link, region in zip(chain.links[number], regions, strict=True):
                if link.source is None:
                    continue
                full = _full(chain.stages[link.source])
                if len(region) != len(full):
                    return None
                known = needed[link.source] or (1,) * len(full)
                needed[link.source] = tuple(
                    min(most, max(size, before)) for most, size, before in zip(full, region, known, strict=True)
                )
        return [extents for extents in needed if extents is not None]

    def _regions_of(self, stage: Stage, extents: Extents) -> tuple[Extents, ...]:
        """For every load of a stage the elements that it touches along each axis."""
        key = (id(stage), extents)
        if key not in self._regions:
            self._regions[key] = (stage, _regions(stage, extents))
        return self._regions[key][1]

    def _cycles_of(self, stage: Stage, extents: Extents, *, joined: bool = False) -> float | None:
        """Cycles of one core for so many elements of a stage, from L1."""
        key = (id(stage), extents, joined)
        if key not in self._cycles:
            self._cycles[key] = (stage, _cycles(stage, extents, self._machine, joined=joined))
        return self._cycles[key][1]


def _tiles(last: Stage) -> Iterator[Extents]:
    choices: list[list[int]] = []
    for number, axis in enumerate(last.spatial):
        extent = axis.extent or 1
        period = math.lcm(*(load.period(axis.var) or 1 for load in last.loads))
        fit = [d for d in divisors(extent, extent) if d % period == 0] or [extent]
        if number == len(last.spatial) - 1:
            fit = [d for d in fit if d == extent or d % 16 == 0]
        sizes = {min(fit, key=lambda d, size=size: abs(math.log(d / (size * period)))) for size in _SIZES}  # type: ignore[misc]
        choices.append(sorted({*sizes, fit[-1]}))
    yield from itertools.islice(itertools.product(*choices), _MOST_TILES)


def _is_in_vectors(stage: Stage) -> bool:
    """An elementwise stage whose last axis runs along memory, without conditions."""
    lane = stage.axes[-1].var
    return not stage.branches_on(lane) and all(load.stride(lane) in (0, 1) for load in (*stage.loads, stage.write))


def _regions(stage: Stage, extents: Extents) -> tuple[Extents, ...]:
    analyzer = tvm.sym.Analyzer()
    for axis, extent in zip(stage.spatial, extents, strict=True):
        analyzer.bind(axis.var, tvm.ir.Range(0, extent))
    for axis in stage.reduced:
        analyzer.bind(axis.var, tvm.ir.Range(0, axis.extent))
    return tuple(tuple(_span(analyzer, index) for index in load.indices) for load in stage.loads)


def _span(analyzer: Any, index: Any) -> int:
    bound = analyzer.const_int_bound(index)
    return int(bound.max_value) - int(bound.min_value) + 1


def _cycles(stage: Stage, extents: Extents, machine: CpuMachine, *, joined: bool = False) -> float | None:
    """Cycles of one core for so many elements of a stage, from L1."""
    if not stage.is_reduction:
        return _vector_cycles(stage, extents, machine)
    cycles = tile_cycles(stage.within(extents), machine, joined=joined)
    return None if cycles is None else cycles * math.prod(extents) * stage.steps


def _vector_cycles(stage: Stage, extents: Extents, machine: CpuMachine) -> float:
    """Of work in vectors, an element of each at a time."""
    branches = _BRANCH if stage.conditions else 0
    work = math.prod(extents) * stage.steps * (max(1, stage.size) + branches)
    return work / machine.lanes(stage.write.element_bytes)


def _full(stage: Stage) -> Extents:
    return tuple(axis.extent or 1 for axis in stage.spatial)


def _scatter(region: Extents, access: StageAccess) -> float:
    """How many times as long it takes to move a region as one piece of memory of its size."""
    run = access.element_bytes
    for size, whole in zip(reversed(region), reversed(access.shape), strict=True):
        run *= size
        if size != whole:
            break
    return 1 + _JUMP / run


def _all_bytes(access: StageAccess) -> int:
    return math.prod(e or 1 for e in access.shape) * access.element_bytes
