"""How cores share the tiles of a reduction.

In: the facts of a reduction. Out: the axes of which each core is to take pieces of its own, and in how many pieces.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.schedules.accesses import StageAccess
from eqsat_layout.targets.schedules.stages import Stage, divisors

_COLD = 1.5  # an element of the weights takes so many times as long as one of data that another core has made
_EXTRA = 0.1  # of the tiles, that may be computed twice to have as many for every core
_FEW = 0.03  # of them, to have as many in every piece
_FILL = 1.0  # of the working set of L2, for the data of a piece
_VECTORS = 4  # of a panel of the weights, about: what register tiles hold along it
_MOST = 64  # pieces that are tried, with which even the last one is short


@dataclass(frozen=True)
class Pieces:
    """``axes``: spatial axes of which cores take pieces, the best first; none: they take panels of the weights.

    ``count``: so many pieces are wanted.
    """

    axes: tuple[int, ...]
    count: int


def pieces_of(stage: Stage, machine: CpuMachine) -> Pieces:
    """How cores are to share a reduction.

    By panels of the weights, each reads all of the data, most of which other cores have just made and hold in their
    caches. A piece of the rows needs all weights, but only its own data. If these are more than fit L2, they come from
    beyond it for every panel, so that more pieces are better.
    """
    if not stage.is_product:
        return Pieces(_outermost(stage) if stage.has_window else (), machine.cores)
    count = _wanted(stage, machine)
    return Pieces(_data_axes(stage) if count > 1 else (), count)


def cut_into(extent: int, wanted: int, machine: CpuMachine) -> int:
    """Into how many pieces of equal size an axis of so many tiles is split: as many for every core, if that can be."""
    fit = [d for d in divisors(extent, 2 * wanted) if d % machine.cores == 0]
    return min(fit, key=lambda d: (d < wanted, abs(d - wanted))) if fit else math.gcd(extent, machine.cores)


def shared_tiles(count: int, wanted: int, machine: CpuMachine) -> int:
    """Instead of ``count`` tiles so many that there are as many in ``wanted`` pieces, or some more.

    For every core at least; ``count`` itself where too many would be computed twice.
    """
    more = [math.ceil(count / n) * n for n in range(wanted, 2 * wanted, machine.cores)]
    few = [n for n in more if n <= count * (1 + _FEW)]
    even = math.ceil(count / machine.cores) * machine.cores
    return min(few, default=even if even <= count * (1 + _EXTRA) else count)


def _wanted(stage: Stage, machine: CpuMachine) -> int:
    """The number of pieces for which least comes from beyond L2; 1: cores take panels."""
    weights, rest = stage.vector_load, _data(stage)
    if weights is None or not rest:
        return machine.cores
    data, panel = sum(_read(stage, load) for load in rest), _VECTORS * machine.lanes(stage.write.element_bytes)
    panels = math.ceil(math.prod(a.extent or 64 for a in stage.spatial if weights.uses(a.var)) / panel)
    fit, own = _FILL * machine.l2_working_set, _read(stage, weights)

    def moved(pieces: int) -> float:
        """Bytes of each core."""
        if pieces == 1:
            passes = 1.0 if data <= fit else max(1.0, panels / machine.cores)
            return _COLD * own / machine.cores + data * passes
        turns, passes = pieces / machine.cores, 1 if data <= fit * pieces else panels
        return own * (_COLD + turns - 1) + data / machine.cores * passes

    counts: list[int] = [1, *range(machine.cores, max(machine.cores, _MOST) + 1, machine.cores)]
    return min(counts, key=moved)


def _data(stage: Stage) -> list[StageAccess]:
    """What is read beside the weights, if that is broadcast."""
    rest = [load for load in stage.loads if load is not stage.vector_load]
    return [] if any(load.stride(stage.spatial[-1].var) != 0 for load in rest) else rest


def _data_axes(stage: Stage) -> tuple[int, ...]:
    weights = stage.vector_load
    if weights is None or not _data(stage):
        return ()
    moving = [i for i, axis in enumerate(stage.spatial) if axis.extent not in (1, None)]
    batch = [i for i in moving if all(load.uses(stage.spatial[i].var) for load in stage.loads)]
    return () if batch else tuple(i for i in moving if not weights.uses(stage.spatial[i].var))


def _outermost(stage: Stage) -> tuple[int, ...]:
    """The axis along which a window's result lies in as many pieces of memory: as elementwise readers share it."""
    return tuple(i for i, axis in enumerate(stage.spatial) if axis.extent not in (1, None))[:1]


def _read(stage: Stage, load: StageAccess) -> int:
    """Bytes of the buffer that are read at all."""
    iterations = math.prod(axis.extent or 64 for axis in stage.axes if load.uses(axis.var))
    return min(iterations * load.element_bytes, load.buffer_bytes)
