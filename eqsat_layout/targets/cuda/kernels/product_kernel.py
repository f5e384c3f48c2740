"""Products of matrices on tensor cores, in one launch, also where sums are cut into parts.

In: a product and a plan. Out: a PrimFunc without blocks that launches it. Tiles of both operands go through stages
of shared memory, asynchronously, while warps multiply the one that is there; each thread copies some of a tile, or one
asks for all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import tvm
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cuda.dependent_launch import constants_of, waited
from eqsat_layout.targets.cuda.kernels.arithmetics import ARITHMETICS
from eqsat_layout.targets.cuda.kernels.bulk_tiles import BulkTiles, rows_of_both
from eqsat_layout.targets.cuda.kernels.extents import Extent, is_whole_tiles, product_of_extents, tiles_over
from eqsat_layout.targets.cuda.kernels.fills import Shared
from eqsat_layout.targets.cuda.kernels.fragments import WarpPart, fragment_products, zeroed
from eqsat_layout.targets.cuda.kernels.product_plan import ProductPlan
from eqsat_layout.targets.cuda.kernels.products import Product
from eqsat_layout.targets.cuda.kernels.results import Results
from eqsat_layout.targets.cuda.kernels.sides import sides_of
from eqsat_layout.targets.cuda.kernels.split_sums import Parts, SplitSums
from eqsat_layout.targets.cuda.kernels.statements import (
    LANES,
    block_barrier,
    guarded,
    issued,
    launched,
    local,
    loop,
    number,
    sequence_of,
)
from eqsat_layout.targets.cuda.kernels.stream_k import EvenRuns
from eqsat_layout.targets.cuda.kernels.sums_in_rows import WarpSums, stored_in_runs, turns_of
from eqsat_layout.targets.cuda.kernels.warpgroups import (
    ALIGNED,
    GROUP_ROWS,
    LINE_BYTES,
    finished_together,
    multiplied_together,
    shared_writes_seen,
)
from eqsat_layout.targets.schedules.accesses import as_int, quotient, remainder
from eqsat_layout.tir.structural import nodes_of, substitute


def product_kernel(product: Product, plan: ProductPlan) -> Any:
    """The PrimFunc, with the parameters of the product's (its indices have 32 bits now)."""
    return _Kernel(product, plan).function()


