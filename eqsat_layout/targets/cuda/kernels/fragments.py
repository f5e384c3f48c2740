"""What a warp multiplies: fragments of both operands from shared memory, and the instructions between them.

In: tiles in shared memory, and where a warp's part of them begins. Out: statements for one step of an instruction. The
registers of a thread are those that PTX says for m16n8 instructions: of sums, row ``lane / 4`` and columns
``2 * (lane % 4)`` and the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx

from eqsat_layout.targets.cuda.kernels.arithmetics import Arithmetic
from eqsat_layout.targets.cuda.kernels.fills import Fill, Shared
from eqsat_layout.targets.cuda.kernels.statements import address, at, issued, kept, local, sequence_of, unrolled

ROWS: Final = 16
"""Of an instruction; columns are loaded by as many too, for two instructions."""
COLUMNS: Final = 8
_READ: Final = tirx.const(0xFFFFE000, "uint32")
"""The bits of a float that units for tensorfloat32 read."""
_HALF: Final = tirx.const(0x1000, "uint32")
"""Of the last one of these."""
_LOAD: Final = "ldmatrix.sync.aligned.m8n8.x4{}.shared.b16"


@dataclass(frozen=True)
class WarpPart:
    """A warp's part of one operand: ``extent`` rows or columns of the product from ``first`` on.

    ``is_left``: the left operand. ``along_steps``: units of shared memory lie along the steps.
    """

    fill: Fill
    arithmetic: Arithmetic
    extent: int
    is_left: bool
    along_steps: bool

    def registers(self) -> Any:
        return local(self.extent // ROWS * 4, "uint32", "left" if self.is_left else "right")

    def filled(self, memory: Shared, start: Any, across: Any, step: Any, thread: Any, threads: int) -> Any:
        """The tile that begins at this row or column and step, to word ``start`` of shared memory."""
        outer, inner = (across, step) if self.along_steps else (step, across)
        return self.fill.statement(memory, start, outer, inner, thread, threads)

    def loaded(self, registers: Any, shared: Any, start: Any, first: Any, step: int, lane: Any) -> Any:
        """The fragments of one instruction's steps, for all rows or columns.

        Sums that are an instruction's left operand lie in other registers than it asks for, if elements have 4 bytes:
        a thread has steps 0 and 1, its neighbour 2 and 3, where the instruction takes 0 and 4, 1 and 5. As steps may be
        added up in any order, the right operand's are taken in that one (``by_word`` is 2).
        """
        load = self._by_matrix if self._in_matrices else self._by_word
        return sequence_of(
            load(registers, shared, start, first + tile * ROWS, step, lane, tile * 4)
            for tile in range(self.extent // ROWS)
        )

    @property
    def _in_matrices(self) -> bool:
        """``ldmatrix`` exchanges elements of 2 bytes only."""
        return self.along_steps or self.arithmetic.operand_bytes == 2

    def _by_matrix(
        self, registers: Any, shared: Any, start: Any, first: Any, step: int, lane: Any, at_register: int
    ) -> Any:
        """Four matrices of 8 x 16 bytes; each lane says where one row of one of them is."""
        inside, second, third = (tirx.floormod(lane, 8), tirx.floormod(tirx.floordiv(lane, 8), 2), lane // 16)
        # registers of the left operand go down the rows first, those of the right one along the steps
        down, along = (second, third) if self.is_left else (third, second)
        if self.along_steps:
            row, unit = first + down * 8 + inside, step * 2 + along
        else:
            row, unit = step * ROWS + along * 8 + inside, tirx.floordiv(first, 8) + down
        exchange = self.fill.shape.exchange(inside)
        source = address(shared, start + self.fill.shape.word(row, unit, exchange))
        targets = [at(registers, at_register + index) for index in range(4)]
        return issued(_LOAD.format("" if self.along_steps else ".trans"), *targets, source)

    def _by_word(
        self, registers: Any, shared: Any, start: Any, first: Any, step: int, lane: Any, at_register: int
    ) -> Any:
        """Words one by one, where units lie across the steps."""
        group, place = tirx.floordiv(lane, 4), tirx.floormod(lane, 4)
        apart = self.fill.by_word

        def word(index: int) -> Any:
            down, along = (index % 2, index // 2) if self.is_left else (index // 2, index % 2)
            row, column = step * 8 + place * apart + along * (4 if apart == 1 else 1), first + down * 8 + group
            exchange = self.fill.shape.exchange(place * apart, by_word=apart)
            where = start + self.fill.shape.word(row, tirx.floordiv(column, 4), exchange) + tirx.floormod(group, 4)
            return kept(registers, tirx.reinterpret("uint32", at(shared, where)), at_register + index)

        return sequence_of(word(index) for index in range(4))


def fragment_products(arithmetic: Arithmetic, rows: int, columns: int, sums: Any, a: Any, b: Any) -> Any:
    """All products of a warp's fragments, of so many rows and columns, added to its sums."""
    if arithmetic.products == 1:
        rounded = [_rounded(one) for one in (a, b)] if arithmetic.operand == "float32" else []
        return sequence_of([*rounded, _instructions(arithmetic, rows, columns, sums, [(a, b)])])
    (low_a, cut_a), (low_b, cut_b) = (_cut(one) for one in (a, b))
    pairs = [(low_a, b), (a, low_b), (a, b)]
    return sequence_of([cut_a, cut_b, _instructions(arithmetic, rows, columns, sums, pairs)])


