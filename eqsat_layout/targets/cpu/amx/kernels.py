"""Products of matrices on a matrix unit that multiplies bfloat16 and bytes.

In: a product, the elementwise stage that follows, if any, and a plan of tiles. Out: a scheduled PrimFunc.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import tvm
from tvm import s_tir, tirx

from eqsat_layout.targets.cpu.amx import instructions as matrix_unit
from eqsat_layout.targets.cpu.amx.data import Rows, tiles_of_data
from eqsat_layout.targets.cpu.amx.products import MatrixProduct
from eqsat_layout.targets.cpu.amx.statements import Loops, Task, kept_whole
from eqsat_layout.targets.cpu.amx.tile_plan import BLOCK_ROWS, TILES, TilePlan, blocks_of, panels_of
from eqsat_layout.targets.cpu.amx.weights import Panels, tiles_of_weights
from eqsat_layout.targets.cpu.single.prefetch import prefetch
from eqsat_layout.targets.schedules.accesses import StageAccess
from eqsat_layout.targets.schedules.stages import Stage
from eqsat_layout.tir.blocks import sequence, store_of
from eqsat_layout.tir.structural import structural_map, substitute

_LINE_BYTES = 64  # of a cache


def matrix_kernel(product: MatrixProduct, epilogue: Stage | None, sch: Any, plan: TilePlan) -> Any:
    """The kernel that does what the function of ``sch`` does.

    Cores take chunks of rows, or of columns. Each cuts its rows into parts (:class:`.numbers.TileNumbers`) that stay in
    its L2, goes over all panels of columns with them, and stores what the epilogue makes of each block. While the unit
    works on one panel of the weights, the vector units cut the next, if they don't lie in tiles: weights come from
    memory as they are, for in parts floats are half as large again, and may be anything.
    """
    return _Kernel(product, epilogue, plan, sch).function(sch.mod["main"])


class _Kernel:
    """One kernel while it is put together."""

    def __init__(self, product: MatrixProduct, epilogue: Stage | None, plan: TilePlan, sch: Any) -> None:
        self.product, self.plan = product, plan
        self._stage, self._epilogue = product.stage, epilogue
        self._store = store_of(sch.get((epilogue or product.stage).block))
        self._loops = Loops(str(product.stage.axes[0].var.ty.dtype))
        self._numbers = numbers = product.numbers
        self._blocks = blocks_of(product) // plan.pieces
        self._panels = panels_of(product) // plan.groups
        self._pairs = math.ceil(plan.rows / BLOCK_ROWS)
        self._tiles = product.columns.vectors
        self._is_uneven = self._tiles % TILES != 0
        waiting = self._pairs * self._panels if plan.pieces > 1 else 1
        self._data = tiles_of_data(Rows(product, self._loops, self._pairs, self._blocks, self._row_places))
        self._weights = tiles_of_weights(Panels(product, self._loops, self._panels, self._blocks, self._pairs))
        self._sums = tirx.decl_buffer(
            (waiting, TILES, TILES, matrix_unit.ROWS, matrix_unit.COLUMNS),
            numbers.dtype,
            "sums",
            scope="global" if waiting > 1 else "local",
        )
        self._places = tirx.decl_buffer((len(product.rows.axes), plan.rows), "int32", "places", scope="local")
        self._configuration = tirx.decl_buffer(*matrix_unit.CONFIGURATION, "configuration", scope="local")

    def function(self, func: Any) -> Any:
        """The PrimFunc, with the parameters of ``func``."""
        tasks = self.product.batch.extent * self.plan.chunks * self.plan.groups
        body = sequence([matrix_unit.permitted(), self._loops.loop(tasks, self._task, tirx.ForKind.PARALLEL)])
        root = s_tir.SBlockRealize([], True, s_tir.SBlock([], [], [], "root", body))
        return tirx.PrimFunc(func.params, root, ret_type=func.ret_type, attrs=func.attrs)

    def _task(self, task: Any) -> Any:
        plan = self.plan
        chunk, rest = tirx.floormod(task, plan.chunks), tirx.floordiv(task, plan.chunks)  # one after the other use
        group, batch = tirx.floormod(rest, plan.groups), tirx.floordiv(rest, plan.groups)  # the same weights
        first = chunk * plan.rows
        count = tirx.min(self._loops.number(plan.rows), self._loops.number(self.product.rows.extent) - first)

        def piece(number: Any) -> Any:
            return self._piece(Task(number, batch, group * self._panels, first, count))

        tiles = [*self._data.loaded_from, *self._weights.buffers]
        statements = [
            *matrix_unit.configured(self._configuration),
            *(store for buffer in (*tiles, self._sums) for store in kept_whole(buffer)),
            self._tabulated(Task(0, batch, 0, first, count)),
            self._loops.loop(plan.pieces, piece),
            matrix_unit.released(),
        ]
        buffers = [self._configuration, self._places, *self._data.buffers, *self._weights.buffers, self._sums]
        block = s_tir.SBlock([], [], [], "task", sequence(statements), alloc_buffers=buffers)
        return s_tir.SBlockRealize([], True, block)

    def _tabulated(self, at: Task) -> Any:
        """The places of rows along their axes."""
        rows = self.product.rows

        def row(number: Any) -> Any:
            places = rows.at(self._data.number(at, number))
            stores = [
                tirx.BufferStore(self._places, places[axis.var].astype("int32"), [self._loops.number(index), number])
                for index, axis in enumerate(rows.axes)
            ]
            return sequence(stores)

        return self._loops.loop(self.plan.rows, row)

    def _piece(self, at: Task) -> Any:
        """All products of a piece of the steps."""
        loop, number_of = self._loops.loop, self._loops.number
        pairs = tirx.floordiv(at.count + (BLOCK_ROWS - 1), BLOCK_ROWS)

        def pair_of(number: Any, pair: Any) -> Any:
            left = at.count - pair * BLOCK_ROWS
            whole, half = (self._multiplied(pair, at, number, tiles) for tiles in (TILES, 1))
            multiplied = tirx.IfThenElse(left > matrix_unit.ROWS, whole, half)
            results = self._results(pair, at, number, self._data.results(tirx.min(left, number_of(BLOCK_ROWS))))
            if self.plan.pieces > 1:
                results = tirx.IfThenElse(at.piece == self.plan.pieces - 1, results, None)
            return sequence([multiplied, results])

        def panel_of(number: Any) -> Any:
            statements = [loop(pairs, lambda pair: pair_of(number, pair))]
            shares = self._weights.next(at, number, number_of(0), number_of(0))
            if shares and self.product.rows.extent % self.plan.rows:  # the last chunk may have fewer, who left theirs
                statements.append(loop(number_of(self._pairs) - pairs, lambda index: shares_of(number, pairs + index)))
            return sequence(statements)

        def shares_of(number: Any, pair: Any) -> Any:
            return loop(self._blocks, lambda block: sequence(self._weights.next(at, number, pair, block)))

        return sequence([*self._weights.first(at), *self._data.first(at, pairs), loop(self._panels, panel_of)])

    def _row_places(self, row: Any) -> dict[Any, Any]:
        """The place of a row of the chunk along the axes of rows; the last one again for those that are too many."""
        number = tirx.min(row, self._loops.number(self.plan.rows - 1))
        return {
            axis.var: tirx.BufferLoad(self._places, [self._loops.number(index), number]).astype(self._loops.dtype)
            for index, axis in enumerate(self.product.rows.axes)
        }

    def _multiplied(self, pair: Any, at: Task, number: Any, tiles: int) -> Any:
        """The products of ``tiles`` tiles of rows with two of columns, for all steps of a piece."""
        sums = [(row, column) for row in range(tiles) for column in range(TILES)]
        waiting = self._waiting(pair, number)

        def place(row: int, column: int) -> list[Any]:
            return [waiting, *map(self._loops.number, (row, column, 0, 0))]

        def tile(row: int, column: int) -> int:
            return row * TILES + column

        start: Any = sequence([matrix_unit.cleared(tile(*own)) for own in sums])
        if self.plan.pieces > 1:
            resumed = sequence([matrix_unit.loaded(tile(*own), self._sums, place(*own)) for own in sums])
            start = tirx.IfThenElse(at.piece == 0, start, resumed)

        def step(block: Any) -> Any:
            statements = self._weights.next(at, number, pair, block) + self._prefetched(pair, at, number, block)
            held: tuple[int | None, int | None] = (None, None)
            for data, weights in self._numbers.pairs:
                if data != held[0]:
                    statements += [self._data.loaded(4 + row, at, pair, block, data, row) for row in range(tiles)]
                if weights != held[1]:
                    statements += [
                        self._weights.loaded(6 + column, at, number, block, weights, column) for column in range(TILES)
                    ]
                held = (data, weights)
                statements += [self._numbers.multiplied(tile(row, column), 4 + row, 6 + column) for row, column in sums]
            return sequence(statements)

        stored = [matrix_unit.stored(tile(*own), self._sums, place(*own)) for own in sums]
        return sequence([start, self._loops.loop(self._blocks, step), *stored])

    def _prefetched(self, pair: Any, at: Task, number: Any, block: Any) -> list[Any]:
        """This step's share of what the epilogue will read beside the sums."""
        size = max((load.element_bytes for load in self._read_with_results), default=0)
        columns = math.ceil(TILES * matrix_unit.COLUMNS * size / _LINE_BYTES)
        lines = BLOCK_ROWS * columns
        each = math.ceil(lines / self._blocks)

        def line(index: Any) -> Any:
            place = tirx.min(block * each + index, self._loops.number(lines - 1))
            row, column = tirx.floordiv(place, columns), tirx.floormod(place, columns)
            row = pair * BLOCK_ROWS + row
            column = tirx.min((at.panel + number) * TILES + column, self._loops.number(self._tiles - 1))
            places = self._own_places(self._result_places(at.batch, row, column, self._loops.number(0)))
            return sequence(
                [
                    prefetch(load.buffer[tuple(substitute(index, places) for index in load.indices)])
                    for load in self._read_with_results
                ]
            )

        return [self._loops.loop(each, line, tirx.ForKind.UNROLLED)] if self._read_with_results else []

    @cached_property
    def _read_with_results(self) -> list[StageAccess]:
        """What the epilogue reads of every row and column."""
        if self._epilogue is None:
            return []
        pairs = dict(zip((axis.var for axis in self._stage.spatial), self._epilogue.axes, strict=True))
        rows, columns = (group.axes for group in (self.product.rows, self.product.columns))
        return [
            load
            for load in self._epilogue.loads
            if not load.buffer.same_as(self._stage.write.buffer)
            and all(any(load.uses(pairs[axis.var].var) for axis in axes) for axes in (rows, columns))
        ]

    def _results(self, pair: Any, at: Task, number: Any, count: Any) -> Any:
        """What the epilogue makes of a block's sums, or the sums themselves."""
        waiting, first = self._waiting(pair, number), (at.panel + number) * TILES

        def row(line: Any) -> Any:
            tile, place = tirx.floordiv(line, matrix_unit.ROWS), tirx.floormod(line, matrix_unit.ROWS)

            def vector(column: Any) -> Any:
                def store(lane: Any) -> Any:
                    places = self._result_places(at.batch, pair * BLOCK_ROWS + line, first + column, lane)
                    return self._stored(places, tirx.BufferLoad(self._sums, [waiting, tile, column, place, lane]))

                return self._loops.vectors(store)

            if self._is_uneven:
                left = self._loops.number(self._tiles) - first
                stores = self._loops.loop(tirx.min(left, self._loops.number(TILES)), vector)
            else:
                stores = sequence([vector(self._loops.number(column)) for column in range(TILES)])
            image = self.product.image
            is_result = image and image.is_result(self._row_places(pair * BLOCK_ROWS + line))
            return stores if is_result is None else tirx.IfThenElse(is_result, stores, None)

        return self._loops.loop(count, row)

    def _result_places(self, batch: Any, row: Any, tile: Any, lane: Any) -> dict[Any, Any]:
        """The place of an element of the result along the axes of the stage."""
        product = self.product
        places = product.fixed_places | product.batch.at(batch) | self._row_places(row)
        return places | product.columns.at_run(tile, lane)

    def _waiting(self, pair: Any, number: Any) -> Any:
        """Where the sums of a block are."""
        return number * self._pairs + pair if self.plan.pieces > 1 else self._loops.number(0)

    def _stored(self, places: Mapping[Any, Any], total: Any) -> Any:
        """The store of one element at such places of the stage."""
        own, sums = self._own_places(places), self._stage.write.buffer

        def on_load(load: Any) -> Any:
            return total if load.source.same_as(sums) else load

        value = total
        if self._epilogue is not None:
            value = substitute(structural_map(self._store.value, (tvm.ir.TensorLoad, on_load)), own)
        return tirx.BufferStore(self._store.buffer, value, [substitute(index, own) for index in self._store.indices])

    def _own_places(self, places: Mapping[Any, Any]) -> dict[Any, Any]:
        """Those along the axes of the epilogue."""
        axes = self._epilogue.axes if self._epilogue is not None else self._stage.spatial
        return {own.var: places[axis.var] for own, axis in zip(axes, self._stage.spatial, strict=True)}
