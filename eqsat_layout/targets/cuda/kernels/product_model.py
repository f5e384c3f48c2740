"""How long a product takes under a plan: what a multiprocessor is busy with longest, tile by tile and wave by wave.

In: the shape of a product, a plan and a machine. Out: seconds, for the build, which takes the fastest plan, and for
the planner, which takes layouts by it. Blocks that fit the machine at once are a wave. A tile takes as long
as its products on tensor cores, the instructions that load it, its bytes from memory and L2, or the wait for it where
too few stages are ahead. Parts of sums go to L2 and come back to the last block of a tile, all of them to one
multiprocessor.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import tvm

from eqsat_layout.targets.cuda.kernels.arithmetics import Arithmetic
from eqsat_layout.targets.cuda.kernels.extents import assumed
from eqsat_layout.targets.cuda.kernels.fills import bytes_together
from eqsat_layout.targets.cuda.kernels.operands import FlatAxes, Operand
from eqsat_layout.targets.cuda.kernels.product_plan import ProductPlan, arithmetic_of, legal_plans
from eqsat_layout.targets.cuda.kernels.product_shape import ProductShape
from eqsat_layout.targets.cuda.kernels.products import Product
from eqsat_layout.targets.cuda.kernels.sides import sides_of
from eqsat_layout.targets.cuda.machine import CudaMachine, blocks_by_registers

REACHED: Final = 0.7
"""Of the arithmetic of tensor cores, with instructions of warps (assumed; bandwidth is given as it is reached)."""
REACHED_TOGETHER: Final = 0.85
"""With those of groups of warps (assumed)."""
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
_TAKEN: Final = 64 * 1.5e9
"""Bytes that a multiprocessor takes from L2 in a second."""
_MOST_PARTS: Final = 16
_TILES_OF_PART: Final = 4
"""At least, where the host decides on the parts of a sum."""
MOST_THREADS: Final = 1536
"""Of a multiprocessor; some have more."""
RESERVED: Final = 1024
"""Bytes of shared memory of a block that are not its own."""


def plans_for(product: Product, machine: CudaMachine) -> list[ProductPlan]:
    """All legal ones, the fastest by the model first."""
    arithmetic = arithmetic_of(product, machine)
    return ranked_plans(shape_of(product, arithmetic), arithmetic, machine)


def fastest_plan(product: Product, machine: CudaMachine) -> tuple[ProductPlan, float]:
    """The first of :func:`plans_for`, and its modelled seconds."""
    arithmetic = arithmetic_of(product, machine)
    shape = shape_of(product, arithmetic)
    model = ProductModel(shape, arithmetic, machine)
    timed = ((plan, model.seconds(plan)) for plan in legal_plans(shape, arithmetic, machine))
    plan, seconds = min(timed, key=lambda one: one[1])
    return (plan if product.is_known else model.spread(plan)), seconds


def ranked_plans(shape: ProductShape, arithmetic: Arithmetic, machine: CudaMachine) -> list[ProductPlan]:
    """All legal ones, the fastest by the model first."""
    model = ProductModel(shape, arithmetic, machine)
    return sorted(legal_plans(shape, arithmetic, machine), key=model.seconds)


def shape_of(product: Product, arithmetic: Arithmetic) -> ProductShape:
    """What the model asks of a product."""

    def together(operand: Operand, group: FlatAxes) -> int:  # bytes are not transposed
        groups = (product.steps, group) if arithmetic.operand_bytes > 1 else (product.steps,)
        return max(bytes_together(operand, one, product.fixed, arithmetic) for one in groups)

    batch, rows, columns, steps = (
        assumed(group.extent) for group in (product.batch, product.rows, product.columns, product.steps)
    )
    return ProductShape(
        product.dtype,
        batch,
        rows,
        columns,
        steps,
        (together(product.left, product.rows), together(product.right, product.columns)),
        (min(batch * rows * steps, product.left.elements), min(batch * columns * steps, product.right.elements)),
        math.ceil(int(tvm.DataType(str(product.store.buffer.ty.dtype)).bits) / 8),
        all(side.along_steps for side in sides_of(product, arithmetic)),
    )


class ProductModel:
    """The seconds of plans of one product."""

    def __init__(self, shape: ProductShape, arithmetic: Arithmetic, machine: CudaMachine) -> None:
        self._shape, self._arithmetic, self._machine = shape, arithmetic, machine
        self._instructions = (self._of_element(shape.together[0]), self._of_element(shape.together[1]))

    @property
    def storing(self) -> float:
        """Seconds that :meth:`seconds` counts for the result."""
        return self._shape.results * self._shape.result_bytes / self._machine.bandwidth

    def seconds(self, plan: ProductPlan) -> float:
        """The launch of the product, with what it reads and writes."""
        shape, machine = self._shape, self._machine
        blocks = self._blocks(plan) * plan.splits
        resident = min(
            machine.shared_bytes // (4 * plan.shared_words + RESERVED),
            blocks_by_registers(plan.registers, plan.threads, machine.registers),
            MOST_THREADS // plan.threads,
        )
        waves = math.ceil(blocks / (machine.multiprocessors * resident))
        together = min(resident, math.ceil(blocks / machine.multiprocessors))  # that share a multiprocessor
        tiles = math.ceil(math.ceil(shape.steps / plan.block_steps) / plan.splits)
        turn = max(
            together * self._multiplying(plan, together),
            together * self._loading(plan),
            self._reading(plan, min(blocks, together * machine.multiprocessors)),
            ARRIVAL / (plan.stages - 1),
        )
        return machine.launch_seconds + waves * (tiles * turn + ARRIVAL) + self._adding(plan) + self.storing

    def spread(self, plan: ProductPlan) -> ProductPlan:
        """For any extents: as many blocks as ``plan`` has for these, or one for each multiprocessor."""
        tiles = math.ceil(self._shape.steps / plan.block_steps)
        splits = max(plan.splits, min(_MOST_PARTS, tiles // _TILES_OF_PART))
        blocks = max(self._blocks(plan) * plan.splits, self._machine.multiprocessors)
        return replace(plan, splits=splits, spread=blocks) if splits > 1 else plan

    def _adding(self, plan: ProductPlan) -> float:
        """The parts of sums: stored, counted, and loaded by the last block of each tile."""
        if plan.splits == 1:
            return 0.0
        parts = 4 * plan.splits * plan.block_rows * plan.block_columns
        moved = self._blocks(plan) * parts / (CACHED * self._machine.bandwidth)
        return moved + 2 * ARRIVAL + max(moved, parts / _TAKEN)

    def _blocks(self, plan: ProductPlan) -> int:
        """The blocks that cover the result."""
        shape = self._shape
        rows = math.ceil(shape.rows / plan.block_rows)
        return shape.batch * rows * math.ceil(shape.columns / plan.block_columns)

    def _multiplying(self, plan: ProductPlan, together: int) -> float:
        """A tile of one block, on tensor cores that it has for itself."""
        arithmetic, machine = self._arithmetic, self._machine
        flops = machine.flops[dtype_of_flops(arithmetic)] * REACHED / machine.multiprocessors
        if plan.in_groups:
            flops *= REACHED_TOGETHER / REACHED
        products = 2 * arithmetic.products * plan.block_rows * plan.block_columns * plan.block_steps
        loads = 1 / plan.warp_rows + 1 / plan.warp_columns  # of fragments for a product, in shared memory's time
        shared = 1.0 if plan.in_groups else min(1.0, 1 / 32 / loads)
        return products / flops / min(1.0, plan.threads * together / _BUSY_THREADS) / shared

    def _loading(self, plan: ProductPlan) -> float:
        """The instructions of threads that fill a tile."""
        left, right = self._instructions
        return plan.block_steps * (plan.block_rows * left + plan.block_columns * right) / ISSUED

    def _reading(self, plan: ProductPlan, blocks: int) -> float:
        """Tiles of so many blocks: each byte once from memory, and again from L2, windows' shared ones too."""
        shape, size = self._shape, self._arithmetic.operand_bytes
        tile = size * plan.block_steps * (plan.block_rows + plan.block_columns)
        once = size * sum(shape.elements)
        tiles = self._blocks(plan) * math.ceil(shape.steps / plan.block_steps)
        from_memory = min(tile, once / tiles)
        return blocks * max(from_memory, tile / CACHED) / self._machine.bandwidth

    def _of_element(self, together: int) -> float:
        """Instructions that load one element of a tile."""
        return OF_COPY * self._arithmetic.operand_bytes / together if together else _OF_ELEMENT


def dtype_of_flops(arithmetic: Arithmetic) -> str:
    """A machine's figure for these products; bytes with a sign and without are one."""
    if arithmetic.operand == "float32":
        return "tensorfloat32"
    return "int8" if arithmetic.operand_bytes == 1 else arithmetic.name
