"""What a register tile costs: loads, arithmetic and latency of one step of a reduction.

In: the facts of a reduction, the machine and a tile. Out: cycles for each useful multiply-add lane.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.schedules.accesses import StageAccess, StageAxis
from eqsat_layout.targets.schedules.stages import Stage

_SPARE = 1  # registers for the operand that is not held
_FRESH = 1.0  # cycles that a vector from beyond L2 takes where every tile needs others
_ELSEWHERE = 1.0  # cycles of reading on in another place, where every accumulator has a vector of its own
_STREAMED = 0.1  # of the cycles that loads from L2 take is not hidden
_SUPPLY = 0.72  # of the bandwidth of the last-level cache, for weights that come from there and from memory in turns
LONG = 32
"""Steps of a product so long that LLVM does not write it out."""


@dataclass(frozen=True)
class Tile:
    """``lanes`` elements of axis ``vector`` at a time; ``sizes[i]`` of axis ``i`` (for the vector axis: vectors)."""

    vector: int
    lanes: int
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class OperandLoad:
    """Strides along the spatial axes, the steps of the reduction that touch new elements, bytes of an element.

    ``run``: elements along the last axis before memory goes on elsewhere. ``total``: bytes that all tiles read.
    ``readings``: for how many elements of the result each is read, where they come from memory; else 0.
    """

    strides: tuple[int | None, ...]
    steps: int
    element_bytes: int
    run: int
    total: int
    readings: int

    def moves(self, axis: int) -> bool:
        """The load's address depends on the axis."""
        return self.strides[axis] != 0

    def moved(self, tile: Tile) -> int:
        """Elements that a step of a tile reads, vectors counted as one."""
        return math.prod(size for axis, size in enumerate(tile.sizes) if self.moves(axis))

    def shared(self, tile: Tile) -> int:
        """For how many elements of a tile each is read."""
        return math.prod(size for axis, size in enumerate(tile.sizes) if not self.moves(axis))


@dataclass(frozen=True)
class TileProblem:
    """What tiles of a reduction are judged by.

    ``width``: elements of a vector register; ``spare``: registers besides accumulators and the operand that is held;
    ``periods``: of blocks of the axis in vectors, which no vector may cross. ``is_depthwise``: of a window, where every
    element of the result is made of others.
    """

    loads: tuple[OperandLoad, ...]
    steps: int
    width: int
    spare: int
    periods: tuple[int, ...]
    has_window: bool
    is_depthwise: bool


def problem_of(stage: Stage, axes: Sequence[StageAxis], machine: CpuMachine) -> TileProblem:
    """For tiles over ``axes``, the last one in vectors."""
    last = axes[-1]
    batch = math.prod(a.extent or 64 for a in axes if all(access.uses(a.var) for access in stage.loads))
    periods = [access.period(last.var) for access in stage.loads]
    loads: list[OperandLoad] = []
    for access, period in zip(stage.loads, periods, strict=True):
        steps = math.prod(a.extent or 64 for a in stage.reduced if access.uses(a.var))
        strides = tuple(access.stride(a.var) for a in axes)
        run = period or last.extent or 1
        total = access.buffer_bytes // batch
        read = readings(stage, access) if _is_streamed(stage, access, machine) else 0
        loads.append(OperandLoad(strides, steps, access.element_bytes, run, total, read))
    width = machine.lanes(stage.write.element_bytes)
    blocks = tuple(period for period in periods if period)
    is_own = any(all(a.extent == 1 or load.moves(i) for i, a in enumerate(axes)) for load in loads)
    is_depthwise = stage.has_window and is_own
    return TileProblem(tuple(loads), stage.steps, width, _spare(stage, machine), blocks, stage.has_window, is_depthwise)


def _is_streamed(stage: Stage, access: StageAccess, machine: CpuMachine) -> bool:
    """Panels of weights come from memory, one while another is in use."""
    is_weights = access is stage.vector_load and stage.is_product and not stage.is_part
    return is_weights and access.buffer_bytes > machine.l2_working_set // 2 and not stage.has_window


def readings(stage: Stage, access: StageAccess) -> int:
    """For how many elements of the result each one of an operand is read."""
    return math.prod(axis.extent or 64 for axis in stage.spatial if not access.uses(axis.var))


def _spare(stage: Stage, machine: CpuMachine) -> int:
    """Registers besides accumulators and the operand that is held; LLVM needs one more to itself, else it spills.

    Not so in long products, whose addresses and operands are the same in every step.
    """
    is_long = stage.steps >= LONG and stage.is_product
    return _SPARE if machine.broadcast_operand or is_long else _SPARE + 1


def tile_step_cycles(problem: TileProblem, tile: Tile, machine: CpuMachine) -> float | None:
    """Cycles per useful multiply-add lane; ``None`` if the tile does not fit the registers."""
    width = problem.width
    vectors = math.ceil(tile.lanes / width)
    pieces = tile.lanes // width + (tile.lanes % width).bit_count()
    count = math.prod(tile.sizes)
    accumulators = vectors * count
    held: list[int] = []
    arriving = _SUPPLY * machine.last_level_bandwidth / machine.clock  # bytes a cycle
    issued, streamed, fresh, supply, elsewhere = 0.0, 0.0, 0.0, 0.0, 0
    for load in problem.loads:
        moved = load.moved(tile)
        stride = load.strides[tile.vector] or 0
        held.append(moved * (vectors if stride else 1))
        issued += moved * (1, pieces, 2 * tile.lanes)[stride]
        touched = touched_bytes(load, tile, machine)
        panel = touched * load.steps
        if panel > machine.l1_working_set // 2:
            streamed += touched / machine.l2_bytes_per_cycle
        if load.readings:  # to L2 for all tiles that share a panel, from there for each
            supply += touched * load.shared(tile) / load.readings / arriving + touched / machine.l2_bytes_per_cycle
        new_rows = not stride and load.total > machine.l2_working_set
        new_panel = stride and problem.has_window and panel > machine.l2_working_set  # with many rows not cut in pieces
        if new_rows or new_panel:
            fresh += touched / machine.vector_bytes
        is_own = problem.is_depthwise and stride and moved == count
        if is_own and tile.lanes * tile.sizes[tile.vector] < load.run:
            elsewhere += moved // tile.sizes[tile.vector]
    if accumulators + min(held) + problem.spare > machine.registers:
        return None
    cycles = max(
        accumulators / machine.fma_units,
        issued / machine.loads_per_cycle,
        (accumulators + issued) / machine.instructions_per_cycle,
        streamed,
        supply,
        machine.fma_latency,
    )
    cycles += _FRESH * fresh + _STREAMED * streamed + _ELSEWHERE * elsewhere + 0.02 * issued
    small = sum(1 for axis, size in enumerate(tile.sizes) if size > 1 and axis != tile.vector)
    rows = math.prod(tile.sizes[: max(0, tile.vector - 1)])  # of the result, far from each other
    return (cycles + 0.05 * small + 0.04 * rows) / (tile.lanes * count)


def touched_bytes(load: OperandLoad, tile: Tile, machine: CpuMachine) -> int:
    """Bytes that a step of a tile moves to L1."""
    moved = load.moved(tile)
    stride = load.strides[tile.vector] or 0
    touched = moved * (tile.lanes * stride if stride else 1) * load.element_bytes
    if stride and tile.lanes * tile.sizes[tile.vector] < load.run:  # the rest of a line is of no use yet
        return max(touched, moved // tile.sizes[tile.vector] * machine.line_bytes)
    return touched
