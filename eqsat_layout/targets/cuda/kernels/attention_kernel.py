"""Attention in one launch: scores are never in memory.

In: an attention and its tiles. Out: a PrimFunc without blocks that launches one kernel. A block has some rows and goes
over the keys, tile by tile: a warp makes the scores of its rows in registers, takes powers of them over the largest so
far ("online softmax"; Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018), and multiplies these
with the values from where they are: sums of one product lie as the next one takes its left operand (Dao,
"FlashAttention-2", 2023). When a larger score comes, what was summed is scaled. Sums of powers are those of a thread's
own columns until the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from tvm import tirx

from eqsat_layout.targets.cuda.kernels.attention_plan import AttentionTiles
from eqsat_layout.targets.cuda.kernels.extents import is_whole_tiles, product_of_extents, tiles_over
from eqsat_layout.targets.cuda.kernels.fills import Shared
from eqsat_layout.targets.cuda.kernels.fragments import COLUMNS, ROWS, WarpPart, fragment_products, place_of_sum, zeroed
from eqsat_layout.targets.cuda.kernels.results import Results
from eqsat_layout.targets.cuda.kernels.statements import (
    LANES,
    all_of,
    at,
    block_barrier,
    guarded,
    issued,
    kept,
    launched,
    local,
    loop,
    number,
    sequence_of,
)
from eqsat_layout.targets.cuda.kernels.sums_in_rows import WarpSums, stored_in_runs, waiting_words
from eqsat_layout.targets.cuda.kernels.widened import widened
from eqsat_layout.targets.cuda.launch_bounds import with_registers
from eqsat_layout.targets.schedules.accesses import as_int, quotient, remainder
from eqsat_layout.tir.structural import substitute

_FULL: Final = tirx.IntImm("uint32", 0xFFFFFFFF)
_LOWEST: Final = -3.4028234663852886e38
"""What the largest score starts from: finite, so that a difference to a score of minus infinity is one."""
_PACKED: Final = {"float16": "cvt.rn.f16x2.f32", "bfloat16": "cvt.rn.bf16x2.f32"}
"""Instructions that make a register of two floats, the second one given first."""


def attention_kernel_of(tiles: AttentionTiles) -> Any:
    """The PrimFunc, with the parameters of the attention's (its indices have 32 bits now)."""
    return _Kernel(tiles).function()


