"""How long a product takes under a plan: what a multiprocessor is busy with longest, tile by tile and wave by wave.

In: a product, a plan and a machine. Out: seconds. Blocks that fit the machine at once are a wave. A tile takes as long
as its products on tensor cores, the instructions that load it, its bytes from memory and L2, or the wait for it where
too few stages are ahead; a launch, and one more where a second kernel adds up the parts of sums.
"""

from __future__ import annotations

import math
from typing import Final

from eqsat_layout.targets.cuda.kernels.arithmetics import Arithmetic
from eqsat_layout.targets.cuda.kernels.fills import bytes_together
from eqsat_layout.targets.cuda.kernels.operands import Group, Operand
from eqsat_layout.targets.cuda.kernels.product_plan import ProductPlan, arithmetic_of, legal_plans
from eqsat_layout.targets.cuda.kernels.products import Product
from eqsat_layout.targets.cuda.machine import CudaMachine

REACHED: Final = 0.7
"""Of the arithmetic of tensor cores, with instructions of warps (assumed; bandwidth is given as it is reached)."""
ARRIVAL: Final = 0.8e-6
"""Seconds from asking for a tile until it is there (assumed)."""
CACHED: Final = 2.0
"""How many times faster L2 is than memory (assumed)."""
ISSUED: Final = 128 * 1.5e9
"""Instructions of threads that a multiprocessor does in a second."""
OF_COPY: Final = 20
"""Instructions of an asynchronous copy, with its address and guard (counted in machine code)."""
_OF_ELEMENT: Final = 30
"""Of an element that a thread loads."""
_BUSY_THREADS: Final = 256
"""Of a multiprocessor, that keep its tensor cores busy (assumed)."""
MOST_THREADS: Final = 1536
"""Of a multiprocessor; some have more."""
RESERVED: Final = 1024
"""Bytes of shared memory of a block that are not its own."""


def plans_for(product: Product, machine: CudaMachine, *, tensorfloat32: bool = False) -> list[ProductPlan]:
    """All legal ones, the fastest by the model first. ``tensorfloat32``: floats may be cut to so many bits."""
    arithmetic = arithmetic_of(product, tensorfloat32=tensorfloat32)
    model = ProductModel(product, arithmetic, machine)
    return sorted(legal_plans(product, arithmetic, machine), key=model.seconds)


class ProductModel:
    """The seconds of plans of one product."""

    def __init__(self, product: Product, arithmetic: Arithmetic, machine: CudaMachine) -> None:
        self._product, self._arithmetic, self._machine = product, arithmetic, machine
        self._instructions = (
            self._of_element(product.left, product.rows),
            self._of_element(product.right, product.columns),
        )

    def seconds(self, plan: ProductPlan) -> float:
        product, machine = self._product, self._machine
        blocks = self._blocks(plan) * plan.splits
        resident = min(
            machine.shared_bytes // (4 * plan.shared_words + RESERVED),
            machine.registers // (plan.registers * plan.threads),
            MOST_THREADS // plan.threads,
        )
        waves = math.ceil(blocks / (machine.multiprocessors * resident))
        together = min(resident, math.ceil(blocks / machine.multiprocessors))  # that share a multiprocessor
        tiles = math.ceil(math.ceil(product.steps.extent / plan.block_steps) / plan.splits)
        turn = max(
            together * self._multiplying(plan, together),
            together * self._loading(plan),
            self._reading(plan, min(blocks, together * machine.multiprocessors)),
            ARRIVAL / (plan.stages - 1),
        )
        stored = 4 * product.batch.extent * product.rows.extent * product.columns.extent
        seconds = machine.launch_seconds + waves * (tiles * turn + ARRIVAL) + stored / machine.bandwidth / 2
        if plan.splits > 1:
            seconds += machine.launch_seconds + 2 * plan.splits * stored / (CACHED * machine.bandwidth)
        return seconds

    def _blocks(self, plan: ProductPlan) -> int:
        """That cover the result."""
        product = self._product
        rows = math.ceil(product.rows.extent / plan.block_rows)
        return product.batch.extent * rows * math.ceil(product.columns.extent / plan.block_columns)

    def _multiplying(self, plan: ProductPlan, together: int) -> float:
        """A tile of one block, on tensor cores that it has for itself."""
        arithmetic, machine = self._arithmetic, self._machine
        flops = machine.flops[dtype_of_flops(arithmetic)] * REACHED / machine.multiprocessors
        products = 2 * arithmetic.products * plan.block_rows * plan.block_columns * plan.block_steps
        loads = 1 / plan.warp_rows + 1 / plan.warp_columns  # of fragments for a product, in shared memory's time
        return products / flops / min(1.0, plan.threads * together / _BUSY_THREADS) / min(1.0, 1 / 32 / loads)

    def _loading(self, plan: ProductPlan) -> float:
        """The instructions of threads that fill a tile."""
        left, right = self._instructions
        return plan.block_steps * (plan.block_rows * left + plan.block_columns * right) / ISSUED

    def _reading(self, plan: ProductPlan, blocks: int) -> float:
        """Tiles of so many blocks: each byte once from memory, and again from L2."""
        product, size = self._product, self._arithmetic.operand_bytes
        tile = size * plan.block_steps * (plan.block_rows + plan.block_columns)
        once = size * product.steps.extent * product.batch.extent * (product.rows.extent + product.columns.extent)
        tiles = self._blocks(plan) * math.ceil(product.steps.extent / plan.block_steps)
        from_memory = min(tile, once / tiles)
        return blocks * max(from_memory, tile / CACHED) / self._machine.bandwidth

    def _of_element(self, operand: Operand, group: Group) -> float:
        """Instructions that load one element of a tile."""
        dtype, size = self._arithmetic.operand, self._arithmetic.operand_bytes
        groups = (self._product.steps, group) if size > 1 else (self._product.steps,)
        together = max(bytes_together(operand, one, self._product.fixed, dtype) for one in groups)
        return OF_COPY * size / together if together else _OF_ELEMENT


def dtype_of_flops(arithmetic: Arithmetic) -> str:
    return "tensorfloat32" if arithmetic.operand == "float32" else arithmetic.name
