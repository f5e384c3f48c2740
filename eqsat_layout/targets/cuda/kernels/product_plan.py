"""How a product is cut into tiles of blocks and warps, and how long it takes.

In: a product and a machine. Out: the legal :class:`ProductPlan`s, the fastest by a small model first. The model: every
wave of blocks takes as long as its arithmetic or its bytes, whichever is longer; what fits the machine at once is one
wave; a launch, and one more where a second kernel adds up the parts of sums.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from eqsat_layout.targets.cuda.kernels.arithmetics import ARITHMETICS, Arithmetic
from eqsat_layout.targets.cuda.kernels.products import Product
from eqsat_layout.targets.cuda.machine import CudaMachine

_BLOCKS: Final = ((32, 32), (32, 64), (64, 32), (64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128))
_WARPS: Final = ((16, 32), (32, 16), (32, 32), (32, 64), (64, 32), (64, 64))
_STEP_BYTES: Final = (64, 128)
"""Of a row of a tile along the steps: 4 or 8 units."""
_STAGES: Final = (2, 3, 4)
_SPLITS: Final = (1, 2, 3, 4, 6, 8, 12, 16)
_PAD: Final = 8
"""Words between the rows of sums that wait in shared memory: so pairs of them meet in no bank."""
_OTHERS: Final = 48
"""Registers of a thread beside sums and fragments (assumed)."""
_LATENCY: Final = 1.2e-6
"""Seconds until the first tile is there and after the last one is multiplied (assumed)."""
_REACHED: Final = 0.7
"""Of the arithmetic of tensor cores, with instructions of warps (assumed; bandwidth is given as it is reached)."""


@dataclass(frozen=True)
class ProductPlan:
    """Rows and columns of a block and of a warp, steps between barriers, stages of shared memory, parts of the sum.

    ``seconds``: by the model.
    """

    arithmetic: str
    block_rows: int
    block_columns: int
    block_steps: int
    warp_rows: int
    warp_columns: int
    stages: int
    splits: int = 1
    seconds: float = math.inf

    @property
    def threads(self) -> int:
        return 32 * (self.block_rows // self.warp_rows) * (self.block_columns // self.warp_columns)

    @property
    def stage_words(self) -> int:
        """Of shared memory."""
        return (self.block_rows + self.block_columns) * self.block_steps * self._arithmetic.operand_bytes // 4

    @property
    def waiting_words(self) -> int:
        """Of shared memory, for the sums of 16 rows of a warp that are about to be stored."""
        return 16 * (self.warp_columns + _PAD)

    @property
    def shared_words(self) -> int:
        return max(self.stages * self.stage_words, self.threads // 32 * self.waiting_words)

    @property
    def registers(self) -> int:
        """Of a thread, about."""
        fragments = (self.warp_rows // 4 + self.warp_columns // 4) * (2 if self._arithmetic.products > 1 else 1)
        return self.warp_rows * self.warp_columns // 32 + fragments + _OTHERS

    @property
    def _arithmetic(self) -> Arithmetic:
        return ARITHMETICS[self.arithmetic]


def plans_for(product: Product, machine: CudaMachine, *, tensorfloat32: bool = False) -> list[ProductPlan]:
    """All legal ones, the fastest by the model first. ``tensorfloat32``: floats may be cut to so many bits."""
    name = product.dtype
    arithmetic = ARITHMETICS["tensorfloat32" if name == "float32" and tensorfloat32 else name]
    plans = [replace(plan, seconds=_seconds(product, plan, machine)) for plan in _plans(product, arithmetic, machine)]
    return sorted(plans, key=lambda plan: plan.seconds)


def _plans(product: Product, arithmetic: Arithmetic, machine: CudaMachine) -> Iterator[ProductPlan]:
    shapes = itertools.product(_BLOCKS, _WARPS, _STEP_BYTES, _STAGES)
    for (rows, columns), (warp_rows, warp_columns), step_bytes, stages in shapes:
        if rows % warp_rows or columns % warp_columns:
            continue
        steps = step_bytes // arithmetic.operand_bytes
        plan = ProductPlan(arithmetic.name, rows, columns, steps, warp_rows, warp_columns, stages)
        if not _fits(plan, machine):
            continue
        tiles = math.ceil(product.steps.extent / steps)
        for splits in _SPLITS:
            if splits == 1 or (tiles >= 2 * splits and (splits - 1) * math.ceil(tiles / splits) < tiles):
                yield replace(plan, splits=splits)


def _fits(plan: ProductPlan, machine: CudaMachine) -> bool:
    is_filled_evenly = plan.threads >= plan.block_steps * 4 // 16  # every thread of a row has a unit
    return (
        32 <= plan.threads <= 512
        and plan.registers <= 240
        and plan.registers * plan.threads <= machine.registers
        and 4 * plan.shared_words <= machine.shared_bytes_per_block
        and is_filled_evenly
    )


def _seconds(product: Product, plan: ProductPlan, machine: CudaMachine) -> float:
    arithmetic = ARITHMETICS[plan.arithmetic]
    flops = machine.flops["tensorfloat32" if arithmetic.products > 1 else arithmetic.name] * _REACHED
    rows, columns = (
        math.ceil(group.extent / size)
        for group, size in ((product.rows, plan.block_rows), (product.columns, plan.block_columns))
    )
    blocks = product.batch.extent * rows * columns * plan.splits
    steps = math.ceil(math.ceil(product.steps.extent / plan.block_steps) / plan.splits) * plan.block_steps
    resident = min(
        machine.shared_bytes // (4 * plan.shared_words + 1024),
        machine.registers // (plan.registers * plan.threads),
        2048 // plan.threads,
    )
    waves = math.ceil(blocks / (machine.multiprocessors * max(1, resident)))
    together = min(resident, math.ceil(blocks / machine.multiprocessors))  # blocks that share a multiprocessor
    each = 2 * arithmetic.products * plan.block_rows * plan.block_columns * steps * machine.multiprocessors / flops
    efficiency = min(1.0, plan.threads * together / 256) * _reuse(plan)
    computing = waves * together * each / efficiency
    size = arithmetic.operand_bytes
    loaded = blocks * steps * (plan.block_rows + plan.block_columns) * size
    once = size * product.batch.extent * product.steps.extent * (product.rows.extent + product.columns.extent)
    stored = 4 * product.batch.extent * product.rows.extent * product.columns.extent
    reading = once / machine.bandwidth + (loaded - once) / (3 * machine.bandwidth)  # again from L2 (assumed)
    reading = max(reading, loaded / (3 * machine.bandwidth))
    seconds = machine.launch_seconds + _LATENCY + max(computing, reading) + stored / machine.bandwidth / 2
    if plan.splits > 1:
        seconds += machine.launch_seconds + 2 * plan.splits * stored / machine.bandwidth / 2
    return seconds


def _reuse(plan: ProductPlan) -> float:
    """Of the arithmetic: fragments that are loaded for few products take their share of shared memory's time."""
    loads = 1 / plan.warp_rows + 1 / plan.warp_columns
    return min(1.0, (1 / 32) / loads * (1.15 if plan.stages > 2 else 1.0))