class _Kernel:
    """``largest`` and ``totals``: of the two rows of a thread, ``values``: the sums of the second product."""

    def __init__(self, tiles: AttentionTiles) -> None:
        self._tiles, self._attention = tiles, tiles.attention
        self._arithmetic = tiles.arithmetic
        self._query, self._key, self._value = tiles.parts
        self._results = Results(self._attention.values)
        self._row_tiles = tiles_over(self._attention.values.rows.extent, tiles.rows)
        self._memory = Shared.of(tiles.shared_words, self._arithmetic)
        self._shared = self._memory.words
        self._largest, self._totals = local(2, "float32", "largest"), local(2, "float32", "totals")
        self._scores = local(ROWS * tiles.plan.keys // LANES, "float32", "scores")
        self._values = local(ROWS * tiles.columns // LANES, "float32", "values")
        self._held = [self._fragment(f"query{step}") for step in range(self._steps)] if tiles.is_query_held else []

    def function(self) -> Any:
        blocks = product_of_extents((self._attention.values.batch.extent, self._row_tiles))
        func = with_registers(self._attention.values.func, self._tiles.registers)
        return func.with_body(launched((blocks,), self._tiles.threads, self._block))

    def _block(self, grid: Any, thread: Any) -> Any:
        self._lane, self._warp = tirx.floormod(thread, LANES), tirx.floordiv(thread, LANES)
        self._batch, tile = quotient(grid[0], self._row_tiles), remainder(grid[0], self._row_tiles)
        row = tile * self._tiles.rows
        self._row, self._thread = row + self._warp * ROWS, thread
        buffers = (self._largest, self._totals, self._values, *self._held)
        return sequence_of(
            [
                *self._memory.allocated(),
                *map(tirx.AllocBuffer, buffers),
                *(kept(self._largest, tirx.const(_LOWEST, "float32"), half) for half in range(2)),
                zeroed(self._totals),
                zeroed(self._values),
                *self._pipelined(row),
                *self._divided(),
                self._stored(row),
            ]
        )

    # ---- memory

    def _pipelined(self, row: Any) -> list[Any]:
        """Queries first; tiles of keys and values are filled ahead, as those of products are."""
        tiles, plan = self._tiles, self._tiles.plan
        ahead = plan.stages - 1

        def fill(tile: Any) -> Any:
            start, key = tirx.floormod(tile, plan.stages) * tiles.stage_words, tile * plan.keys
            keys = self._filled(self._key, start, key, number(0))
            return sequence_of([keys, self._filled(self._value, start + self._key.fill.shape.words, number(0), key)])

        begun = [self._filled(self._query, number(tiles.query_start), row, number(0)), _committed()]
        known = as_int(tiles.count)
        for tile in range(ahead):
            begun += [fill(number(tile)) if known is None or tile < known else None, _committed()]
        if self._held:
            begun += [issued("cp.async.wait_group", number(ahead)), block_barrier()]
            begun += [self._loaded_query(one, step) for step, one in enumerate(self._held)]

        def turn(tile: Any) -> Any:
            start = tirx.floormod(tile, plan.stages) * tiles.stage_words
            arrived = issued("cp.async.wait_group", number(ahead - 1))
            following = guarded(tile + ahead < tiles.count, fill(tile + ahead))
            body = self._turn(start, tile * plan.keys)
            return sequence_of([arrived, block_barrier(), following, _committed(), body])

        return [*begun, loop(tiles.count, turn), issued("cp.async.wait_group", number(0)), block_barrier()]

    def _filled(self, part: WarpPart, start: Any, across: Any, step: Any) -> Any:
        statement = part.filled(self._memory, start, across, step, self._thread, self._tiles.threads)
        return substitute(statement, self._attention.values.batch.at(self._batch))

    def _loaded_query(self, registers: Any, step: int) -> Any:
        start = number(self._tiles.query_start)
        return self._query.loaded(registers, self._shared, start, self._warp * ROWS, step, self._lane)

    # ---- a tile

    def _turn(self, start: Any, key: Any) -> Any:
        fresh, scale = local(2, "float32", "fresh"), local(2, "float32", "scale")
        statements = [tirx.AllocBuffer(one) for one in (self._scores, fresh, scale)]
        statements += [zeroed(self._scores), *self._multiplied_scores(start), *self._scored(key)]
        for half in range(2):
            own = self._of_half(self._scores, half)
            statements.append(kept(fresh, at(self._largest, half), half))
            statements += [kept(fresh, tirx.max(at(fresh, half), at(self._scores, one)), half) for one in own]
            statements += self._over_row(fresh, half, tirx.max)
            statements.append(kept(scale, tirx.exp(at(self._largest, half) - at(fresh, half)), half))
            statements.append(kept(self._largest, at(fresh, half), half))
            statements.append(kept(self._totals, at(self._totals, half) * at(scale, half), half))
            for one in own:
                power = tirx.exp(at(self._scores, one) - at(fresh, half))
                statements += [kept(self._scores, power, one)]
                statements += [kept(self._totals, at(self._totals, half) + at(self._scores, one), half)]
            for one in self._of_half(self._values, half):
                statements.append(kept(self._values, at(self._values, one) * at(scale, half), one))
        return sequence_of([*statements, *self._multiplied_values(start)])

    def _multiplied_scores(self, start: Any) -> list[Any]:
        keys = self._tiles.plan.keys
        query, registers = self._fragment("query"), self._key.registers()
        statements = [] if self._held else [tirx.AllocBuffer(query)]
        statements.append(tirx.AllocBuffer(registers))
        for step in range(self._steps):
            left = self._held[step] if self._held else query
            statements += [
                None if self._held else self._loaded_query(query, step),
                self._key.loaded(registers, self._shared, start, number(0), step, self._lane),
                fragment_products(self._arithmetic, ROWS, keys, self._scores, left, registers),
            ]
        return statements

    def _scored(self, key: Any) -> list[Any]:
        """The network's scores of sums; minus infinity where there is no key."""
        return [kept(self._scores, self._score(key, index), index) for index in range(int(self._scores.ty.shape[0]))]

    def _score(self, key: Any, index: int) -> Any:
        attention = self._attention
        values = attention.values
        here, across = place_of_sum(self._lane, index // 2 % 2)
        row, key = self._row + here, key + index // 4 * COLUMNS + across + index % 2
        places = {**attention.fixed, **values.batch.at(self._batch), **values.rows.at(row), **values.steps.at(key)}
        placed = substitute(attention.score, places)
        score = widened(placed, attention.sums, at(self._scores, index))
        inside = all_of(
            [
                None if is_whole_tiles(values.steps.extent, self._tiles.plan.keys) else key < values.steps.extent,
                None if is_whole_tiles(values.rows.extent, self._tiles.rows) else row < values.rows.extent,
            ]
        )
        return score if inside is None else tirx.if_then_else(inside, score, tirx.const(-math.inf, "float32"))

    def _multiplied_values(self, start: Any) -> list[Any]:
        """A step's powers as a left operand, in the registers that they are in."""
        left, registers = self._fragment("powers"), self._value.registers()
        statements = [tirx.AllocBuffer(left), tirx.AllocBuffer(registers)]
        begin = start + self._key.fill.shape.words
        for step in range(self._tiles.plan.keys // self._arithmetic.steps):
            statements += [
                *self._as_left(left, step),
                self._value.loaded(registers, self._shared, begin, number(0), step, self._lane),
                fragment_products(self._arithmetic, ROWS, self._tiles.columns, self._values, left, registers),
            ]
        return statements

    def _as_left(self, left: Any, step: int) -> list[Any]:
        packed = _PACKED.get(self._arithmetic.operand)
        if packed is None:  # by pairs of steps, see Part.loaded
            order = (0, 2, 1, 3)
            return [
                kept(left, tirx.reinterpret("uint32", at(self._scores, step * 4 + one)), index)
                for index, one in enumerate(order)
            ]
        first = step * 8
        return [
            issued(
                packed,
                at(left, index),
                at(self._scores, first + index * 2 + 1),
                at(self._scores, first + index * 2),
            )
            for index in range(4)
        ]

    # ---- results

    def _divided(self) -> list[Any]:
        statements: list[Any] = []
        for half in range(2):
            statements += self._over_row(self._totals, half, lambda a, b: a + b)
            total = at(self._totals, half)
            factor = tirx.const(1.0, "float32") / total
            keys = self._attention.values.steps.extent
            if self._attention.is_safe:  # all powers of the row are zero
                factor = tirx.if_then_else(total.equal(tirx.const(0.0, "float32")), total, factor)
            elif as_int(keys) is None:  # there may be no keys
                factor = tirx.if_then_else(keys.equal(number(0)), total, factor)
            statements.append(kept(self._totals, factor, half))
            for one in self._of_half(self._values, half):
                statements.append(kept(self._values, at(self._values, one) * at(self._totals, half), one))
        return statements

    def _stored(self, row: Any) -> Any:
        tiles = self._tiles
        mine = self._warp * waiting_words(tiles.columns)

        def store(_: int, here: Any, across: Any, total: Any) -> Any:
            body = self._results.stored(self._batch, self._row + here, across, total)
            return self._results.inside(self._row + here, across, tiles.rows, tiles.columns, body)

        def load(*_: Any) -> None:
            """What follows is stored as it comes."""

        sums = WarpSums(self._values, ROWS, tiles.columns, self._results.run, self._lane, self._shared, mine)
        return stored_in_runs(sums, load, store)

    # ---- registers

    @property
    def _steps(self) -> int:
        """Instructions along the head."""
        return self._tiles.head // self._arithmetic.steps

    def _fragment(self, name: str) -> Any:
        """Registers for a left operand of one instruction."""
        return local(4, "uint32", name)

    def _of_half(self, sums: Any, half: int) -> list[int]:
        """The registers that are of the first row of a thread, or of the second."""
        return [index for index in range(int(sums.ty.shape[0])) if index // 2 % 2 == half]

    def _over_row(self, register: Any, half: int, combine: Callable[[Any, Any], Any]) -> list[Any]:
        """A reduction over the four threads that hold a row."""
        lanes = number(LANES)

        def other(offset: int) -> Any:
            return tirx.op.tvm_warp_shuffle_xor(_FULL, at(register, half), number(offset), lanes, lanes)

        return [kept(register, combine(at(register, half), other(offset)), half) for offset in (1, 2)]


def _committed() -> Any:
    return issued("cp.async.commit_group")