class _Kernel:
    def __init__(self, product: Product, plan: ProductPlan) -> None:
        self._product, self._plan = product, plan
        self._arithmetic = ARITHMETICS[plan.arithmetic]
        self._results = Results(product, partial(turns_of, plan.warp_columns))
        self._row_tiles = tiles_over(product.rows.extent, plan.block_rows)
        self._column_tiles = tiles_over(product.columns.extent, plan.block_columns)
        self._warps_down = plan.block_rows // plan.warp_rows
        self._memory = Shared.of(plan.shared_words, self._arithmetic, ALIGNED if plan.in_groups else LINE_BYTES)
        self._shared = self._memory.words
        self._sums = local(plan.warp_rows * plan.warp_columns // LANES, self._arithmetic.sums, "sums")
        self._blocks = product_of_extents((product.batch.extent, self._row_tiles, self._column_tiles))
        self._splits = self._parts_of_sums()
        all_tiles = tiles_over(product.steps.extent, plan.block_steps)
        known = tiles_over(all_tiles, plan.splits)
        self._tiles = quotient(all_tiles + self._splits - 1, self._splits) if plan.spread else known
        self._runs = EvenRuns(self._blocks, all_tiles, plan.streams) if plan.streams else None
        self._split = self._split_sums()
        self._bulk = self._bulk_tiles() if plan.in_bulk else None

    def function(self) -> Any:
        split, runs = self._split, self._runs
        grid = [self._blocks] if runs is None else [runs.blocks]
        if split is not None and runs is None:
            grid.append(self._splits)
        prepared = [] if split is None else split.allocated()
        prepared += [] if self._bulk is None else self._bulk.encoded()
        return self._product.func.with_body(sequence_of([*prepared, launched(grid, self._plan.threads, self._block)]))

    def _bulk_tiles(self) -> BulkTiles:
        rows = rows_of_both(self._product, self._arithmetic)
        if rows is None:
            raise Refused("an operand is no rows at even distances, which tensor maps are of")
        return BulkTiles(self._product, rows, self._plan, self._memory)

    def _split_sums(self) -> SplitSums | None:
        plan, runs, blocks = self._plan, self._runs, self._blocks
        if runs is not None:
            return SplitSums(runs.slots, runs.shared, plan.threads, self._sums)
        if plan.splits == 1:
            return None
        is_split = tirx.min(self._splits - 1, 1) if plan.spread else 1  # the host may decide that there is one part
        return SplitSums(product_of_extents((self._splits, is_split, blocks)), blocks, plan.threads, self._sums)

    def _parts_of_sums(self) -> Extent:
        plan = self._plan
        if not plan.spread:
            return plan.splits
        fitting = tirx.floordiv(number(plan.spread), tirx.max(number(self._blocks), 1))
        return tirx.max(tirx.min(fitting, plan.splits), 1)

    # ---- a block's products

    def _block(self, grid: Any, thread: Any) -> Any:
        views = [] if self._bulk is None else self._bulk.allocated()
        begun = [*self._memory.allocated(), *views, tirx.AllocBuffer(self._sums)]
        if self._split is not None:
            begun.append(self._split.allocated_in_block())
        if self._runs is not None:

            def one_of_run(tile: Any, start: Any, count: Any, parts: Parts) -> Any:
                return sequence_of([*self._of_tile(tile, start, count, parts, thread), block_barrier()])

            return sequence_of([*begun, self._runs.each(grid[0], one_of_run)])
        part = number(0) if self._split is None else grid[1]
        parts = Parts(self._splits, part * self._blocks + grid[0], lambda one: one * self._blocks + grid[0])
        return sequence_of([*begun, *self._of_tile(grid[0], part * self._tiles, self._tiles, parts, thread)])

    def _of_tile(self, at: Any, start: Any, count: Extent, parts: Parts, thread: Any) -> list[Any]:
        """What a block does for a tile of the result: ``count`` tiles of the operands along the sum, from ``start``."""
        plan = self._plan
        tile, column_tile = quotient(at, self._column_tiles), remainder(at, self._column_tiles)
        batch, row_tile = quotient(tile, self._row_tiles), remainder(tile, self._row_tiles)
        row, column = row_tile * plan.block_rows, column_tile * plan.block_columns
        pipelined = self._pipelined if self._bulk is None else self._pipelined_in_bulk
        pipeline = pipelined(self._sums, batch, row, column, (start, count), thread)
        stored = sequence_of(self._stored(self._sums, batch, row, column, thread))
        if self._split is not None:
            stored = self._split.in_last_block(parts, at, thread, stored)
        return [zeroed(self._sums), *pipeline, stored]

    def _pipelined(
        self, sums: Any, batch: Any, row: Any, column: Any, turns: tuple[Any, Extent], thread: Any
    ) -> list[Any]:
        """Stages are filled ahead; a barrier a tile says that one is there and another one is free."""
        ahead, (begin, count) = self._plan.stages - 1, turns

        def fill(tile: Any, sides: Sequence[int] = (0, 1)) -> Any:
            start = tirx.floormod(tile, self._plan.stages) * self._plan.stage_words
            step = (begin + tile) * self._plan.block_steps
            return sequence_of(self._filled(side, start, batch, (row, column)[side], step, thread) for side in sides)

        early, late = self._early_and_late
        known = as_int(count)
        first = ahead if known is None else min(ahead, known)

        def fill_first(tile: Any, sides: Sequence[int]) -> Any:
            """Of open extents there are zeros beyond the last step; behind the end of a run there is another one."""
            return guarded(None if self._runs is None else tile < count, fill(tile, sides))

        begun = [loop(first, lambda tile: fill_first(tile, early)), waited()] if early else []
        begun += [
            loop(first, lambda tile: sequence_of([fill_first(tile, late), _committed()])),
            *(_committed() for _ in range(first, ahead)),
        ]

        def turn(tile: Any) -> Any:
            following = guarded(tile + ahead < count, fill(tile + ahead))
            arrived = issued("cp.async.wait_group", number(ahead - 1))
            start = tirx.floormod(tile, self._plan.stages) * self._plan.stage_words
            filled = sequence_of([following, _committed()])
            fenced = shared_writes_seen() if self._plan.in_groups else None
            return sequence_of([arrived, fenced, block_barrier(), self._multiplied(sums, start, thread, filled)])

        return [*begun, loop(count, turn), issued("cp.async.wait_group", number(0)), block_barrier()]

    def _pipelined_in_bulk(
        self, sums: Any, batch: Any, row: Any, column: Any, turns: tuple[Any, Extent], thread: Any
    ) -> list[Any]:
        """The same, by one thread; a tile that nobody will wait for is not asked for."""
        ahead, (begin, count) = self._plan.stages - 1, turns
        bulk, is_first = self._bulk, thread == 0
        assert bulk is not None

        def ask(tile: Any, sides: Sequence[int]) -> Any:
            step = (begin + tile) * self._plan.block_steps
            return sequence_of(bulk.asked_for(side, tile, batch, (row, column)[side], step) for side in sides)

        def expect(tile: Any, sides: Sequence[int] = (0, 1)) -> Any:
            return sequence_of([bulk.expected(tile), ask(tile, sides)])

        early, late = self._early_and_late
        known = as_int(count)
        first = tirx.min(number(ahead), count) if known is None else min(ahead, known)
        begun = [bulk.prepared(thread), guarded(is_first, loop(first, lambda tile: expect(tile, early or late)))]
        if early:
            begun += [waited(), guarded(is_first, loop(first, lambda tile: ask(tile, late))) if late else None]

        def turn(tile: Any) -> Any:
            following = guarded(tirx.And(is_first, tile + ahead < count), expect(tile + ahead))
            start = tirx.floormod(tile, self._plan.stages) * self._plan.stage_words
            multiply = self._multiplied(sums, start, thread, following)
            return sequence_of([bulk.waited_for(tile), block_barrier(), multiply])

        return [*begun, block_barrier(), loop(count, turn), block_barrier()]

    @cached_property
    def _early_and_late(self) -> tuple[list[int], list[int]]:
        """Sides whose first tiles are constants, which the launch in front of this one does not write; and others."""
        known, early, late = constants_of(self._product.func), list[int](), list[int]()
        for side, operand in enumerate((self._product.left, self._product.right)):
            loads = nodes_of(operand.value, tvm.ir.TensorLoad)
            (early if all(str(load.source.name) in known for load in loads) else late).append(side)
        return early, late

    def _filled(self, side: int, start: Any, batch: Any, across: Any, step: Any, thread: Any) -> Any:
        parts, places = self._parts_of_warps, self._product.batch.at(batch)
        begin = start + side * parts[0].fill.shape.words
        statement = parts[side].filled(self._memory, begin, across, step, thread, self._plan.threads)
        return substitute(statement, places)

    def _multiplied(self, sums: Any, start: Any, thread: Any, meanwhile: Any) -> Any:
        """A tile: fragment by fragment along the steps; what is done ``meanwhile`` does not need it."""
        plan = self._plan
        lane, warp_row, warp_column = self._place_in_block(thread)
        left, right = self._parts_of_warps
        instructions, columns = plan.block_steps // self._arithmetic.steps, start + left.fill.shape.words
        if plan.in_groups:
            rows = start + tirx.floordiv(warp_row, GROUP_ROWS) * (GROUP_ROWS * LINE_BYTES // 4)
            begun = multiplied_together(
                self._arithmetic, plan.block_columns, sums, self._shared, rows, columns, instructions
            )
            return sequence_of([begun, meanwhile, finished_together()])
        a, b = left.registers(), right.registers()
        statements = [meanwhile, tirx.AllocBuffer(a), tirx.AllocBuffer(b)]
        for step in range(instructions):
            statements += [
                left.loaded(a, self._shared, start, warp_row, step, lane),
                right.loaded(b, self._shared, columns, warp_column, step, lane),
                fragment_products(self._arithmetic, plan.warp_rows, plan.warp_columns, sums, a, b),
            ]
        return sequence_of(statements)

    def _place_in_block(self, thread: Any) -> tuple[Any, Any, Any]:
        """Lane, and where the warp's rows and columns begin."""
        lane, warp = tirx.floormod(thread, LANES), tirx.floordiv(thread, LANES)
        row = tirx.floormod(warp, self._warps_down) * self._plan.warp_rows
        return lane, row, tirx.floordiv(warp, self._warps_down) * self._plan.warp_columns

    # ---- operands

    @cached_property
    def _parts_of_warps(self) -> tuple[WarpPart, WarpPart]:
        plan, product = self._plan, self._product
        even = not plan.spread and is_whole_tiles(product.steps.extent, plan.splits * plan.block_steps)

        left, right = sides_of(product, self._arithmetic)
        return (
            left.part(plan.block_rows, plan.block_steps, plan.warp_rows, ends_with_tiles=even),
            right.part(plan.block_columns, plan.block_steps, plan.warp_columns, ends_with_tiles=even),
        )

    # ---- results

    def _stored(self, sums: Any, batch: Any, row: Any, column: Any, thread: Any) -> list[Any]:
        plan = self._plan
        lane, warp_row, warp_column = self._place_in_block(thread)
        mine = tirx.floordiv(thread, LANES) * plan.waiting_words

        results, tile = self._results, (plan.block_rows, plan.block_columns)

        def place(here: Any, across: Any) -> tuple[Any, Any]:
            return row + warp_row + here, column + warp_column + across

        def load(turn: int, *where: Any) -> Any:
            statement = results.loaded(turn, batch, *place(*where))
            return statement and results.inside(*place(*where), *tile, statement)

        def store(turn: int, here: Any, across: Any, total: Any) -> Any:
            where = place(here, across)
            return results.inside(*where, *tile, results.stored(batch, *where, total, turn))

        waiting = WarpSums(sums, plan.warp_rows, plan.warp_columns, results.run, lane, self._shared, mine)
        return [*results.allocated(), stored_in_runs(waiting, load, store)]


def _committed() -> Any:
    return issued("cp.async.commit_group")
