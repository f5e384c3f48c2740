"""Products of matrices on a matrix unit that multiplies bfloat16 and bytes.

In: a product, the elementwise stage that follows, if any, and a plan of tiles. Out: a scheduled PrimFunc.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import s_tir, tirx

from eqsat_layout.targets.cpu.amx import instructions as matrix_unit
from eqsat_layout.targets.cpu.amx.data import Rows, tiles_of_data
from eqsat_layout.targets.cpu.amx.products import MatrixProduct
from eqsat_layout.targets.cpu.amx.results import FEW, TileResults, WaitingSums
from eqsat_layout.targets.cpu.amx.statements import Loops, Task, kept_whole
from eqsat_layout.targets.cpu.amx.tile_plan import BLOCK_ROWS, TILES, TilePlan, blocks_of, panels_of
from eqsat_layout.targets.cpu.amx.weights import Panels, tiles_of_weights
from eqsat_layout.targets.schedules.stages import Stage
from eqsat_layout.tir.blocks import sequence, store_of


def matrix_kernel(product: MatrixProduct, epilogue: Stage | None, sch: Any, plan: TilePlan) -> Any:
    """The kernel that does what the function of ``sch`` does.

    Cores take chunks of rows, or of columns. Each has its rows as tiles (:mod:`.data`), which stay in its L2, and goes
    over all panels of columns with them. While the unit works on one block, the vector units store what the epilogue
    makes of the one before, and cut the next panel of the weights, if they don't lie in tiles: weights come from memory
    as they are, for in parts floats are half as large again, and may be anything.
    """
    return _Kernel(product, epilogue, plan, sch).function(sch.mod["main"])


class _Kernel:
    """One kernel while it is put together."""

    def __init__(self, product: MatrixProduct, epilogue: Stage | None, plan: TilePlan, sch: Any) -> None:
        self.product, self.plan = product, plan
        self._loops = Loops(str(product.stage.axes[0].var.ty.dtype))
        self._numbers = product.numbers
        self._blocks = blocks_of(product) // plan.pieces
        self._panels = panels_of(product) // plan.groups
        self._pairs = math.ceil(plan.rows / BLOCK_ROWS)
        self._data = tiles_of_data(Rows(product, self._loops, self._pairs, self._blocks, self._row_places))
        panels = Panels(product, self._loops, self._panels, self._blocks, self._pairs)
        self._weights = tiles_of_weights(panels)
        store = store_of(sch.get((epilogue or product.stage).block))
        waiting = self._pairs * self._panels if plan.pieces > 1 else FEW
        self._results = TileResults(panels, epilogue, store, self._row_places, waiting)
        self._sums = self._results.sums
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
            block = WaitingSums(number, pair, self._waiting(number, pair, pairs))
            before = self._before(block, pairs) if self.plan.pieces == 1 else None
            whole, half = (self._multiplied(at, block, before, tiles) for tiles in (TILES, 1))
            multiplied = tirx.IfThenElse(at.count - pair * BLOCK_ROWS > matrix_unit.ROWS, whole, half)
            if before is not None:
                return multiplied
            results = self._results.stored(at, block, self._count(at, block))
            return sequence([multiplied, tirx.IfThenElse(at.piece == self.plan.pieces - 1, results, None)])

        def panel_of(number: Any) -> Any:
            statements = [loop(pairs, lambda pair: pair_of(number, pair))]
            shares = self._weights.next(at, number, number_of(0), number_of(0))
            if shares and self.product.rows.extent % self.plan.rows:  # the last chunk may have fewer, who left theirs
                statements.append(loop(number_of(self._pairs) - pairs, lambda index: shares_of(number, pairs + index)))
            return sequence(statements)

        def shares_of(number: Any, pair: Any) -> Any:
            return loop(self._blocks, lambda block: sequence(self._weights.next(at, number, pair, block)))

        statements = [*self._weights.first(at), *self._data.first(at, pairs), loop(self._panels, panel_of)]
        if self.plan.pieces == 1:
            number, pair = number_of(self._panels - 1), pairs - 1
            last = WaitingSums(number, pair, self._waiting(number, pair, pairs))
            statements.append(self._results.stored(at, last, self._count(at, last)))
        return sequence(statements)

    def _waiting(self, number: Any, pair: Any, pairs: Any) -> Any:
        """Where the sums of a block are: all wait for the next piece, or for the next block."""
        if self.plan.pieces > 1:
            return number * self._pairs + pair
        return tirx.floormod(number * pairs + pair, FEW)

    def _before(self, block: WaitingSums, pairs: Any) -> WaitingSums:
        """The block before; for the first one that of panel -1."""
        is_first = block.pair == 0
        number = tirx.Select(is_first, block.number - 1, block.number)
        pair = tirx.Select(is_first, pairs - 1, block.pair - 1)
        return WaitingSums(number, pair, tirx.floormod(block.number * pairs + block.pair + 1, FEW))

    def _count(self, at: Task, block: WaitingSums) -> Any:
        """Rows of a block's results."""
        left = at.count - block.pair * BLOCK_ROWS
        return self._data.results(tirx.min(left, self._loops.number(BLOCK_ROWS)))

    def _row_places(self, row: Any) -> dict[Any, Any]:
        """The place of a row of the chunk along the axes of rows; the last one again for those that are too many."""
        number = tirx.min(row, self._loops.number(self.plan.rows - 1))
        return {
            axis.var: tirx.BufferLoad(self._places, [self._loops.number(index), number]).astype(self._loops.dtype)
            for index, axis in enumerate(self.product.rows.axes)
        }

    def _multiplied(self, at: Task, own_block: WaitingSums, before: WaitingSums | None, tiles: int) -> Any:
        """The products of ``tiles`` tiles of rows with two of columns, for all steps of a piece, while the vector units
        make results of the sums of the block ``before``."""
        sums = [(row, column) for row in range(tiles) for column in range(TILES)]
        number, pair = own_block.number, own_block.pair

        def place(row: int, column: int) -> list[Any]:
            return [own_block.waiting, *map(self._loops.number, (row, column, 0, 0))]

        def tile(row: int, column: int) -> int:
            return row * TILES + column

        start: Any = sequence([matrix_unit.cleared(tile(*own)) for own in sums])
        if self.plan.pieces > 1:
            resumed = sequence([matrix_unit.loaded_tile(tile(*own), self._sums, place(*own)) for own in sums])
            start = tirx.IfThenElse(at.piece == 0, start, resumed)

        def step(block: Any) -> Any:
            statements = self._weights.next(at, number, pair, block) + self._results.prefetched(at, own_block, block)
            if before is not None:
                count = tirx.Select(before.number < 0, self._loops.number(0), self._count(at, before))
                statements.append(self._results.share(at, before, block, count))
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
