"""How a product is cut into tiles of blocks and warps.

In: a product and a machine. Out: the legal :class:`ProductPlan`s, as a table.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from operator import attrgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from eqsat_layout.targets.cuda.kernels.arithmetics import ARITHMETICS, UNIT, Arithmetic
from eqsat_layout.targets.cuda.kernels.attention import Attention
from eqsat_layout.targets.cuda.kernels.product_shape import ProductShape
from eqsat_layout.targets.cuda.kernels.products import Product
from eqsat_layout.targets.cuda.kernels.stream_k import most_parts, streamed_tiles
from eqsat_layout.targets.cuda.kernels.sums_in_rows import waiting_words
from eqsat_layout.targets.cuda.kernels.warpgroups import GROUP_WARP_ROWS, LINE_BYTES
from eqsat_layout.targets.cuda.machine import CudaMachine, blocks_by_registers

_BLOCKS: Final = ((32, 32), (32, 64), (64, 32), (64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128))
_WARPS: Final = ((16, 32), (32, 16), (32, 32), (32, 64), (64, 32), (64, 64))
_STEP_BYTES: Final = (64, 128)
"""Of a row of a tile along the steps: 4 or 8 units."""
_STAGES: Final = (2, 3, 4)
_SPLITS: Final = (1, 2, 3, 4, 6, 8, 12, 16)
_STREAMS: Final = (1, 2, 4)
"""Blocks of a multiprocessor among which sums are dealt out evenly."""
OTHERS: Final = 48
"""Registers of a thread beside sums and fragments (assumed)."""
_OTHERS_OF_GROUPS: Final = 64
MOST_REGISTERS: Final = 240
"""Of a thread, by our count: beyond that they spill."""
_GROUP_ROWS: Final = (64, 128, 256)
_GROUP_COLUMNS: Final = (64, 128, 256)
_GROUP_STAGES: Final = (*_STAGES, 6)
"""Small products wait for memory most of the time: more tiles are on their way."""
_OF_GROUPS: Final = ("float16", "bfloat16")
"""Arithmetics that warps do together here."""
_MOST_THREADS: Final = 512
MOST_THREADS: Final = 1536
"""Of a multiprocessor; some have more."""
RESERVED: Final = 1024
"""Bytes of shared memory of a block that are not its own."""
_MOST_ELEMENTS: Final = 2**31
"""Of the parts of sums, and numbers that runs are worked out by, for indices of 32 bits."""


@dataclass(frozen=True)
class ProductPlan:
    """Rows and columns of a block and of a warp, steps between barriers, stages of shared memory, parts of the sum.

    ``arithmetic``: a name in :data:`ARITHMETICS`. ``in_groups``: four warps multiply together, 64 rows by all columns
    of the block, out of shared memory (wgmma); a warp has 16 of the rows. ``in_bulk``: one thread asks for tiles, which
    come by themselves (TMA). ``spread``: where extents are not known, so
    many blocks keep the machine busy: the host has sums cut into fewer than ``splits`` parts where there would be more;
    0: into ``splits`` always. ``streams``: so many blocks share tiles evenly (:mod:`.stream_k`), 0: none.
    """

    arithmetic: str
    block_rows: int
    block_columns: int
    block_steps: int
    warp_rows: int
    warp_columns: int
    stages: int
    splits: int = 1
    in_groups: bool = False
    in_bulk: bool = False
    spread: int = 0
    streams: int = 0

    @cached_property
    def threads(self) -> int:
        return 32 * (self.block_rows // self.warp_rows) * (self.block_columns // self.warp_columns)

    @property
    def stage_words(self) -> int:
        """Words of shared memory."""
        return (self.block_rows + self.block_columns) * self.block_steps * self.operand_bytes // 4

    @property
    def operand_bytes(self) -> int:
        """Of an element of a tile."""
        return self._arithmetic.operand_bytes

    @property
    def waiting_words(self) -> int:
        """Words of shared memory for the sums of 16 rows of a warp that are about to be stored."""
        return waiting_words(self.warp_columns)

    @cached_property
    def shared_words(self) -> int:
        return self.arrived_word + 2 * self.stages if self.in_bulk else self._words_of_tiles

    @property
    def arrived_word(self) -> int:
        """Where the barriers of stages begin, of two words each, if tiles come by themselves."""
        return self._words_of_tiles + self._words_of_tiles % 2

    @property
    def _words_of_tiles(self) -> int:
        return max(self.stages * self.stage_words, self.threads // 32 * self.waiting_words)

    @cached_property
    def registers(self) -> int:
        """The registers of a thread, about."""
        if self.in_groups:
            return self.warp_rows * self.warp_columns // 32 + _OTHERS_OF_GROUPS
        fragments = (self.warp_rows // 4 + self.warp_columns // 4) * (2 if self._arithmetic.products > 1 else 1)
        return self.warp_rows * self.warp_columns // 32 + fragments + OTHERS

    @property
    def _arithmetic(self) -> Arithmetic:
        return ARITHMETICS[self.arithmetic]


def arithmetic_of(product: Product | ProductShape | Attention, machine: CudaMachine) -> Arithmetic:
    """Floats may be cut to fewer bits where the machine is asked for that."""
    return ARITHMETICS[machine.of_floats if product.dtype == "float32" else product.dtype]


class PlanTable:
    """Plans, and an array for each of their figures: the model reckons with all plans at once.

    ``resident``: blocks that a multiprocessor of ``machine`` holds at once.
    """

    def __init__(self, plans: Sequence[ProductPlan], machine: CudaMachine) -> None:
        self.plans = plans
        self.block_rows, self.block_columns, self.block_steps = self._figures(
            "block_rows", "block_columns", "block_steps"
        )
        self.warp_rows, self.warp_columns = self._figures("warp_rows", "warp_columns")
        self.in_groups, self.in_bulk = self._figures("in_groups", "in_bulk")
        self.stages, self.splits, self.streams = self._figures("stages", "splits", "streams")
        self.threads, self.shared_words = self._figures("threads", "shared_words")
        registers = [blocks_by_registers(one.registers, one.threads, machine.registers) for one in plans]
        by_memory = machine.shared_bytes // (4 * self.shared_words + RESERVED)
        self.resident = np.minimum.reduce([by_memory, np.array(registers), MOST_THREADS // self.threads])

    def _figures(self, *names: str) -> npt.NDArray[Any]:
        return np.array([attrgetter(*names)(plan) for plan in self.plans], np.int64).T


def legal_plans(
    product: ProductShape, arithmetic: Arithmetic, machine: CudaMachine
) -> tuple[PlanTable, npt.NDArray[Any]]:
    """Those that fit the machine, and which of them are legal: all parts of the sum have something to add up."""
    in_groups = machine.warpgroups and arithmetic.name in _OF_GROUPS and product.are_along_steps
    in_bulk = in_groups and product.are_rows
    plans = _fitting(arithmetic.name, in_groups, in_bulk, machine)
    rows, columns, splits = plans.block_rows, plans.block_columns, plans.splits
    turns = -(-product.steps // plans.block_steps)
    tiles = product.batch * -(-product.rows // rows) * -(-product.columns // columns)
    all_add = (turns >= 2 * splits) & ((splits - 1) * -(-turns // splits) < turns)
    legal = (splits == 1) | (all_add & (splits * tiles * rows * columns < _MOST_ELEMENTS))
    return plans, np.where(plans.streams > 0, _streams_well(product, plans, tiles, turns), legal)


def _streams_well(
    product: ProductShape, plans: PlanTable, tiles: npt.NDArray[Any], turns: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Runs of tiles that no whole number of blocks would have, of sizes that are known; see :mod:`.stream_k`."""
    streams = np.maximum(plans.streams, 1)
    shared = streamed_tiles(tiles, streams)
    pairs = shared * turns
    elements = (streams + shared) * plans.block_rows * plans.block_columns
    is_small = np.maximum(tiles * turns * streams, elements) < _MOST_ELEMENTS  # whole tiles' owners are worked out too
    is_even = (pairs >= 2 * streams) & (most_parts(turns, pairs // streams) <= _SPLITS[-1])
    legal: npt.NDArray[Any] = (tiles % streams != 0) & is_even & is_small & product.is_known
    return legal


@cache
def _fitting(name: str, in_groups: bool, in_bulk: bool, machine: CudaMachine) -> PlanTable:
    """Plans that fit a machine; each with one part, with more, and with the tiles dealt out evenly."""
    arithmetic = ARITHMETICS[name]
    plans = _plans_of_warps(arithmetic)
    if in_groups:  # they come first: fewer instructions, where all else is the same
        groups = list(_plans_of_groups(arithmetic))
        alone = [replace(plan, in_bulk=True) for plan in groups] if in_bulk else []
        plans = itertools.chain(alone, groups, plans)
    fitting = [plan for plan in plans if _fits(plan, machine.registers, machine.shared_bytes_per_block)]
    found = [replace(plan, splits=splits) for plan in fitting for splits in _SPLITS]
    held = PlanTable(fitting, machine).resident
    found += [
        replace(plan, streams=blocks * machine.multiprocessors)
        for plan, resident in zip(fitting, held, strict=True)
        for blocks in _STREAMS
        if blocks <= resident and not plan.in_bulk  # whose stages are of one tile only
    ]
    return PlanTable(found, machine)


def _plans_of_warps(arithmetic: Arithmetic) -> Iterator[ProductPlan]:
    shapes = itertools.product(_BLOCKS, _WARPS, _STEP_BYTES, _STAGES)
    for (rows, columns), (warp_rows, warp_columns), step_bytes, stages in shapes:
        if rows % warp_rows == 0 and columns % warp_columns == 0:
            steps = step_bytes // arithmetic.operand_bytes
            yield ProductPlan(arithmetic.name, rows, columns, steps, warp_rows, warp_columns, stages)


def _plans_of_groups(arithmetic: Arithmetic) -> Iterator[ProductPlan]:
    steps = LINE_BYTES // arithmetic.operand_bytes
    for rows, columns, stages in itertools.product(_GROUP_ROWS, _GROUP_COLUMNS, _GROUP_STAGES):
        yield ProductPlan(arithmetic.name, rows, columns, steps, GROUP_WARP_ROWS, columns, stages, in_groups=True)


def _fits(plan: ProductPlan, registers: int, shared_bytes: int) -> bool:
    units = plan.block_steps * ARITHMETICS[plan.arithmetic].operand_bytes // UNIT
    return (
        units <= plan.threads <= _MOST_THREADS
        and plan.registers <= MOST_REGISTERS
        and blocks_by_registers(plan.registers, plan.threads, registers) > 0
        and 4 * plan.shared_words <= shared_bytes
    )
