"""The results of a kernel for the unit: what its epilogue makes of the sums.

In: a product, the elementwise stage that follows, if any, and where the sums of a block wait. Out: the statements that
store the results of rows, all at once or while the unit works on the next block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tvm
from tvm import tirx

from eqsat_layout.targets.cpu.amx import instructions as matrix_unit
from eqsat_layout.targets.cpu.amx.statements import Task
from eqsat_layout.targets.cpu.amx.tile_plan import BLOCK_ROWS, TILES
from eqsat_layout.targets.cpu.amx.weights import Panels
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.single.prefetch import prefetch
from eqsat_layout.targets.schedules.accesses import StageAccess
from eqsat_layout.targets.schedules.stages import Stage
from eqsat_layout.tir.blocks import sequence
from eqsat_layout.tir.structural import structural_map, substitute

FEW = 2
"""Blocks of sums, of one of which the results are made while the unit adds up the other."""


@dataclass(frozen=True)
class WaitingSums:
    """Sums of a pair of tiles of rows and a panel of columns; ``waiting``: their place among those that wait."""

    number: Any
    pair: Any
    waiting: Any


@dataclass(frozen=True)
class TileResults:
    """``store``: of an element, by the epilogue or by the product. ``places``: of a row of the chunk, along the axes of
    rows. ``waiting``: how many blocks' sums wait at a time."""

    panels: Panels
    epilogue: Stage | None
    store: Any
    places: Callable[[Any], dict[Any, Any]]
    waiting: int

    @cached_property
    def sums(self) -> Any:
        """The buffer of sums of blocks."""
        shape = (self.waiting, TILES, TILES, matrix_unit.ROWS, matrix_unit.COLUMNS)
        scope = "global" if self.waiting > FEW else "local"
        return tirx.decl_buffer(shape, self.panels.product.numbers.dtype, "sums", scope=scope)

    def stored(self, at: Task, block: WaitingSums, count: Any) -> Any:
        """All results of ``count`` rows of a block."""
        return self.panels.loops.loop(count, lambda line: self._row(at, block, line))

    def share(self, at: Task, block: WaitingSums, step: Any, count: Any) -> Any:
        """Those that are due in one step of the next block."""
        each = math.ceil(BLOCK_ROWS / self.panels.blocks)
        left = tirx.min(count - step * each, self.panels.loops.number(each))
        return self.panels.loops.loop(left, lambda line: self._row(at, block, step * each + line))

    def prefetched(self, at: Task, block: WaitingSums, step: Any) -> list[Any]:
        """One step's share of what the epilogue will read beside the sums."""
        loops, tiles = self.panels.loops, self.panels.product.columns.vectors
        size = max((load.element_bytes for load in self._read_with_results), default=0)
        columns = math.ceil(TILES * matrix_unit.COLUMNS * size / CpuMachine.line_bytes)
        lines = BLOCK_ROWS * columns
        each = math.ceil(lines / self.panels.blocks)

        def line(index: Any) -> Any:
            place = tirx.min(step * each + index, loops.number(lines - 1))
            row, column = tirx.floordiv(place, columns), tirx.floormod(place, columns)
            row = block.pair * BLOCK_ROWS + row
            column = tirx.min((at.panel + block.number) * TILES + column, loops.number(tiles - 1))
            places = self._own_places(self._result_places(at.batch, row, column, loops.number(0)))
            return sequence(
                [
                    prefetch(load.buffer[tuple(substitute(index, places) for index in load.indices)])
                    for load in self._read_with_results
                ]
            )

        return [loops.loop(each, line, tirx.ForKind.UNROLLED)] if self._read_with_results else []

    @cached_property
    def _read_with_results(self) -> list[StageAccess]:
        """What the epilogue reads of every row and column."""
        if self.epilogue is None:
            return []
        product = self.panels.product
        pairs = dict(zip((axis.var for axis in product.stage.spatial), self.epilogue.axes, strict=True))
        rows, columns = (group.axes for group in (product.rows, product.columns))
        return [
            load
            for load in self.epilogue.loads
            if not load.buffer.same_as(product.stage.write.buffer)
            and all(any(load.uses(pairs[axis.var].var) for axis in axes) for axes in (rows, columns))
        ]

    def _row(self, at: Task, block: WaitingSums, line: Any) -> Any:
        """The results of a row, or its sums."""
        loops, product = self.panels.loops, self.panels.product
        tile, place = tirx.floordiv(line, matrix_unit.ROWS), tirx.floormod(line, matrix_unit.ROWS)
        row, first = block.pair * BLOCK_ROWS + line, (at.panel + block.number) * TILES

        def vector(column: Any) -> Any:
            def store(lane: Any) -> Any:
                places = self._result_places(at.batch, row, first + column, lane)
                return self._stored(places, tirx.BufferLoad(self.sums, [block.waiting, tile, column, place, lane]))

            return loops.vectors(store)

        if product.columns.vectors % TILES:
            left = loops.number(product.columns.vectors) - first
            stores = loops.loop(tirx.min(left, loops.number(TILES)), vector)
        else:
            stores = sequence([vector(loops.number(column)) for column in range(TILES)])
        is_result = None if product.image is None else product.image.is_result(self.places(row))
        return stores if is_result is None else tirx.IfThenElse(is_result, stores, None)

    def _result_places(self, batch: Any, row: Any, tile: Any, lane: Any) -> dict[Any, Any]:
        """The place of an element of the result along the axes of the stage."""
        product = self.panels.product
        return product.shared_places(batch) | self.places(row) | product.columns.at_run(tile, lane)

    def _stored(self, places: Mapping[Any, Any], total: Any) -> Any:
        """The store of one element at such places of the stage."""
        own, sums = self._own_places(places), self.panels.product.stage.write.buffer

        def on_load(load: Any) -> Any:
            return total if load.source.same_as(sums) else load

        value = total
        if self.epilogue is not None:
            value = substitute(structural_map(self.store.value, (tvm.ir.TensorLoad, on_load)), own)
        return tirx.BufferStore(self.store.buffer, value, [substitute(index, own) for index in self.store.indices])

    def _own_places(self, places: Mapping[Any, Any]) -> dict[Any, Any]:
        """Those along the axes of the epilogue."""
        spatial = self.panels.product.stage.spatial
        axes = self.epilogue.axes if self.epilogue is not None else spatial
        return {own.var: places[axis.var] for own, axis in zip(axes, spatial, strict=True)}
