"""What a register tile costs: loads, arithmetic and latency of one step of a reduction.

In: the facts of a reduction, the machine and tiles. Out: for each the cycles of a useful multiply-add lane.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.operand_loads import OperandLoad, bytes_to_l1
from eqsat_layout.targets.cpu.model.tile_problem import TileProblem
from eqsat_layout.targets.cpu.model.tiles import Tiles

_FRESH = 1.0  # cycles that a vector from beyond L2 takes where every tile needs others
_ELSEWHERE = 0.25  # cycles of reading on in another place, where every accumulator has a vector of its own
_KEPT = 1.0  # cycles of an operand that LLVM keeps for the next step of a window, where registers are full
_HELD = 0.75  # of the registers: others have weights, and what the epilogue needs (the constants of exp)
_OF_A_ROW = {16: 9, 32: 15}  # of so many, for the accumulators of one row: its data is read as it is multiplied
_SPILLED = 1.5  # times as many cycles with more (measured on AVX2 and AVX-512: 1.1 to 2)
_STREAMED = 0.1  # of the cycles that loads from L2 take is not hidden
_FREE = 5  # registers beside accumulators, below which LLVM may put one of these on the stack in every step
_CROWDED = 1.1  # times as many cycles, where elements are broadcast to several vectors: half as large tiles are as good
_UNFORESEEN = 4.0  # cycles of a vector that no hardware prefetches, since it follows no more streams
_OVERTAKEN = 1.0  # cycles of a vector whose line was fetched and evicted, as so many streams share few sets of L1
_ACROSS = 0.1  # cycles to add a lane of a row's partial results, most of which pass beside the loads of the next tile
_SUPPLY = 0.72  # of the bandwidth of the last-level cache, for weights that come from there and from memory in turns
_BESIDE = 0.1  # of the shorter of both, supply and the core's own work, is not hidden: a cache may have the weights


def tile_step_cycles(problem: TileProblem, tiles: Tiles, machine: CpuMachine) -> list[float]:
    """For each tile the cycles per useful multiply-add lane; infinite if it does not fit the registers."""
    width, lanes = problem.width, tiles.lanes
    vectors = -(-lanes // width)
    unit = max(1, width // machine.passes(machine.vector_bytes))
    passes = -(-lanes // unit)
    once = -(-np.minimum(lanes, width) // unit)  # of one vector
    pieces = lanes // width + np.array([(lane % width).bit_count() for lane in lanes.tolist()], np.int64)
    if not problem.has_panels:
        pieces = 2 * pieces - 1  # what lies along a row is put together in a register
    count = math.prod(tiles.sizes)
    accumulators = vectors * count
    held = np.full(lanes.shape, machine.registers)
    issued, loading, streamed, fresh, supply, elsewhere, waiting = (np.zeros(lanes.shape) for _ in range(7))
    kept, is_row = accumulators, np.zeros(lanes.shape, bool)
    for load in problem.loads:
        moved = load.moved(tiles)
        stride = load.strides[tiles.vector] or 0
        held = np.minimum(held, moved * vectors if stride else moved)
        issued += moved * (1, pieces, 2 * lanes)[stride]
        loading += moved * (1, np.maximum(pieces, passes), 2 * lanes)[stride]
        if not stride:
            waiting += load.evicted(tiles, machine)
        elif problem.has_panels:
            waiting += load.unfetched(tiles, machine)
        waiting += load.awaited(tiles, machine)
        touched = bytes_to_l1(load, tiles, machine, goes_on=not problem.has_panels)
        panel = touched * load.distinct(tiles)
        is_far = panel > machine.l1_working_set // 2
        if load.readings:
            is_far |= (load.shared(tiles) >= load.readings) & (load.total > machine.l1_working_set)
            arriving, missed = _of_weights(load, tiles, touched, problem.has_panels, machine)
            supply, waiting = supply + arriving, waiting + missed
        streamed += np.where(is_far, touched / machine.panel_bytes_per_cycle, 0)
        if not stride and load.total > machine.l2_working_set:  # new rows
            fresh += touched / machine.vector_bytes
        elif stride and problem.has_window:  # a new panel, with many rows not cut in pieces
            fresh += np.where(panel > machine.l2_working_set, touched / machine.vector_bytes, 0)
        if problem.is_depthwise and stride:
            kept = kept + load.kept(tiles) * vectors
            is_row |= load.is_one_row(tiles) & (vectors == 1)
            is_own = (moved == count) & (lanes * tiles.sizes[tiles.vector] < load.run)
            elsewhere += np.where(is_own, moved // tiles.sizes[tiles.vector] / once, 0)  # while a second half is read
    limits = (passes * count / machine.fma_units, loading / machine.loads_per_cycle, streamed)
    cycles = np.maximum((accumulators + issued) / machine.instructions_per_cycle, machine.fma_latency)
    for limit in limits:
        cycles = np.maximum(cycles, limit)
    cycles = np.maximum(cycles, supply) + _BESIDE * np.minimum(cycles, supply)
    if problem.is_depthwise:
        cycles += np.where(is_row, 0, _KEPT * np.maximum(kept - _HELD * machine.registers, 0))
        most = _OF_A_ROW.get(machine.registers, machine.registers // 2)
        cycles *= np.where(is_row & (accumulators > most), _SPILLED, 1)
    if not problem.has_panels:
        cycles += _ACROSS * lanes**2 * count / problem.steps
    cycles += waiting + _FRESH * fresh + _STREAMED * streamed + _ELSEWHERE * elsewhere + 0.02 * issued
    small = sum((size > 1).astype(int) for axis, size in enumerate(tiles.sizes) if axis != tiles.vector)
    rows = math.prod(tiles.sizes[: max(0, tiles.vector - 1)])  # of the result, far from each other
    is_crowded = machine.broadcast_operand & (held > 1) & (machine.registers - accumulators < _FREE)
    cycles = (cycles + 0.05 * small + 0.04 * rows) * np.where(is_crowded, _CROWDED, 1) / (lanes * count)
    is_fit = accumulators + held + problem.spare <= machine.registers
    found: list[float] = np.where(is_fit, cycles, math.inf).tolist()
    return found


def _of_weights(
    load: OperandLoad, tiles: Tiles, touched: Any, has_panels: bool, machine: CpuMachine
) -> tuple[Any, Any]:
    """Cycles of a step in which weights are on their way, and in which it waits for some that nobody has sent for."""
    first = load.shared(tiles) / load.readings
    missed = np.where(load.are_in_step(tiles, machine, has_panels), _OVERTAKEN, 0)
    if not load.is_streamed:
        return np.zeros(tiles.lanes.shape), missed * load.moved(tiles) * first
    if has_panels:
        missed = missed + np.where(load.streams(tiles) > machine.prefetch_streams, _UNFORESEEN, 0)
    arriving = _SUPPLY * machine.last_level_bandwidth / machine.clock  # bytes a cycle
    # to L2 for all tiles that share a panel, from there for each
    supply = touched * first / arriving + touched / machine.l2_bytes_per_cycle
    return supply, missed * load.moved(tiles) * first
