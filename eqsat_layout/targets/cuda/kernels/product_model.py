"""How long a product takes under a plan: what a multiprocessor is busy with longest, tile by tile and wave by wave.

In: the shape of a product, a plan and a machine. Out: seconds, for the build, which takes the fastest plan, and for
the planner, which takes layouts by it. Blocks that fit the machine at once are a wave. A tile takes as long
as its products on tensor cores, the instructions that load it, its bytes from memory and L2, or the wait for it where
too few stages are ahead. Parts of sums go to L2 and come back to the last block of a tile, all of them to one
multiprocessor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import tvm

from eqsat_layout.targets.cuda.kernels.arithmetics import Arithmetic
from eqsat_layout.targets.cuda.kernels.bulk_tiles import rows_of_both
from eqsat_layout.targets.cuda.kernels.extents import assumed
from eqsat_layout.targets.cuda.kernels.fills import bytes_together
from eqsat_layout.targets.cuda.kernels.operands import FlatAxes, Operand
from eqsat_layout.targets.cuda.kernels.product_plan import PlanTable, ProductPlan, arithmetic_of, legal_plans
from eqsat_layout.targets.cuda.kernels.product_shape import ProductShape
from eqsat_layout.targets.cuda.kernels.products import Product
from eqsat_layout.targets.cuda.kernels.sides import sides_of
from eqsat_layout.targets.cuda.kernels.stream_k import most_parts, streamed_tiles
from eqsat_layout.targets.cuda.machine import CudaMachine

Figures: TypeAlias = Any
"""An array: a number for each plan."""

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


def plans_for(product: Product, machine: CudaMachine) -> list[ProductPlan]:
    """All legal ones, the fastest by the model first."""
    return model_of(product, machine).ranked()


def fastest_plan(product: Product, machine: CudaMachine) -> tuple[ProductPlan, float]:
    """The first of :func:`plans_for`, and its modelled seconds."""
    model = model_of(product, machine)
    plan, seconds = model.fastest()
    return (plan if product.is_known else model.spread(plan)), seconds


def model_of(product: Product, machine: CudaMachine) -> ProductModel:
    """The model of a kernel's product."""
    arithmetic = arithmetic_of(product, machine)
    return ProductModel(model_shape(product, arithmetic), arithmetic, machine)


def model_shape(product: Product, arithmetic: Arithmetic) -> ProductShape:
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
        arithmetic.operand_bytes == 2 and rows_of_both(product, arithmetic) is not None,
        product.is_known,
    )


@dataclass(frozen=True)
class _Streamed:
    """Of :mod:`.stream_k`: the tiles that blocks share; of the longest run the turns and the tiles that it begins; the
    most parts of a tile."""

    tiles: Figures
    turns: Figures
    begun: Figures
    parts: Figures


