"""How a product is cut into chunks and pieces for the matrix unit, and how long it takes.

In: a product and a machine with the unit. Out: the fastest :class:`TilePlan` by a small model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from eqsat_layout.targets.cpu.amx import instructions as matrix_unit
from eqsat_layout.targets.cpu.amx.image import Image
from eqsat_layout.targets.cpu.amx.products import MatrixProduct
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.overlap import overlapped
from eqsat_layout.targets.schedules.stages import divisors

TILES = 2  # of rows, and of columns: their four products and the four of operands are the unit's eight registers
BLOCK_ROWS = TILES * matrix_unit.ROWS
BLOCK_COLUMNS = TILES * matrix_unit.COLUMNS
_MOST_ROWS = 2048  # of a chunk: the parts of more fit no L2
_HALF = 0.55  # of a block's time for one of half as many rows
_RESULT = 0.6  # cycles of an element of the result, its epilogue included
_RESUMED = 150.0  # of a block's sums that wait for the next piece
_AGAIN = 0.56  # of the bandwidth of the last-level cache, for weights that a core has read before
_HELD = 0.45  # of the size of L2 (measured with 2 MiB), for the parts of a chunk of rows
_SUMS = 0.3  # of it, for sums that wait for more steps
_FILL = 0.6  # of it, for parts and weights that are used again
_MARGIN = 1.3  # times as long as by this model, beside what the model of chains says of kernels without the unit


@dataclass(frozen=True)
class TilePlan:
    """``rows`` at a time, in ``chunks`` for an element of the batch; columns in ``groups``, steps in ``pieces``.

    ``nanoseconds`` that all takes by a small model, comparable with the model of chains.
    """

    rows: int
    chunks: int
    groups: int
    pieces: int
    nanoseconds: float


def plan_tiles(product: MatrixProduct, machine: CpuMachine) -> TilePlan | None:
    """The fastest plan; ``None`` where nothing fits."""
    return min(_plans(product, machine), key=lambda plan: plan.nanoseconds, default=None)


def _plans(product: MatrixProduct, machine: CpuMachine) -> Iterator[TilePlan]:
    blocks, panels = blocks_of(product), panels_of(product)
    for groups in (count for count in (1, *range(machine.cores, 4 * machine.cores + 1)) if panels % count == 0):
        for size in _sizes(product.rows.extent, machine):
            pieces = _pieces(product, size, blocks, panels // groups, machine)
            if pieces:
                plan = TilePlan(size, math.ceil(product.rows.extent / size), groups, pieces, 0.0)
                yield replace(plan, nanoseconds=_MARGIN * _nanoseconds(product, plan, machine))


def _sizes(rows: int, machine: CpuMachine) -> list[int]:
    """Rows of a chunk that are tried: about every whole number of blocks, as many chunks for each core."""
    counts = {max(1, round(rows / size)) for size in range(BLOCK_ROWS, _MOST_ROWS + 1, BLOCK_ROWS)}
    counts |= {_rounded_up(count, machine.cores) for count in counts}
    return sorted({_rounded_up(math.ceil(rows / count), matrix_unit.ROWS) for count in counts})


def _pieces(product: MatrixProduct, rows: int, blocks: int, panels: int, machine: CpuMachine) -> int:
    """In how many pieces steps are done, for a chunk's parts to fit the cache; 0 where they don't."""
    counts = divisors(blocks, blocks) if product.image is None else [1]  # whose pixels are there for all steps
    fit = [count for count in counts if _held(product, rows, blocks) <= count * _HELD * machine.l2_bytes]
    sums = _rounded_up(rows, BLOCK_ROWS) * panels * BLOCK_COLUMNS * 4
    pieces = min(fit, default=0)
    return pieces if pieces <= 1 or sums <= _SUMS * machine.l2_bytes else 0


def _held(product: MatrixProduct, rows: int, blocks: int) -> int:
    """Bytes of the parts of so much data."""
    numbers = product.numbers
    if product.image is not None:
        return _image_elements(product.image, rows) * numbers.parts * numbers.part_bytes
    return _rounded_up(rows, BLOCK_ROWS) * blocks * numbers.row_bytes


def _cut_elements(product: MatrixProduct, rows: int) -> int:
    """Elements that are made parts of, for so many rows; a run takes as long as four at least."""
    if product.image is not None:
        return _image_elements(product.image, rows)
    return 0 if product.data_stride is not None else rows * product.steps.runs * max(product.steps.lanes, 4)


def _image_elements(image: Image, rows: int) -> int:
    return image.lines(_rounded_up(rows, BLOCK_ROWS)) * image.line * image.channels.extent


def _nanoseconds(product: MatrixProduct, plan: TilePlan, machine: CpuMachine) -> float:
    numbers, blocks, panels = product.numbers, blocks_of(product), panels_of(product) // plan.groups
    turns = math.ceil(product.batch.extent * plan.chunks * plan.groups / machine.cores)
    pairs = plan.rows / BLOCK_ROWS
    block = numbers.busy * len(numbers.pairs) * TILES * TILES * machine.matrix_cycles
    computing = (math.floor(pairs) + (_HALF if pairs % 1 else 0.0)) * panels * blocks * block
    computing += math.ceil(pairs) * panels * (plan.pieces - 1) * _RESUMED
    weights = panels * blocks * BLOCK_COLUMNS * numbers.steps
    others = _cut_elements(product, plan.rows) * numbers.data_cycles + plan.rows * panels * BLOCK_COLUMNS * _RESULT
    others += weights * numbers.weight_cycles if product.weight_stride is None else 0.0
    busy = turns * (computing + others) / machine.cycles_per_nanosecond
    first = math.ceil(turns / plan.chunks)  # times that a core reads weights that are new to it
    is_kept = 4 * weights + _held(product, plan.rows, blocks // plan.pieces) <= _FILL * machine.l2_bytes
    again = 0 if is_kept else turns - first
    seconds = first / (numbers.weight_bandwidth * machine.memory_bandwidth) + again / (
        _AGAIN * machine.last_level_bandwidth
    )
    loading = 4 * weights * seconds * 1e9
    return overlapped(busy, loading) + machine.parallel_launch * 1e9


def blocks_of(product: MatrixProduct) -> int:
    """How many blocks of steps there are, one instruction each."""
    return math.ceil(product.steps.vectors / product.numbers.vectors)


def panels_of(product: MatrixProduct) -> int:
    """How many panels of columns there are, whose products are in registers together."""
    return math.ceil(product.columns.vectors / TILES)


def _rounded_up(number: int, size: int) -> int:
    return math.ceil(number / size) * size
