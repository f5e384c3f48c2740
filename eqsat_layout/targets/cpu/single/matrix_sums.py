"""Products with matrices whose elements are known, written out as sums.

In: a scheduled PrimFunc. Out: the same, in which a tile that holds all rows of such a matrix, and all steps, adds up
what is not multiplied by zero.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import s_tir, tirx

from eqsat_layout.passes.matrix_literals import Elements, literals_of
from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.targets.schedules.block_facts import is_true
from eqsat_layout.tir.structural import items_of, mapped_body, substitute

_MOST = 1024  # products that are written out, as straight code takes LLVM long


def write_out_combinations(func: Any) -> Any:
    """``func`` with such tiles written out; those that don't hold all rows and steps stay as they are.

    Rows that differ in signs only share the sums of what they add and of what they subtract, and so do columns: 12
    operations instead of 36 for the data of F(4, 3).
    """
    known = literals_of(func)
    if not known:
        return func

    def on_sequence(sequence: Any) -> Any:
        statements: list[Any] = []
        for statement in sequence.seq:
            written = _written_out(statements[-1], statement, known) if statements else None
            if written is not None:
                statements.pop()
            statements.append(written or statement)
        return tirx.SeqStmt(statements) if len(statements) > 1 else statements[0]

    return mapped_body(func, (tirx.SeqStmt, on_sequence))


@dataclass(frozen=True)
class _WrittenLoops:
    """Loops that are written out, one that becomes a vector, and the store inside, over the variables of loops."""

    loops: tuple[Any, ...]
    lane: Any
    store: Any

    @property
    def elements(self) -> int:
        """Iterations."""
        return math.prod(int(loop.extent) for loop in (*self.loops, self.lane))

    def points(self) -> Iterator[Mapping[Any, Any]]:
        """The values of the variables in every iteration of the loops that are written out."""
        extents = [int(loop.extent) for loop in self.loops]
        for point in itertools.product(*map(range, extents)):
            yield {loop.loop_var: loop.min + place for loop, place in zip(self.loops, point, strict=True)}


def _at(load: Any, values: Mapping[Any, Any]) -> Any:
    """``load`` for such values, in its simplest form."""
    analyzer = tvm.sym.Analyzer()
    return tirx.BufferLoad(
        load.source, [analyzer.simplify(substitute(index, values)) for index in items_of(load.indices)]
    )


def _written_loops(statement: Any) -> _WrittenLoops | None:
    loops: list[Any] = []
    lane = None
    while isinstance(statement, tirx.For):
        if statement.kind == tirx.ForKind.VECTORIZED and lane is None:
            lane = statement
        elif statement.kind == tirx.ForKind.UNROLLED or as_int(statement.extent) == 1:
            loops.append(statement)
        else:
            return None
        statement = statement.body
    products = math.prod(as_int(loop.extent) or _MOST + 1 for loop in loops)
    is_block = isinstance(statement, s_tir.SBlockRealize)
    if lane is None or as_int(lane.extent) is None or products > _MOST or not is_block:
        return None
    block = statement.block
    if not isinstance(block.body, tirx.BufferStore) or block.init is not None or not is_true(statement.predicate):
        return None
    values = zip((axis.var for axis in block.iter_vars), statement.iter_values, strict=True)
    return _WrittenLoops(tuple(loops), lane, substitute(block.body, dict(values)))


def _written_out(start: Any, update: Any, known: Sequence[tuple[Any, Elements]]) -> Any:
    """The stores that do what ``start`` and ``update`` do; ``None`` if these are no such tile."""
    first, second = _written_loops(start), _written_loops(update)
    if first is None or second is None or not first.store.buffer.same_as(second.store.buffer):
        return None
    product = _product(second.store, known)
    if product is None or not isinstance(first.store.value, tirx.FloatImm) or float(first.store.value.value):
        return None
    data, matrix, elements = product
    target = tirx.BufferLoad(second.store.buffer, list(second.store.indices))
    sums = _Sums()
    for values in second.points():
        place = [int(index) for index in _at(matrix, values).indices if isinstance(index, tirx.IntImm)]
        if len(place) < elements.ndim:
            return None
        sums.add(_at(target, values), float(elements[tuple(place)]), _at(data, values))
    made = sums.values()
    if first.elements != len(made) * int(second.lane.extent):
        return None  # others are started too
    stores = [tirx.BufferStore(target.source, value, list(target.indices)) for target, value in made]
    body = tirx.SeqStmt(stores) if len(stores) > 1 else stores[0]
    return tirx.For(second.lane.loop_var, second.lane.min, second.lane.extent, second.lane.kind, body)


def _product(store: Any, known: Sequence[tuple[Any, Elements]]) -> tuple[Any, Any, Elements] | None:
    """The two loads of ``c = c + data * matrix``, and the elements of the matrix."""
    total = store.value
    if not isinstance(total, tirx.Add) or not isinstance(total.b, tirx.Mul):
        return None
    before, factors = total.a, (total.b.a, total.b.b)
    if not all(isinstance(load, tvm.ir.TensorLoad) for load in (before, *factors)):
        return None
    if not before.source.same_as(store.buffer) or any(f.source.same_as(store.buffer) for f in factors):
        return None
    for data, matrix in (factors, factors[::-1]):
        for buffer, elements in known:
            if matrix.source.same_as(buffer):
                return data, matrix, elements
    return None


class _Sums:
    """Elements of a result, each a sum of operands times known numbers."""

    def __init__(self) -> None:
        self._targets, self._operands = _Numbers(), _Numbers()
        self._factors: dict[tuple[int, int], float] = {}

    def add(self, target: Any, factor: float, operand: Any) -> None:
        """Adds a product to the element ``target``."""
        place = self._targets.of(target), self._operands.of(operand)
        self._factors[place] = self._factors.get(place, 0.0) + factor

    def values(self) -> list[tuple[Any, Any]]:
        """Every element and its sum."""
        matrix = np.zeros((len(self._targets.loads), len(self._operands.loads)), "float32")
        for place, factor in self._factors.items():
            matrix[place] = factor
        return list(zip(self._targets.loads, rows_times(matrix, self._operands.loads), strict=True))


class _Numbers:
    """Numbers loads in the order in which they come, equal ones alike."""

    def __init__(self) -> None:
        self.loads: list[Any] = []
        self._known: dict[int, list[int]] = {}

    def of(self, load: Any) -> int:
        same = self._known.setdefault(tvm_ffi.structural_hash(load), [])
        found = next((n for n in same if tvm_ffi.structural_equal(self.loads[n], load)), None)
        if found is None:
            found = len(self.loads)
            self.loads.append(load)
            same.append(found)
        return found


def rows_times(matrix: Elements, operands: Sequence[Any]) -> list[Any]:
    """The rows of ``matrix`` times ``operands``, with a sum that several have as the same expression.

    ``operands`` may be numbers or expressions: whatever is added and multiplied by numbers.
    """
    matrix, operands = _columns_paired(matrix, list(operands))
    partners = _row_pairs(matrix)
    rows: list[Any] = [None] * len(matrix)
    for number, row in enumerate(matrix):
        other = partners.get(number)
        if rows[number] is not None:
            continue
        if other is None:
            rows[number] = _sum(row, operands)
            continue
        alike = row == matrix[other]
        added, subtracted = _sum(row * alike, operands), _sum(row * ~alike, operands)
        rows[number], rows[other] = added + subtracted, added - subtracted
    return rows


def _columns_paired(matrix: Elements, operands: list[Any]) -> tuple[Elements, list[Any]]:
    """Two operands of which rows add or subtract one and the same multiple as their sum and their difference."""
    matrix = matrix.copy()
    free = set(range(len(operands)))
    for one, other in itertools.combinations(range(len(operands)), 2):
        if {one, other} <= free and _is_pair(matrix[:, one], matrix[:, other]):
            free -= {one, other}
            alike = matrix[:, one] == matrix[:, other]
            column = matrix[:, one].copy()
            matrix[:, one], matrix[:, other] = column * alike, column * ~alike
            pair = operands[one], operands[other]
            operands[one], operands[other] = pair[0] + pair[1], pair[0] - pair[1]
    return matrix, operands


def _row_pairs(matrix: Elements) -> dict[int, int]:
    """Rows that are the sum and the difference of the same two sums, the second by the first."""
    pairs: dict[int, int] = {}
    for one, other in itertools.combinations(range(len(matrix)), 2):
        if not {one, other} & {*pairs, *pairs.values()} and _is_pair(matrix[one], matrix[other]):
            pairs[one] = other
    return pairs


def _is_pair(one: Elements, other: Elements) -> bool:
    """Equal up to signs, some of which differ; and so long that sharing saves operations."""
    alike, opposite = (one == other) & (one != 0), (one == -other) & (one != 0)
    is_equal = bool(np.all(np.abs(one) == np.abs(other)))
    return is_equal and bool(alike.any() and opposite.any()) and int(np.count_nonzero(one)) > 2


def _sum(factors: Elements, operands: Sequence[Any]) -> Any:
    """The sum of products; those with one come first, as they need no multiplication."""
    products = [(float(factor), operand) for factor, operand in zip(factors, operands, strict=True) if factor]
    total: Any = None
    for factor, operand in sorted(products, key=lambda product: (product[0] != 1, abs(product[0]) != 1)):
        if total is None:
            total = operand if factor == 1 else operand * factor
        elif abs(factor) == 1:
            total = total + operand if factor == 1 else total - operand
        else:
            total = total + operand * factor
    return operands[0] * 0.0 if total is None else total