class ProductModel:
    """The seconds of plans of one product."""

    def __init__(self, shape: ProductShape, arithmetic: Arithmetic, machine: CudaMachine) -> None:
        self._shape, self._arithmetic, self._machine = shape, arithmetic, machine
        self._instructions = (self._of_element(shape.together[0]), self._of_element(shape.together[1]))

    @property
    def storing(self) -> float:
        """Seconds that :meth:`seconds` counts for the result."""
        return self._shape.results * self._shape.result_bytes / self._machine.bandwidth

    def fastest(self) -> tuple[ProductPlan, float]:
        """The fastest legal plan, the first of those that are equally fast, and its seconds."""
        plans, legal = legal_plans(self._shape, self._arithmetic, self._machine)
        seconds = np.where(legal, self._seconds(plans), np.inf)
        best = int(seconds.argmin())
        return plans.plans[best], float(seconds[best])

    def ranked(self) -> list[ProductPlan]:
        """All legal plans, the fastest first."""
        plans, legal = legal_plans(self._shape, self._arithmetic, self._machine)
        return [plans.plans[i] for i in self._seconds(plans).argsort(kind="stable") if legal[i]]

    def seconds(self, plan: ProductPlan) -> float:
        """The launch of the product, with what it reads and writes."""
        return float(self._seconds(PlanTable([plan], self._machine))[0])

    def _seconds(self, plans: PlanTable) -> Figures:
        shape, machine = self._shape, self._machine
        whole, of_sum = self._blocks(plans.block_rows, plans.block_columns), -(-shape.steps // plans.block_steps)
        streamed = self._streamed(plans, whole, of_sum)
        is_streamed = plans.streams > 0
        blocks = np.where(is_streamed, plans.streams, whole * plans.splits)
        together = np.minimum(plans.resident, np.ceil(blocks / machine.multiprocessors))  # that share a multiprocessor
        held = np.where(is_streamed, blocks, machine.multiprocessors * plans.resident)
        waves = np.ceil((whole * plans.splits - streamed.tiles) / held)
        times = (
            together * self._multiplying(plans, together),
            together * self._loading(plans),
            self._reading(plans, whole, np.minimum(blocks, together * machine.multiprocessors)),
            ARRIVAL / (plans.stages - 1),
        )
        turn = np.maximum.reduce(times)
        seconds = waves * (np.ceil(of_sum / plans.splits) * turn + ARRIVAL)
        seconds += streamed.turns * turn + streamed.begun * ARRIVAL
        return machine.launch_seconds + seconds + self._adding(plans, whole, streamed) + self.storing

    def _streamed(self, plans: PlanTable, whole: Figures, of_sum: Figures) -> _Streamed:
        """None of all where each block has a tile, or a part of one, for itself."""
        is_streamed, streams = plans.streams > 0, np.maximum(plans.streams, 1)
        tiles = np.where(is_streamed, streamed_tiles(whole, streams), 0)
        shortest, turns = tiles * of_sum // streams, -(-tiles * of_sum // streams)
        begun = np.where(is_streamed, np.maximum(turns - 2, 0) // of_sum + 2, 0)
        parts = np.where(is_streamed, most_parts(of_sum, shortest), 0)
        return _Streamed(tiles, turns, begun, parts)

    def spread(self, plan: ProductPlan) -> ProductPlan:
        """For any extents: as many blocks as ``plan`` has for these, or one for each multiprocessor."""
        tiles = math.ceil(self._shape.steps / plan.block_steps)
        splits = max(plan.splits, min(_MOST_PARTS, tiles // _TILES_OF_PART))
        blocks = max(self._blocks(plan.block_rows, plan.block_columns) * plan.splits, self._machine.multiprocessors)
        return replace(plan, splits=splits, spread=blocks) if splits > 1 else plan

    def _adding(self, plans: PlanTable, whole: Figures, streamed: _Streamed) -> Figures:
        """The parts of sums: stored, counted, and loaded by the last block of each tile.

        Of the tiles that a run begins, all but the last one are counted on the way.
        """
        part, is_streamed = 4 * plans.block_rows * plans.block_columns, plans.streams > 0
        parts = np.where(is_streamed, plans.streams + streamed.tiles, whole * plans.splits)
        moved = parts * part / (CACHED * self._machine.bandwidth)
        waits = 2 + np.where(is_streamed, streamed.begun - 1, 0)
        taken = np.where(is_streamed, streamed.parts, plans.splits) * part / _TAKEN
        seconds = waits * ARRIVAL + moved + np.maximum(moved, taken)
        return np.where(is_streamed | (plans.splits > 1), seconds, 0.0)

    def _blocks(self, rows: Any, columns: Any) -> Any:
        """Those of so many rows and columns that cover the result."""
        shape = self._shape
        return shape.batch * -(-shape.rows // rows) * -(-shape.columns // columns)

    def _multiplying(self, plans: PlanTable, together: Figures) -> Figures:
        """A tile of one block, on tensor cores that it has for itself."""
        arithmetic, machine = self._arithmetic, self._machine
        singly = machine.flops[dtype_of_flops(arithmetic)] * REACHED / machine.multiprocessors
        flops = np.where(plans.in_groups, singly * (REACHED_TOGETHER / REACHED), singly)
        products = 2 * arithmetic.products * plans.block_rows * plans.block_columns * plans.block_steps
        loads = 1 / plans.warp_rows + 1 / plans.warp_columns  # of fragments for a product, in shared memory's time
        shared = np.where(plans.in_groups, 1.0, np.minimum(1.0, 1 / 32 / loads))
        return products / flops / np.minimum(1.0, plans.threads * together / _BUSY_THREADS) / shared

    def _loading(self, plans: PlanTable) -> Figures:
        """The instructions of threads that fill a tile; none to speak of where one thread asks for it."""
        left, right = self._instructions
        copies = plans.block_steps * (plans.block_rows * left + plans.block_columns * right)
        return np.where(plans.in_bulk, 0.0, copies / ISSUED)

    def _reading(self, plans: PlanTable, whole: Figures, blocks: Figures) -> Figures:
        """Tiles of so many blocks: each byte once from memory, and again from L2, windows' shared ones too."""
        shape, size = self._shape, self._arithmetic.operand_bytes
        tile = size * plans.block_steps * (plans.block_rows + plans.block_columns)
        once = size * sum(shape.elements)
        from_memory = np.minimum(tile, once / (whole * -(-shape.steps // plans.block_steps)))
        return blocks * np.maximum(from_memory, tile / CACHED) / self._machine.bandwidth

    def _of_element(self, together: int) -> float:
        """Instructions that load one element of a tile."""
        return OF_COPY * self._arithmetic.operand_bytes / together if together else _OF_ELEMENT


def dtype_of_flops(arithmetic: Arithmetic) -> str:
    """A machine's figure for these products; bytes with a sign and without are one."""
    if arithmetic.operand == "float32":
        return "tensorfloat32"
    return "int8" if arithmetic.operand_bytes == 1 else arithmetic.name
