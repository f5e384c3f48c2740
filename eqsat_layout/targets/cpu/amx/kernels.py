"""Products of float32 matrices on a matrix unit that multiplies bfloat16.

In: a product, the elementwise stage that follows, if any, and a plan of tiles. Out: a scheduled PrimFunc.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.ir import Var

from eqsat_layout.targets.cpu.amx import instructions as matrix_unit
from eqsat_layout.targets.cpu.amx.bfloat16_parts import PAIRS, PARTS, part
from eqsat_layout.targets.cpu.amx.products import MatrixProduct
from eqsat_layout.targets.cpu.amx.tile_plan import BLOCK_ROWS, BLOCK_STEPS, LANES, TILES, TilePlan, blocks_of, panels_of
from eqsat_layout.targets.cpu.single.prefetch import prefetch
from eqsat_layout.targets.schedules.accesses import StageAccess
from eqsat_layout.targets.schedules.stages import Stage
from eqsat_layout.tir.blocks import store_of
from eqsat_layout.tir.structural import structural_map, substitute

_RUN = 128  # steps along memory, from which on rows are read one by one, as prefetch follows them


def matrix_kernel(product: MatrixProduct, epilogue: Stage | None, sch: Any, plan: TilePlan) -> Any:
    """The kernel that does what the function of ``sch`` does.

    Cores take chunks of rows, or of columns. Each cuts its rows into bfloat16 parts that stay in its L2, goes over all
    panels of columns with them, and stores what the epilogue makes of each block. While the unit works on one panel of
    the weights, the vector units cut the next: weights come from memory as they are, for in parts they are half as
    large again, and may be anything.
    """
    return _Kernel(product, epilogue, plan, sch).function(sch.mod["main"])


class _Kernel:
    """One kernel while it is put together."""

    def __init__(self, product: MatrixProduct, epilogue: Stage | None, plan: TilePlan, sch: Any) -> None:
        self.product, self.plan = product, plan
        self._stage, self._epilogue = product.stage, epilogue
        self._store = store_of(sch.get((epilogue or product.stage).block))
        self._dtype = _dtype(product)
        self._blocks = blocks_of(product) // plan.pieces
        self._panels = panels_of(product) // plan.groups
        self._units = TILES * self._blocks * BLOCK_STEPS // 2  # of a panel of the weights, each cut at once
        self._pairs = math.ceil(plan.rows / BLOCK_ROWS)
        self._tiles = product.columns.vectors(LANES)
        self._is_uneven = self._tiles % TILES != 0
        held = (self._pairs, self._blocks, PARTS, TILES, matrix_unit.ROWS, BLOCK_STEPS)
        waiting = self._pairs * self._panels if plan.pieces > 1 else 1
        panel = (2, self._blocks, PARTS, TILES, BLOCK_STEPS // 2, matrix_unit.COLUMNS)
        self._parts = tirx.decl_buffer(held, "uint16", "parts")
        self._panel = tirx.decl_buffer(panel, "uint32", "panel")  # this and the next; two steps each
        self._sums = tirx.decl_buffer(
            (waiting, TILES, TILES, matrix_unit.ROWS, matrix_unit.COLUMNS),
            "float32",
            "sums",
            scope="global" if waiting > 1 else "local",
        )
        self._vector = tirx.decl_buffer((2, LANES), "float32", "vector", scope="local")
        self._places = tirx.decl_buffer((len(product.rows.axes), plan.rows), "int32", "places", scope="local")
        self._configuration = tirx.decl_buffer(*matrix_unit.CONFIGURATION, "configuration", scope="local")

    def function(self, func: Any) -> Any:
        """The PrimFunc, with the parameters of ``func``."""
        tasks = self.product.batch.extent * self.plan.chunks * self.plan.groups
        body = _sequence([matrix_unit.permitted(), self._loop(tasks, self._task, tirx.ForKind.PARALLEL)])
        root = s_tir.SBlockRealize([], True, s_tir.SBlock([], [], [], "root", body))
        return tirx.PrimFunc(func.params, root, ret_type=func.ret_type, attrs=func.attrs)

    def _task(self, task: Any) -> Any:
        plan = self.plan
        chunk, rest = tirx.floormod(task, plan.chunks), tirx.floordiv(task, plan.chunks)  # one after the other use
        group, batch = tirx.floormod(rest, plan.groups), tirx.floordiv(rest, plan.groups)  # the same weights
        first = chunk * plan.rows
        count = tirx.min(self._number(plan.rows), self._number(self.product.rows.extent) - first)

        def piece(number: Any) -> Any:
            return self._piece(number, batch, group * self._panels, first, count)

        statements = [
            *matrix_unit.configured(self._configuration),
            *(store for buffer in (self._parts, self._panel, self._sums) for store in _kept_whole(buffer)),
            self._tabulated(first),
            self._loop(plan.pieces, piece),
            matrix_unit.released(),
        ]
        buffers = [self._configuration, self._places, self._parts, self._panel, self._sums, self._vector]
        block = s_tir.SBlock([], [], [], "task", _sequence(statements), alloc_buffers=buffers)
        return s_tir.SBlockRealize([], True, block)

    def _tabulated(self, first: Any) -> Any:
        """The places of rows along their axes, the last row again for those that are too many."""
        rows = self.product.rows
        last = self._number(rows.extent - 1)

        def row(number: Any) -> Any:
            places = rows.at(tirx.min(first + number, last))
            stores = [
                tirx.BufferStore(self._places, places[axis.var].astype("int32"), [self._number(index), number])
                for index, axis in enumerate(rows.axes)
            ]
            return _sequence(stores)

        return self._loop(self.plan.rows, row)

    def _piece(self, piece: Any, batch: Any, panel: Any, first: Any, count: Any) -> Any:
        """All products of a piece of the steps."""
        pairs = tirx.floordiv(count + (BLOCK_ROWS - 1), BLOCK_ROWS)

        def parts(pair: Any) -> Any:
            def cut(block: Any, row: Any) -> Any:
                return self._cut(pair, block, row, piece, batch)

            if (self.product.steps.axes[-1].extent or 0) >= _RUN:
                return self._loop(BLOCK_ROWS, lambda row: self._loop(self._blocks, lambda block: cut(block, row)))
            return self._loop(self._blocks, lambda block: self._loop(BLOCK_ROWS, lambda row: cut(block, row)))

        def pair_of(number: Any, pair: Any) -> Any:
            left = count - pair * BLOCK_ROWS
            whole, half = (self._multiplied(pair, piece, batch, panel, number, tiles) for tiles in (TILES, 1))
            multiplied = tirx.IfThenElse(left > matrix_unit.ROWS, whole, half)
            results = self._results(pair, batch, panel + number, number, tirx.min(left, self._number(BLOCK_ROWS)))
            if self.plan.pieces > 1:
                results = tirx.IfThenElse(piece == self.plan.pieces - 1, results, None)
            return _sequence([multiplied, results])

        def panel_of(number: Any) -> Any:
            statements = [self._loop(pairs, lambda pair: pair_of(number, pair))]
            if self.product.rows.extent % self.plan.rows:  # the last chunk may have fewer, who left their shares
                missing = self._number(self._pairs) - pairs
                statements.append(self._loop(missing, lambda index: share_of(number, pairs + index)))
            return _sequence(statements)

        def share_of(number: Any, pair: Any) -> Any:
            return self._loop(self._blocks, lambda block: self._cut_following(pair, block, piece, batch, number, panel))

        def of_first(unit: Any) -> Any:
            return self._cut_weights(unit, piece, batch, self._number(0), panel)

        products = self._loop(self._panels, panel_of)
        return _sequence([self._loop(self._units, of_first), self._loop(pairs, parts), products])

    def _cut(self, pair: Any, block: Any, row: Any, piece: Any, batch: Any) -> Any:
        """The parts of one row of a block of the data."""
        product = self.product
        here = tirx.min(pair * BLOCK_ROWS + row, self._number(self.plan.rows - 1))
        places = product.fixed_places | product.batch.at(batch) | self._row_places(here)
        tile, line = tirx.floordiv(row, matrix_unit.ROWS), tirx.floormod(row, matrix_unit.ROWS)

        def half(which: int) -> list[Any]:
            vector = (piece * self._blocks + block) * (BLOCK_STEPS // LANES) + which

            def value(lane: Any) -> Any:
                found = substitute(product.data.value, places | product.steps.at_vector(vector, lane, LANES))
                found = self._or_zero(vector, found)
                is_new = product.steps.is_new(vector, lane, LANES)
                if is_new is not None:
                    found = tirx.Select(is_new, found, tirx.const(0.0, "float32"))
                return tirx.BufferStore(self._vector, found, [0, lane])

            def stored(number: int) -> Callable[[Any], Any]:
                def store(lane: Any) -> Any:
                    bits = part(tirx.BufferLoad(self._vector, [0, lane]), number).astype("uint16")
                    place = [pair, block, self._number(number), tile, line, lane + which * LANES]
                    return tirx.BufferStore(self._parts, bits, place)

                return store

            return [self._vectors(value), *(self._vectors(stored(number)) for number in range(PARTS))]

        return _sequence([statement for which in range(BLOCK_STEPS // LANES) for statement in half(which)])

    def _cut_weights(self, unit: Any, piece: Any, batch: Any, number: Any, panel: Any) -> Any:
        """The parts of two steps of a tile of the weights; they are counted as they lie in memory."""
        pairs = LANES // 2
        tile, rest = tirx.floordiv(unit, self._units // TILES), tirx.floormod(unit, self._units // TILES)
        block, pair = tirx.floordiv(rest, BLOCK_STEPS // 2), tirx.floormod(rest, BLOCK_STEPS // 2)
        vector = (piece * self._blocks + block) * (BLOCK_STEPS // LANES) + tirx.floordiv(pair, pairs)
        step = tirx.floormod(pair, pairs) * 2

        def value(which: int) -> Callable[[Any], Any]:
            def store(lane: Any) -> Any:
                found = self._weights_at(batch, (panel + number) * TILES + tile, lane, vector, step + which)
                found = self._or_zero(vector, found)
                return tirx.BufferStore(self._vector, found, [which, lane])

            return store

        def stored(index: int) -> Callable[[Any], Any]:
            def store(lane: Any) -> Any:
                low, high = (part(tirx.BufferLoad(self._vector, [which, lane]), index) for which in range(2))
                both = low | (high << tirx.IntImm("uint32", 16))
                place = [tirx.floormod(number, 2), block, self._number(index), tile, pair, lane]
                return tirx.BufferStore(self._panel, both, place)

            return store

        statements = [*(self._vectors(value(which)) for which in range(2))]
        return _sequence([*statements, *(self._vectors(stored(index)) for index in range(PARTS))])

    def _cut_following(self, pair: Any, block: Any, piece: Any, batch: Any, number: Any, panel: Any) -> Any:
        """The share of one step of one pair of tiles of rows in cutting the panel after this one."""
        each = math.ceil(self._units / (self._pairs * self._blocks))
        following = tirx.min(number + 1, self._number(self._panels - 1))

        def unit(index: Any) -> Any:
            share = tirx.min((pair * self._blocks + block) * each + index, self._number(self._units - 1))
            return self._cut_weights(share, piece, batch, following, panel)

        return self._loop(each, unit, tirx.ForKind.UNROLLED)

    def _weights_at(self, batch: Any, tile: Any, lane: Any, vector: Any, step: Any) -> Any:
        """The weight of a column of a tile, the last one again for those that are too many, and of a step."""
        product = self.product
        if self._is_uneven:
            tile = tirx.min(tile, self._number(self._tiles - 1))
        places = product.fixed_places | product.batch.at(batch) | product.columns.at_vector(tile, lane, LANES)
        return substitute(product.weights.value, places | product.steps.at_vector(vector, step, LANES))

    def _or_zero(self, vector: Any, value: Any) -> Any:
        """What data or weights are at the steps of a vector; zero for the one that only fills up a block."""
        count = self.product.steps.vectors(LANES)
        return tirx.if_then_else(vector < count, value, tirx.const(0.0, "float32")) if count % 2 else value

    def _row_places(self, row: Any) -> dict[Any, Any]:
        """The place of a row of the chunk along the axes of rows."""
        return {
            axis.var: tirx.BufferLoad(self._places, [self._number(index), row]).astype(self._dtype)
            for index, axis in enumerate(self.product.rows.axes)
        }

    def _multiplied(self, pair: Any, piece: Any, batch: Any, panel: Any, number: Any, tiles: int) -> Any:
        """The products of ``tiles`` tiles of rows with two of columns, for all steps of a piece."""
        sums = [(row, column) for row in range(tiles) for column in range(TILES)]
        waiting = self._waiting(pair, number)

        def place(row: int, column: int) -> list[Any]:
            return [waiting, *map(self._number, (row, column, 0, 0))]

        def tile(row: int, column: int) -> int:
            return row * TILES + column

        start: Any = _sequence([matrix_unit.cleared(tile(*at)) for at in sums])
        if self.plan.pieces > 1:
            resumed = _sequence([matrix_unit.loaded(tile(*at), self._sums, place(*at)) for at in sums])
            start = tirx.IfThenElse(piece == 0, start, resumed)

        def step(block: Any) -> Any:
            statements = [self._cut_following(pair, block, piece, batch, number, panel)] if self._panels > 1 else []
            statements += self._prefetched(pair, batch, panel + number, block)
            held: tuple[int | None, int | None] = (None, None)
            for data, weights in PAIRS:
                if data != held[0]:
                    statements += [
                        matrix_unit.loaded(4 + row, self._parts, [pair, block, *map(self._number, (data, row, 0, 0))])
                        for row in range(tiles)
                    ]
                if weights != held[1]:
                    statements += [
                        matrix_unit.loaded(
                            6 + column,
                            self._panel,
                            [tirx.floormod(number, 2), block, *map(self._number, (weights, column, 0, 0))],
                        )
                        for column in range(TILES)
                    ]
                held = (data, weights)
                statements += [matrix_unit.multiplied(tile(row, column), 4 + row, 6 + column) for row, column in sums]
            return _sequence(statements)

        stored = [matrix_unit.stored(tile(*at), self._sums, place(*at)) for at in sums]
        return _sequence([start, self._loop(self._blocks, step), *stored])

    def _prefetched(self, pair: Any, batch: Any, panel: Any, block: Any) -> list[Any]:
        """This step's share of what the epilogue will read beside the sums."""
        lines = BLOCK_ROWS * TILES
        each = math.ceil(lines / self._blocks)

        def line(index: Any) -> Any:
            place = tirx.min(block * each + index, self._number(lines - 1))
            row, column = tirx.floordiv(place, TILES), tirx.floormod(place, TILES)
            row = tirx.min(pair * BLOCK_ROWS + row, self._number(self.plan.rows - 1))
            column = tirx.min(panel * TILES + column, self._number(self._tiles - 1))
            places = self._own_places(self._result_places(batch, row, column, self._number(0)))
            return _sequence(
                [
                    prefetch(load.buffer[tuple(substitute(index, places) for index in load.indices)])
                    for load in self._read_with_results
                ]
            )

        return [self._loop(each, line, tirx.ForKind.UNROLLED)] if self._read_with_results else []

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

    def _results(self, pair: Any, batch: Any, panel: Any, number: Any, count: Any) -> Any:
        """What the epilogue makes of a block's sums, or the sums themselves."""
        waiting = self._waiting(pair, number)

        def row(line: Any) -> Any:
            tile, place = tirx.floordiv(line, matrix_unit.ROWS), tirx.floormod(line, matrix_unit.ROWS)

            def vector(column: Any) -> Any:
                def store(lane: Any) -> Any:
                    places = self._result_places(batch, pair * BLOCK_ROWS + line, panel * TILES + column, lane)
                    return self._stored(places, tirx.BufferLoad(self._sums, [waiting, tile, column, place, lane]))

                return self._vectors(store)

            if self._is_uneven:
                left = self._number(self._tiles) - panel * TILES
                return self._loop(tirx.min(left, self._number(TILES)), vector)
            return _sequence([vector(self._number(column)) for column in range(TILES)])

        return self._loop(count, row)

    def _result_places(self, batch: Any, row: Any, tile: Any, lane: Any) -> dict[Any, Any]:
        """The place of an element of the result along the axes of the stage."""
        product = self.product
        places = product.fixed_places | product.batch.at(batch) | self._row_places(row)
        return places | product.columns.at_vector(tile, lane, LANES)

    def _waiting(self, pair: Any, number: Any) -> Any:
        """Where the sums of a block are."""
        return number * self._pairs + pair if self.plan.pieces > 1 else self._number(0)

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

    def _vectors(self, body: Callable[[Any], Any]) -> Any:
        return self._loop(LANES, body, tirx.ForKind.VECTORIZED)

    def _loop(self, extent: Any, body: Callable[[Any], Any], kind: Any = tirx.ForKind.SERIAL) -> Any:
        var = Var("i", self._dtype)
        extent = self._number(extent) if isinstance(extent, int) else extent
        return tirx.For(var, self._number(0), extent, kind, body(var))

    def _number(self, value: int) -> Any:
        return tirx.IntImm(self._dtype, value)


def _dtype(product: MatrixProduct) -> str:
    return str(product.stage.axes[0].var.ty.dtype)


def _kept_whole(buffer: Any) -> list[Any]:
    """Stores without which TVM would cut the buffer to what it sees of it, which is not what tiles load and store.

    It would also allocate it anew in the innermost loop in which all of that is.
    """
    zero = tirx.const(0, str(buffer.dtype))
    ends = ([0] * len(buffer.shape), [int(extent) - 1 for extent in buffer.shape])
    return [tirx.BufferStore(buffer, zero, [tirx.IntImm("int32", place) for place in end]) for end in ends]


def _sequence(statements: Sequence[Any]) -> Any:
    return tirx.SeqStmt(list(statements)) if len(statements) > 1 else statements[0]
