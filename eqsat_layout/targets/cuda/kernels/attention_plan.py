"""How attention is cut into tiles, and how long that takes.

In: an attention and a machine. Out: :class:`AttentionPlan`s that fit it, the fastest by the model first; what follows
from one (:class:`AttentionTiles`). A warp has 16 rows, all of whose columns are in its registers; keys come in tiles.
The model's figures are those of :mod:`eqsat_layout.targets.cuda.kernels.product_model`: assumed, none was measured.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cuda.kernels.arithmetics import UNIT, Arithmetic
from eqsat_layout.targets.cuda.kernels.attention import Attention
from eqsat_layout.targets.cuda.kernels.extents import Extent, assumed, is_whole_tiles, tiles_over
from eqsat_layout.targets.cuda.kernels.fragments import ROWS, WarpPart
from eqsat_layout.targets.cuda.kernels.product_model import (
    ARRIVAL,
    CACHED,
    ISSUED,
    OF_COPY,
    REACHED,
    dtype_of_flops,
)
from eqsat_layout.targets.cuda.kernels.product_plan import (
    MOST_REGISTERS,
    MOST_THREADS,
    OTHERS,
    RESERVED,
    arithmetic_of,
)
from eqsat_layout.targets.cuda.kernels.sides import Side
from eqsat_layout.targets.cuda.kernels.statements import LANES
from eqsat_layout.targets.cuda.kernels.sums_in_rows import waiting_words
from eqsat_layout.targets.cuda.machine import CudaMachine, blocks_by_registers

_WARPS: Final = (1, 2, 4, 8)
_KEYS: Final = (16, 32, 64, 128)
_STAGES: Final = (2, 3)
_OF_SCORE: Final = 14
"""Instructions of a score, from the sum to what is multiplied (assumed)."""
_OF_POWERS: Final = 16
"""Registers of a thread beside those that products need, for powers and masks (assumed)."""
_BUSY_WARPS: Final = 8
"""Of a multiprocessor, that keep its tensor cores busy (assumed)."""

Sides = tuple[Side, Side, Side]
"""Queries, keys and values."""


@dataclass(frozen=True)
class AttentionPlan:
    """``warps`` of a block, ``keys`` of a tile, ``stages`` of shared memory for tiles of keys and values."""

    warps: int
    keys: int
    stages: int


@dataclass(frozen=True)
class AttentionTiles:
    """What follows from a plan."""

    attention: Attention
    arithmetic: Arithmetic
    sides: Sides
    plan: AttentionPlan

    @property
    def rows(self) -> int:
        """The rows of a block."""
        return ROWS * self.plan.warps

    @property
    def threads(self) -> int:
        return LANES * self.plan.warps

    @property
    def head(self) -> int:
        """Steps of the first product, in whole instructions."""
        return _up_to(self.attention.head.extent, self.arithmetic.steps)

    @property
    def columns(self) -> int:
        """The columns of the second product, in whole instructions."""
        return _up_to(self.attention.values.columns.extent, ROWS)

    @property
    def count(self) -> Extent:
        """Tiles of keys."""
        return tiles_over(self.attention.values.steps.extent, self.plan.keys)

    @cached_property
    def parts(self) -> tuple[WarpPart, WarpPart, WarpPart]:
        """Queries, keys and values."""
        query, key, value = self.sides
        keys, head = self.plan.keys, self.head
        is_whole = head == self.attention.head.extent
        return (
            query.part(self.rows, head, ROWS, ends_with_tiles=is_whole),
            key.part(keys, head, keys, ends_with_tiles=is_whole),
            value.part(
                self.columns,
                keys,
                self.columns,
                ends_with_tiles=is_whole_tiles(self.attention.values.steps.extent, keys),
            ),
        )

    @property
    def is_query_held(self) -> bool:
        """Fragments of queries stay in registers; of those that are cut to parts there would be too many."""
        return self.arithmetic.products == 1

    @property
    def stage_words(self) -> int:
        """Words of shared memory."""
        _, key, value = self.parts
        return key.fill.shape.words + value.fill.shape.words

    @property
    def query_start(self) -> int:
        """The word where queries begin: of the stage that is filled last, when they are in registers already."""
        stages = self.plan.stages
        is_room = self.is_query_held and self.parts[0].fill.shape.words <= self.stage_words
        return (stages - 1 if is_room else stages) * self.stage_words

    @property
    def shared_words(self) -> int:
        stages = self.plan.stages * self.stage_words
        storing = self.plan.warps * waiting_words(self.columns)
        return max(stages, self.query_start + self.parts[0].fill.shape.words, storing)

    @property
    def registers(self) -> int:
        """The registers of a thread, about."""
        arithmetic, keys = self.arithmetic, self.plan.keys
        query = self.head // arithmetic.steps * 4 if self.is_query_held else 8
        fragments = max(keys, self.columns) // 4 * (2 if arithmetic.products > 1 else 1)
        return (self.columns + keys) // 2 + query + fragments + OTHERS + _OF_POWERS

    def fits(self, machine: CudaMachine) -> bool:
        return (
            self.registers <= MOST_REGISTERS
            and blocks_by_registers(self.registers, self.threads, machine.registers) > 0
            and 4 * self.shared_words <= machine.shared_bytes_per_block
        )

    def seconds(self, machine: CudaMachine) -> float:
        """A tile takes as long as its products, its powers, its bytes from L2, or the wait for it."""
        attention, plan, arithmetic = self.attention, self.plan, self.arithmetic
        values = attention.values
        blocks = assumed(values.batch.extent) * math.ceil(assumed(values.rows.extent) / self.rows)
        resident = min(
            machine.shared_bytes // (4 * self.shared_words + RESERVED),
            blocks_by_registers(self.registers, self.threads, machine.registers),
            MOST_THREADS // self.threads,
        )
        waves = math.ceil(blocks / (machine.multiprocessors * resident))
        together = min(resident, math.ceil(blocks / machine.multiprocessors))
        flops = machine.flops[dtype_of_flops(arithmetic)] * REACHED / machine.multiprocessors
        products = 2 * arithmetic.products * self.rows * plan.keys * (self.head + self.columns)
        tile_bytes = arithmetic.operand_bytes * plan.keys * (self.head + self.columns)
        turn = max(
            together * products / flops / min(1.0, plan.warps * together / _BUSY_WARPS),
            together * (self.rows * plan.keys * _OF_SCORE + tile_bytes / UNIT * OF_COPY) / ISSUED,
            min(blocks, together * machine.multiprocessors) * tile_bytes / (CACHED * machine.bandwidth),
            ARRIVAL / (plan.stages - 1),
        )
        return machine.launch_seconds + waves * (assumed(self.count) * turn + 2 * ARRIVAL)


def tiles_of(attention: Attention, machine: CudaMachine) -> list[AttentionTiles]:
    """All that fit the machine, the fastest by the model first; refused where none does."""
    arithmetic = arithmetic_of(attention, machine)
    sides = attention_sides(attention, arithmetic)
    plans = itertools.starmap(AttentionPlan, itertools.product(_WARPS, _KEYS, _STAGES))
    found = [tiles for plan in plans if (tiles := AttentionTiles(attention, arithmetic, sides, plan)).fits(machine)]
    if not found:
        raise Refused("a row's columns do not fit into registers")
    return sorted(found, key=lambda tiles: tiles.seconds(machine))


def attention_sides(attention: Attention, arithmetic: Arithmetic) -> Sides:
    """All three operands."""
    values, fixed = attention.values, attention.fixed
    return (
        Side(attention.query, values.rows, attention.head, arithmetic, fixed, is_left=True),
        Side(attention.key, values.steps, attention.head, arithmetic, fixed, is_left=False),
        Side(values.right, values.columns, values.steps, arithmetic, fixed, is_left=False, in_pairs=True),
    )


def _up_to(extent: int, size: int) -> int:
    return math.ceil(extent / size) * size