def _instructions(arithmetic: Arithmetic, rows: int, columns: int, sums: Any, pairs: Sequence[tuple[Any, Any]]) -> Any:
    rows, columns = rows // ROWS, columns // COLUMNS

    def tile(row: Any, turn: Any) -> Any:
        is_odd = tirx.floormod(row, 2)
        column = turn + is_odd * (columns - 1 - 2 * turn)  # what was used last is used again first
        own = [at(sums, (row * columns + column) * 4 + index) for index in range(4)]
        return sequence_of(
            issued(
                arithmetic.instruction,
                *own,
                *(at(a, row * 4 + index) for index in range(4)),
                *(at(b, column * 2 + index) for index in range(2)),
                *own,
            )
            for a, b in pairs
        )

    return unrolled(rows, lambda row: unrolled(columns, lambda turn: tile(row, turn)))


def _rounded(registers: Any) -> Any:
    """To tensorfloat32, to nearest: the unit itself would cut."""

    def rounded(index: Any) -> Any:
        return issued("cvt.rna.tf32.f32", at(registers, index), tirx.reinterpret("float32", at(registers, index)))

    return unrolled(int(registers.ty.shape[0]), rounded)


def _cut(registers: Any) -> tuple[Any, Any]:
    """Registers for what is left of floats when they are rounded to tensorfloat32, and the statement that does both.

    The unit cuts what is left once more: that has any sign, so sums do not drift. ``cvt.rna``, which spares what is no
    number, takes three instructions for each: here such a one may become zero, what is left of it does not.
    """
    size = int(registers.ty.shape[0])
    low = local(size, "uint32", f"{registers.name}_low")
    whole = local(1, "float32", f"{registers.name}_whole")

    def cut(index: Any) -> Any:
        high = at(registers, index)
        rest = at(whole, 0) - tirx.reinterpret("float32", high)
        return sequence_of(
            [
                kept(whole, tirx.reinterpret("float32", high), 0),
                kept(registers, tirx.bitwise_and(high + _HALF, _READ), index),
                kept(low, tirx.reinterpret("uint32", rest), index),
            ]
        )

    return low, sequence_of([tirx.AllocBuffer(low), tirx.AllocBuffer(whole), unrolled(size, cut)])


def zeroed(sums: Any) -> Any:
    zero = tirx.const(0, str(sums.ty.dtype))
    return unrolled(int(sums.ty.shape[0]), lambda index: kept(sums, zero, index))


def place_of_sum(lane: Any, index: int) -> tuple[Any, Any]:
    """Row and column of the sums that a register pair begins at."""
    return tirx.floordiv(lane, 4) + index * 8, tirx.floormod(lane, 4) * 2
