"""Which stages run together, tile by tile, so that what is between them stays in L2.

In: stages in order, each with the stages that make what it loads. Out: the tile of the last stage's result for which
all of them take the least time, and that time, by a small model of arithmetic and traffic.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat_layout.targets.cpu.costs import PHASE
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.chain import (
    Chain,
    Extents,
    Link,
    full_extents,
    is_of_phases,
    reduces_rows,
    result_bytes,
    row_axes,
)
from eqsat_layout.targets.cpu.model.overlap import each_overlapped, overlapped
from eqsat_layout.targets.cpu.model.read_again import JUMP, read_again
from eqsat_layout.targets.cpu.model.register_tiles import any_tile_cycles, tile_cycles
from eqsat_layout.targets.cpu.model.row_lanes import row_lanes
from eqsat_layout.targets.cpu.model.tile_needs import Sizes, TileNeeds, as_arrays
from eqsat_layout.targets.cpu.model.vectors import vector_lanes
from eqsat_layout.targets.schedules.accesses import StageAccess, moved_by
from eqsat_layout.targets.schedules.attempts import unless_refused
from eqsat_layout.targets.schedules.stages import Stage, divisors
from eqsat_layout.tir.structural import is_one_of

_REACHED = 0.97  # of the peak is what the best register tiles reach (measured on Zen 5)
_NEAR = 0.52  # of the bandwidth of L2 is left to loads and stores that take turns
_STREAMED = 0.3  # of the traffic within tiles where rows are reduced: products read whole panels in order, which
# prefetch brings along (attention over 1024 keys takes 6 % longer than its arithmetic on Zen 4)
_FAR = 2 / 3  # of that of memory, for what overflows L2 between stages: a line is read before it is written
_SPILL = 3  # times L2, up to which the last-level cache holds such rows and prefetch hides half of it (over 2048 keys
# 64 rows at a time take .92 of the time of 16, and of six heads at once .99; Zen 3, 512 KiB of L2)
_GAIN = 0.75  # of the time apart that one kernel must stay below: the model flatters it where work is in registers
_CLEAR_GAIN = (
    0.95  # the same where pads were moved, which alone are conditions in loops that the model leaves out, where
)
# rows are reduced, which alone are read from memory again and again, and where a pad is all that is made first
_GAIN_OF_PARTS = 0.85  # the same where vectors divide no rows: products have tiles of parts of vectors, too
_GAIN_IN_CACHE = 0.8  # the same where L2 holds all rows at once: apart, too, they are not read from memory
_BRANCH = 4.0  # cycles of a condition: a comparison, a mask and a select for each operand
_SHORTEST = 20000.0  # nanoseconds of what is worth the compile time
_FILL = 0.6  # of the working set of L2, for what lies between stages
_SIZES = (1, 4, 16, 64)  # of tiles that are tried along an axis, about: others differ by less than the model knows
_SIZES_OF_ROWS = (1, 4, 16, 32, 64)  # the same where rows are reduced, as many as L2 holds
_VECTOR = 16  # elements of whole vectors
_MOST_TILES = 2000  # sizes of tiles that are compared, as each costs compile time


@dataclass(frozen=True)
class FusedTiles:
    """``tile[i]`` elements of axis ``i`` of the last stage at a time, all stages in one kernel of ``nanoseconds``."""

    tile: Extents
    nanoseconds: float


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
        self._needs = TileNeeds()

    def apart(self, chain: Chain) -> float:
        """Nanoseconds of the stages one after the other, each as a loop of its own with what it gets in registers."""
        total = 0.0
        kept: dict[int, tuple[float, float]] = {}  # cycles and bytes by the number of a stage that stays in registers
        for number, (stage, links) in enumerate(zip(chain.stages, chain.links, strict=True)):
            cycles = self._cycles_of(stage, full_extents(stage), joined=True)
            if cycles is None:
                return math.inf
            read = [link.access for link in links if link.source not in chain.in_registers]
            moved = float(sum(_all_bytes(access) + read_again(stage, access, self._machine) for access in read))
            for source in kept.keys() & {link.source for link in links}:
                before, beside = kept.pop(source)
                cycles, moved = cycles + before, moved + beside
            if number in chain.in_registers:
                kept[number] = cycles, moved
            else:
                moved += self._written_bytes(stage)
                total += overlapped(cycles / self._ghz / self._machine.cores, moved / self._memory)
            total += 0.0 if number in chain.epilogues else self._launch
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
        cycles = sum(_vector_cycles(stage, full_extents(stage), self._machine) for stage in chain.stages)
        moved = self._written_bytes(chain.last)
        moved += sum(_all_bytes(link.access) for links in chain.links for link in links if link.source is None)
        return overlapped(cycles / self._ghz / self._machine.cores, moved / self._memory) + self._launch

    def faster(self, chain: Chain, nanoseconds: float) -> FusedTiles | None:
        """The fastest tiles, if they take clearly less time than so much."""
        between = sum(result_bytes(stage) + self._written_bytes(stage) for stage in chain.stages[:-1])
        most = between / self._memory + len(chain.stages) * self._launch  # that it can save
        share = self._share(chain)
        if share is None:
            return None
        if most < (1 - share) * nanoseconds or nanoseconds < _SHORTEST or chain.passes < 2 or not chain.is_regular:
            return None
        tiles = list(_tiles(chain))
        best: FusedTiles | None = None
        for bound, tile in sorted(zip(self._bounds(chain, tiles), tiles, strict=True)):
            if bound >= (best.nanoseconds if best else share * nanoseconds):
                break
            cost = self.nanoseconds(chain, tile)
            if cost is not None and cost < (best.nanoseconds if best else share * nanoseconds):
                best = FusedTiles(tile, cost)
        return best

    def may_gain_with_pads_first(self, chain: Chain, nanoseconds: float) -> bool:
        """Whether some tiles may take clearly less time. The pads are not moved yet: that only adds copies."""
        sizes = [full_extents(stage) for stage in chain.stages]
        cycles = [self._cycles_of(stage, size, joined=True) for stage, size in zip(chain.stages, sizes, strict=True)]
        known = [count for count in cycles if count is not None]
        if nanoseconds < _SHORTEST or len(known) < len(cycles):
            return False
        each = [count / math.prod(size) for count, size in zip(known, sizes, strict=True)]
        return min(self._bounds(chain, list(_tiles(chain)), each, chain.padded)) < _CLEAR_GAIN * nanoseconds

    def nanoseconds(self, chain: Chain, tile: Extents) -> float | None:
        """The time; ``None`` if a stage has no tile of registers."""
        tiles = as_arrays([tile])
        needed = self._needs.of_chain(chain, tiles)
        if needed is None:
            return None
        sizes = [tuple(int(extent[0]) for extent in extents) for extents in needed]
        stages = zip(chain.stages, sizes, chain.links, strict=True)
        cycles = [self._cycles_of(stage, size, links) for stage, size, links in stages]
        known = [count for count in cycles if count is not None]
        return float(self._total(chain, tiles, needed, sum(known))[0]) if len(known) == len(cycles) else None

    def _bounds(
        self,
        chain: Chain,
        given: Sequence[Extents],
        cycles: Sequence[float] | None = None,
        widened: Container[int] = (),
    ) -> list[float]:
        """For each tile no more than its time; infinite where it is none of use.

        ``cycles``: of one core for an element of each stage, where more is known than the peak. ``widened``: stages
        that will make the borders of what they make, too.
        """
        tiles = as_arrays(given)
        needed = self._needs.of_chain(chain, tiles, widened)
        if needed is None:
            return [math.inf] * len(given)
        best = 1 / (self._machine.vectors_per_cycle * self._machine.lanes(chain.last.write.element_bytes))
        each = cycles or [stage.steps * best for stage in chain.stages]
        reductions = [number for number, stage in enumerate(chain.stages) if stage.is_reduction]
        work = sum(math.prod(needed[number]) * each[number] for number in reductions)
        times: list[float] = self._total(chain, tiles, needed, work).tolist()
        return [math.inf if tile == full_extents(chain.last) else time for tile, time in zip(given, times, strict=True)]

    def _total(self, chain: Chain, sizes: Sizes, needed: Sequence[Sizes], cycles: Any) -> Any:
        """The time of all tiles, of so many ``cycles`` of arithmetic each."""
        full, cache = full_extents(chain.last), self._machine.l2_working_set
        tiles = math.prod(-(-whole // size) for whole, size in zip(full, sizes, strict=True))
        between = sum(
            math.prod(extents) * stage.write.element_bytes
            for number, (stage, extents) in enumerate(zip(chain.stages[:-1], needed, strict=False))
            if number not in chain.in_registers | chain.in_pieces
        )
        is_near = between <= _FILL * cache
        own = np.where(is_near, 2 * between / self._near, 0)
        far = 2 * between / self._far
        moved = self._written_bytes(chain.last) * _scatter(_written_region(chain.last, sizes), chain.last.write)
        for stage, links, extents in zip(chain.stages, chain.links, needed, strict=True):
            for link, region in zip(links, self._needs.of_loads(stage, extents), strict=True):
                if link.source is not None:
                    continue
                size, whole = math.prod(region) * link.access.element_bytes, _all_bytes(link.access)
                is_read_once = size * tiles <= 2 * whole
                moved = moved + np.where(is_read_once, size * tiles * _scatter(region, link.access), whole)
                again = size / np.where(size <= cache // 4, self._near, self._shared)
                own = own + np.where(is_read_once, 0, again)
        if chain.row_reductions:
            far = np.where(between <= _SPILL * cache, between / self._shared, far)
            own = own * _STREAMED
        own = own + np.where(is_near, 0, far)
        rounds = -(-tiles // self._machine.cores)
        return each_overlapped(each_overlapped(cycles / self._ghz, own) * rounds, moved / self._memory) + self._launch

    def _share(self, chain: Chain) -> float | None:
        """The share of the time apart that tiles must stay below; ``None`` where rows are better not done in tiles."""
        rows = [chain.stages[number] for number in chain.row_reductions]
        if chain.has_phases and chain.most_between <= self._machine.l2_working_set // 2:
            return None  # long vectors are worth more than being near: the copy and what it is of stay in L2
        if not rows:
            return _CLEAR_GAIN if chain.has_pads or chain.is_padded_reduction else _GAIN
        lanes = [_lanes_of_rows(stage, self._machine) for stage in rows]
        if not (chain.has_products and all(lanes)):
            return None
        if chain.most_between <= self._machine.l2_working_set:
            return _GAIN_IN_CACHE
        is_full = all(n == self._machine.lanes(s.write.element_bytes) for n, s in zip(lanes, rows, strict=True))
        return _CLEAR_GAIN if is_full else _GAIN_OF_PARTS

    def _written_bytes(self, stage: Stage) -> int:
        """Bytes that go to or from memory: a line that has left the last-level cache is read before it is written."""
        size = result_bytes(stage)
        return size if size <= self._machine.last_level_working_set else 2 * size

    def _cycles_of(
        self, stage: Stage, extents: Extents, links: Sequence[Link] = (), *, joined: bool = False
    ) -> float | None:
        """Cycles of one core for so many elements of a stage. ``links``: what a chain makes is in tiles."""
        apart = [link.access for link in links if link.source is None]
        given = [load.buffer for load in (stage.loads if joined else apart)]
        key = (id(stage), extents, joined, tuple(map(id, given)))
        if key not in self._cycles:
            self._cycles[key] = (stage, _cycles(stage, extents, given, self._machine, joined=joined))
        return self._cycles[key][1]


def _tiles(chain: Chain) -> Iterator[Extents]:
    choices: list[list[int]] = []
    last, tried = chain.last, _SIZES_OF_ROWS if chain.row_reductions else _SIZES
    tile_numbers = [var for index in last.write.indices for var in moved_by(index)[:-1]]
    for number, axis in enumerate(last.spatial):
        if is_one_of(axis.var, tile_numbers):
            choices.append([1])  # its tiles are tiles of the chain
            continue
        extent = axis.extent or 1
        period = math.lcm(*(load.period(axis.var) or 1 for load in last.loads))
        fit = [d for d in divisors(extent, extent) if d % period == 0] or [extent]
        if number == len(last.spatial) - 1:
            fit = [d for d in fit if d == extent or d % _VECTOR == 0 or period > _VECTOR]  # heads are whole, too
        sizes = {min(fit, key=lambda d, size=size: abs(math.log(d / (size * period)))) for size in tried}  # type: ignore[misc]
        choices.append(sorted({*sizes, fit[-1]}))
    yield from itertools.islice(itertools.product(*choices), _MOST_TILES)


def _cycles(
    stage: Stage, extents: Extents, given: Sequence[Any], machine: CpuMachine, *, joined: bool = False
) -> float | None:
    """Cycles of one core for so many elements of a stage, whose operands are in L1, or ``given``: whole tensors."""
    if not stage.is_reduction:
        if is_of_phases(stage):
            is_whole = extents[-1] == stage.axes[-1].extent or not stage.conditions
            return PHASE * math.prod(extents) if is_whole else None
        return _vector_cycles(stage, extents, machine, is_whole=joined)
    within = stage.within(extents, given)
    cycles = any_tile_cycles(within, machine) if joined else tile_cycles(within, machine)
    if cycles is not None:
        return cycles * math.prod(extents) * stage.steps
    if not stage.is_along_memory:
        return None
    if joined:  # rows are in whole vectors then, of which one overlaps
        return _vector_cycles(stage, extents, machine)
    lanes = _lanes_of_rows(stage, machine) if reduces_rows(stage) else 0
    return _vector_cycles(stage, extents, machine) * machine.lanes(stage.write.element_bytes) / lanes if lanes else None


def _lanes_of_rows(stage: Stage, machine: CpuMachine) -> int:
    """The lanes in which rows are reduced inside of a tile; 0: they are not."""
    return unless_refused(lambda: row_lanes(stage, machine)) or 0


def _vector_cycles(stage: Stage, extents: Extents, machine: CpuMachine, *, is_whole: bool = True) -> float:
    """Of work in vectors, an element of each at a time; of a part of a stage, vectors that divide its last axis."""
    branches = _BRANCH if stage.conditions else 0
    work = math.prod(extents) * stage.steps * (max(1, stage.size) + branches)
    size = stage.write.element_bytes
    width = machine.lanes(size)
    lanes = width if is_whole else min(width, vector_lanes(extents[-1], width))
    return work / lanes * float(machine.passes(lanes * size) / machine.passes(width * size))


def _scatter(region: Sizes, access: StageAccess) -> Any:
    """How many times as long it takes to move a region as one piece of memory of its size."""
    run: Any = access.element_bytes
    is_whole: Any = True
    for size, whole in zip(reversed(region), reversed(access.shape), strict=True):
        run = run * np.where(is_whole, size, 1)
        is_whole = is_whole & (size == (whole or 0))
    return 1 + JUMP / run


def _written_region(stage: Stage, sizes: Sizes) -> Sizes:
    """Along each axis of the buffer: so many elements along those of the stage."""
    by_axis = dict(zip((axis.var for axis in stage.spatial), sizes, strict=True))
    return tuple(math.prod(by_axis.get(var, 1) for var in moved_by(index)) for index in stage.write.indices)


def _all_bytes(access: StageAccess) -> int:
    return math.prod(e or 1 for e in access.shape) * access.element_bytes
