"""How cores share the tiles of a reduction (targets room).

In: the facts of a reduction. Out: the axes of which each core is to take a piece of its own. Without these each takes
some panels of the weights and reads all of the data, most of which other cores have just made and hold in their
caches. A piece of the rows needs all weights, but only its own data.
"""

from __future__ import annotations

import math

from eqsat_layout.targets.base import Machine
from eqsat_layout.targets.stages import Access, Stage

_COLD = 1.5  # an element of the weights takes so many times as long as one of data that another core has made
_EXTRA = 0.1  # of the tiles, that may be computed twice to have as many for every core


def piece_axes(stage: Stage) -> tuple[int, ...]:
    """Spatial axes of which cores take pieces, the best first; none where they are to take panels of the weights."""
    if stage.is_product:
        return _data_axes(stage)
    return _outermost(stage) if stage.has_window else ()


def pieces_of(extent: int, machine: Machine) -> int:
    """Into how many pieces of equal size an axis of so many tiles is split for the cores."""
    return math.gcd(extent, machine.cores)


def shared_tiles(count: int, machine: Machine) -> int:
    """The number of tiles, instead of ``count``, of which every core gets as many; ``count`` if that is too many."""
    more = math.ceil(count / machine.cores) * machine.cores
    return more if more <= count * (1 + _EXTRA) else count


def _data_axes(stage: Stage) -> tuple[int, ...]:
    weights = stage.vector_load
    rest = [load for load in stage.loads if load is not weights]
    if weights is None or any(load.stride(stage.spatial[-1].var) != 0 for load in rest):
        return ()
    if sum(_read(stage, load) for load in rest) < _COLD * _read(stage, weights):
        return ()
    moving = [i for i, axis in enumerate(stage.spatial) if axis.extent not in (1, None)]
    batch = [i for i in moving if all(load.uses(stage.spatial[i].var) for load in stage.loads)]
    return () if batch else tuple(i for i in moving if not weights.uses(stage.spatial[i].var))


def _outermost(stage: Stage) -> tuple[int, ...]:
    """The axis along which a window's result lies in as many pieces of memory: as elementwise readers share it."""
    return tuple(i for i, axis in enumerate(stage.spatial) if axis.extent not in (1, None))[:1]


def _read(stage: Stage, load: Access) -> int:
    """Bytes of the buffer that are read at all."""
    iterations = math.prod(axis.extent or 64 for axis in stage.axes if load.uses(axis.var))
    return min(iterations * load.element_bytes, load.buffer_bytes)
