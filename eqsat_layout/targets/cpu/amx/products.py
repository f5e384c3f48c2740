"""Products of matrices in blocks of any shape.

In: a stage of an unscheduled PrimFunc. Out: its axes as those of a product, if it is one: of a batch, of rows (of the
data), of columns (of the weights), and of steps (of the reduction); and both factors as expressions over them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tvm
from tvm import tirx

from eqsat_layout.targets.cpu.amx.axes import LANES, OverlappingAxes
from eqsat_layout.targets.cpu.amx.image import Image
from eqsat_layout.targets.cpu.amx.instructions import ROWS
from eqsat_layout.targets.cpu.amx.numbers import ByteWords, Floats, TileNumbers
from eqsat_layout.targets.schedules.accesses import StageAccess, StageAxis
from eqsat_layout.targets.schedules.stages import Stage
from eqsat_layout.tir.structural import nodes_of


@dataclass(frozen=True)
class Factor:
    """An expression with one load in it."""

    value: Any
    load: StageAccess

    def uses(self, axis: StageAxis) -> bool:
        """Its value depends on the axis."""
        return any(axis.var.same_as(var) for var in tirx.analysis.undefined_vars(self.value))


@dataclass(frozen=True)
class MatrixProduct:
    """``result[batch, rows, columns] = sum over steps of data[batch, rows, steps] * weights[batch, steps, columns]``.

    ``fixed``: axes of one element. ``image``: rows are its pixels.
    """

    stage: Stage
    batch: OverlappingAxes
    rows: OverlappingAxes
    columns: OverlappingAxes
    steps: OverlappingAxes
    fixed: tuple[StageAxis, ...]
    data: Factor
    weights: Factor
    numbers: TileNumbers
    image: Image | None = None

    def shared_places(self, batch: Any) -> dict[Any, Any]:
        """The places that all rows, columns and steps of an element of the batch share."""
        return {axis.var: tirx.IntImm(str(axis.var.ty.dtype), 0) for axis in self.fixed} | self.batch.at(batch)

    @cached_property
    def weight_stride(self) -> int | None:
        """Elements from one row of a tile of weights in memory to the next; ``None`` where no such tiles lie there."""
        weights, numbers = self.weights, self.numbers
        is_same = numbers.dtype == numbers.part_dtype and isinstance(weights.value, tvm.ir.TensorLoad)
        if not is_same or self.steps.lanes != LANES or weights.load.stride(self.columns.axes[-1].var) != 1:
            return None
        return weights.load.stride(self.steps.axes[-1].var)

    @cached_property
    def data_stride(self) -> int | None:
        """Elements from one row of data in memory to the next; ``None`` where no tiles of such rows lie there."""
        data, numbers, axes = self.data, self.numbers, self.rows.axes
        is_same = numbers.dtype == numbers.part_dtype and isinstance(data.value, tvm.ir.TensorLoad)
        if (
            not is_same
            or self.image is not None
            or self.rows.extent < ROWS
            or (self.steps.axes[-1].extent or 0) % LANES
        ):
            return None
        strides = [data.load.stride(axis.var) for axis in axes]
        inner = [math.prod(axis.extent or 1 for axis in axes[number + 1 :]) for number in range(len(axes))]
        has_period = any(data.load.period(axis.var) for axis in axes)
        return strides[-1] if not has_period and strides == [(strides[-1] or 0) * size for size in inner] else None

    def or_zero(self, run: Any, value: Any) -> Any:
        """What data or weights are at the steps of a run; zero for one that only fills up a block."""
        each = self.numbers.vectors * self.steps.runs_of_vector
        return tirx.if_then_else(run < self.steps.runs, value, self.zero) if self.steps.runs % each else value

    @property
    def zero(self) -> Any:
        """Of the numbers."""
        return tirx.const(0, self.numbers.dtype)


def matrix_product(sch: Any, stage: Stage, signed: str | None = None) -> MatrixProduct | None:
    """What ``stage`` is as a product of matrices of float32, or of words of bytes; ``None`` if it is none.

    ``signed``: the name of the buffer whose words are of signed bytes, where these are words. Columns lie in vectors
    along the last axis of the result, and steps do so along some axis of the data. Convolutions are products too, whose
    rows are the places of a window.
    """
    if not (stage.simple and stage.is_plain and stage.is_reduction) or len(stage.loads) != 2 or stage.matrix:
        return None
    if len({str(axis.var.ty.dtype) for axis in stage.axes}) > 1 or any(axis.extent is None for axis in stage.axes):
        return None
    if {_dtype(access) for access in (stage.write, *stage.loads)} != {_FLOAT if signed is None else _WORD}:
        return None
    last = next((axis for axis in reversed(stage.spatial) if axis.extent != 1), None)
    factors = None if last is None else _factors(sch.get(stage.block), last)
    if last is None or factors is None:
        return None
    data, weights = factors
    groups: dict[tuple[bool, bool, bool], list[StageAxis]] = {}
    for axis in stage.axes:
        if axis.extent != 1:
            groups.setdefault((data.uses(axis), weights.uses(axis), axis.reduce), []).append(axis)
    batch, rows, columns, steps = (groups.pop(kind, []) for kind in _KINDS)
    if groups or not (rows and columns and steps):
        return None
    steps = _in_order(data.load, steps, rows)
    if columns[-1] is not last or stage.write.stride(last.var) != 1 or data.load.stride(steps[-1].var) != 1:
        return None
    numbers = Floats() if signed is None else ByteWords(has_signed_data=str(data.load.buffer.name) == signed)
    accesses = (data.load, weights.load, stage.write)
    lanes = min(LANES, 1 << ((steps[-1].extent or 1).bit_length() - 1)) if numbers.has_short_runs else LANES
    if not (_is_in_runs(last, LANES, accesses) and _is_in_runs(steps[-1], lanes, accesses)):
        return None
    if stage.branches_on(steps[-1].var) or stage.branches_on(last.var):
        return None
    fixed = tuple(axis for axis in stage.axes if axis.extent == 1)
    batches, lines, vectors = (OverlappingAxes(tuple(axes)) for axes in (batch, rows, columns))
    terms = OverlappingAxes(tuple(steps), lanes)
    return MatrixProduct(stage, batches, lines, vectors, terms, fixed, data, weights, numbers)


def _is_in_runs(axis: StageAxis, lanes: int, accesses: Sequence[StageAccess]) -> bool:
    """Runs along the axis lie in one block of each buffer, also where the last one overlaps the one before."""
    periods = [period for access in accesses if (period := access.period(axis.var))]
    extent = axis.extent or 0
    return extent >= lanes and not any(period % lanes for period in periods) and not (periods and extent % lanes)


_FLOAT, _WORD = "float32", "int32"

_KINDS = ((True, True, False), (True, False, False), (False, True, False), (True, True, True))
"""Of batch, rows, columns and steps: whether data and weights depend on them, and whether they are reduced over."""


def _factors(block: Any, last: StageAxis) -> tuple[Factor, Factor] | None:
    """Data and weights; the weights are what moves along the ``last`` axis of the result."""
    if not isinstance(block.body, tirx.BufferStore):
        return None
    total = block.body.value
    parts = [total.a, total.b] if isinstance(total, tirx.Add) else []
    products = [part for part in parts if isinstance(part, tirx.Mul)]
    if len(products) != 1 or not _is_zero(block.init):
        return None
    factors = [_factor(value) for value in (products[0].a, products[0].b)]
    given = [factor for factor in factors if factor is not None]
    moving = [factor for factor in given if factor.load.stride(last.var) != 0]
    if len(given) != 2 or len(moving) != 1:
        return None
    (weights,) = moving
    (data,) = (factor for factor in given if factor is not weights)
    return data, weights


def _factor(value: Any) -> Factor | None:
    loads = nodes_of(value, tvm.ir.TensorLoad)
    return Factor(value, StageAccess(loads[0].source, tuple(loads[0].indices))) if len(loads) == 1 else None


def _is_zero(init: Any) -> bool:
    is_number = isinstance(init, tirx.BufferStore) and isinstance(init.value, (tirx.FloatImm, tirx.IntImm))
    return is_number and init.value.value == 0


def _in_order(data: StageAccess, steps: Sequence[StageAxis], rows: Sequence[StageAxis]) -> list[StageAxis]:
    """Steps of a window first, those along memory last: so what is near is read together."""

    def key(axis: StageAxis) -> tuple[bool, bool, int]:
        is_window = any(data.moves_along_both(axis.var, row.var) for row in rows)
        stride = data.stride(axis.var)
        return stride == 1, not is_window, -abs(stride or 0)

    return sorted(steps, key=key)


def _dtype(access: StageAccess) -> str:
    return str(access.buffer.ty.dtype)
