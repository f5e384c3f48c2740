"""Which axes of a chain are cut into tiles that overlap, and how, where nothing divides them.

In: a schedule over stages in which rows are reduced between products, as in attention. Out: the cut that is fastest
tile by tile.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from eqsat_layout.targets.cpu.chains.row_blocks import ROWS
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.chain import Chain, chain_of
from eqsat_layout.targets.cpu.model.chain_model import ChainModel, FusedTiles
from eqsat_layout.targets.schedules.attempts import unless_refused
from eqsat_layout.targets.schedules.cut_axes import cut_axes
from eqsat_layout.targets.schedules.stages import divisors, stage_of, stages_of

_VECTORS = (4, 2)  # in a tile of a row that is reduced, for an operand that is broadcast to be of use twice
_ROWS = (64, 48, 32)  # of a product in a tile, at most
_SMALL = 80  # rows that are one tile as they are
_TRIED = 2  # sizes
_FEWEST = 12  # rows of a tile, for which a register tile has no other one to share with


@dataclass(frozen=True)
class CutChain:
    """A schedule over cut axes, and the tiles that are fastest there."""

    sch: Any
    tiles: FusedTiles


@dataclass(frozen=True)
class _Cut:
    """Sizes of tiles along the axis that is reduced between products, and along that of rows of the result."""

    of_reduced: int | None
    of_rows: int | None


def may_be_cut(chain: Chain, machine: CpuMachine) -> bool:
    """Rows are reduced between products, and vectors do not divide them or no tile does their number."""
    return any(True for _ in _cuts(chain, machine))


def fastest_cut(sch: Any, chain: Chain, model: ChainModel, machine: CpuMachine, nanoseconds: float) -> CutChain | None:
    """The cut with the fastest tiles of a schedule over ``chain``; ``None`` where none takes clearly less time."""
    found: list[CutChain] = []
    for cut in _cuts(chain, machine):
        trial = unless_refused(partial(_made, sch, chain, cut))
        own = trial and chain_of(stages_of(trial))
        tiles = model.faster(own, nanoseconds) if own and own.is_regular else None
        if tiles is not None:
            found.append(CutChain(trial, tiles))
    return min(found, key=lambda own: own.tiles.nanoseconds, default=None)


def _cuts(chain: Chain, machine: CpuMachine) -> Iterator[_Cut]:
    if machine.is_exact or not _is_between_products(chain):
        return
    widths = _widths(chain, machine)
    if chain.most_between <= machine.l2_working_set and list(widths) == [None]:
        return  # all of it is near, in whole vectors
    for width, size in itertools.product(widths, _sizes(chain)):
        if width is not None or size is not None:
            yield _Cut(width, size)


def _is_between_products(chain: Chain) -> bool:
    """Rows are reduced after one product and before another: with more, a tile holds rows of all heads."""
    rows = sorted(chain.row_reductions)
    if not (rows and chain.is_known):
        return False
    before, after = chain.stages[: rows[0]], chain.stages[rows[-1] + 1 :]
    return all(sum(stage.is_reduction for stage in part) == 1 for part in (before, after))


def _widths(chain: Chain, machine: CpuMachine) -> Sequence[int | None]:
    """Elements of the rows in a tile: whole vectors."""
    number = min(chain.row_reductions)
    extent = chain.stages[number].reduced[-1].extent or 1
    lanes = machine.lanes(chain.stages[number].write.element_bytes)
    if extent % lanes == 0 or extent < lanes:
        return [None]
    return _frugal(extent, [vectors * lanes for vectors in _VECTORS if vectors * lanes < extent] or [lanes])


def _sizes(chain: Chain) -> Sequence[int | None]:
    """Rows in a tile: so many at once are reduced."""
    extent = chain.last.spatial[_row_axis(chain)].extent or 1
    if extent <= _SMALL or max(divisors(extent, _SMALL)) >= _FEWEST:
        return [None]
    even = [math.ceil(extent / math.ceil(extent / most)) for most in _ROWS]
    return _frugal(extent, [math.ceil(size / ROWS) * ROWS for size in even])


def _frugal(extent: int, sizes: Iterable[int]) -> Sequence[int]:
    """The sizes of tiles that compute the fewest elements twice."""
    return sorted(set(sizes), key=lambda size: math.ceil(extent / size) * size)[:_TRIED]


def _row_axis(chain: Chain) -> int:
    """The longest axis of the result that is not in vectors."""
    *others, _ = range(len(chain.last.spatial))
    return max(others, key=lambda number: chain.last.spatial[number].extent or 1, default=0)


def _made(sch: Any, chain: Chain, cut: _Cut) -> Any:
    if cut.of_reduced is not None:
        stage = chain.stages[min(chain.row_reductions)]
        sch = cut_axes(sch, [(stage.name, stage.reduced[-1].var)], cut.of_reduced)
    if cut.of_rows is not None:
        last = stages_of(sch)[-1]
        if last.is_reduction:
            sch = sch.copy()
            sch.cache_write(last.block, 0, "global")
        rows = stage_of(sch, sch.get_sblock(last.name)).spatial[_row_axis(chain)]
        sch = cut_axes(sch, [(last.name, rows.var)], cut.of_rows)
    return sch
