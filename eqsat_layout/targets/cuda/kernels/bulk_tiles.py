"""Tiles that one thread asks for: the unit for tensor maps (TMA, from sm_90 on) brings them to shared memory by itself.

In: operands whose rows lie at even distances, a plan, and shared memory. Out: the tensor maps, which the host encodes;
statements that ask for the tiles of a stage, and that wait for them. The unit exchanges units of 16 bytes within rows
of 128 as :class:`~eqsat_layout.targets.cuda.kernels.fills.TileShape` does, and what is beyond the ends is zeros.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.targets.cuda.kernels.arithmetics import UNIT, Arithmetic
from eqsat_layout.targets.cuda.kernels.extents import Extent
from eqsat_layout.targets.cuda.kernels.fills import Shared
from eqsat_layout.targets.cuda.kernels.operands import FlatAxes
from eqsat_layout.targets.cuda.kernels.product_plan import ProductPlan
from eqsat_layout.targets.cuda.kernels.products import Product
from eqsat_layout.targets.cuda.kernels.sides import Side, sides_of
from eqsat_layout.targets.cuda.kernels.statements import (
    address,
    at,
    guarded,
    issued,
    kept,
    local,
    number,
    sequence_of,
)
from eqsat_layout.targets.gpu.kernels.nests import Axis
from eqsat_layout.targets.schedules.accesses import StageAccess, as_int
from eqsat_layout.tir.analyzers import analyzer_over
from eqsat_layout.tir.structural import is_one_of, substitute

MOST_OUTER: Final = 3
"""Axes of a tensor map, which has five at most, beside rows and what lies in them."""
_MOST_STRIDE: Final = 1 << 40
"""Bytes; less than that."""
_EXCHANGED: Final = 3
"""How the driver counts rows of 128 bytes whose units are exchanged (CU_TENSOR_MAP_SWIZZLE_128B)."""
_COPY: Final = "cp.async.bulk.tensor.{}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"


@dataclass(frozen=True)
class EvenRows:
    """An operand as its tensor map has it: ``extents`` and ``strides`` (elements) along the steps, which are 1 apart,
    across them, and along each axis of ``batch``."""

    buffer: Any
    extents: tuple[Extent, ...]
    strides: tuple[int, ...]
    batch: tuple[Axis, ...]


def rows_of_both(product: Product, arithmetic: Arithmetic) -> tuple[EvenRows, EvenRows] | None:
    """Of the left and the right operand; ``None`` where one is not such."""
    left, right = (_rows_of(side, product.batch, product.func.params) for side in sides_of(product, arithmetic))
    return None if left is None or right is None else (left, right)


def _rows_of(side: Side, batch: FlatAxes, params: Sequence[Any]) -> EvenRows | None:
    """``None`` for operands that are worked out, guarded, or no rows at even distances of whole units."""
    load, size = side.operand.value, side.arithmetic.operand_bytes
    if not isinstance(load, tvm.ir.TensorLoad) or not side.arithmetic.takes(side.operand.dtype):
        return None
    if not is_one_of(load.source, params) or len(batch.axes) > MOST_OUTER:
        return None
    axes = (*side.steps.axes, *side.across.axes, *batch.axes)
    access = StageAccess(load.source, tuple(load.indices))
    strides = {axis.var: access.stride(axis.var) or 0 for axis in axes}
    steps, across = (_as_one_axis(group, strides) for group in (side.steps, side.across))
    outer = (across, *(strides[axis.var] for axis in batch.axes))
    least = as_int(side.steps.extent) or _MOST_STRIDE  # rows that overlap, as windows do, are not promised to be taken
    if steps != 1 or any(one < least or one * size % UNIT or one * size >= _MOST_STRIDE for one in outer):
        return None
    if not _is_linear(access.place, axes, strides, side.fixed):
        return None
    extents = (side.steps.extent, side.across.extent, *(axis.extent for axis in batch.axes))
    return EvenRows(load.source, extents, (1, *outer), batch.axes)


def _as_one_axis(group: FlatAxes, strides: Mapping[Any, int]) -> int:
    """The distance of elements along a group, 0 where they do not all lie at the same."""
    for outer, inner in itertools.pairwise(group.axes):
        if strides[outer.var] != strides[inner.var] * (as_int(inner.extent) or 0):
            return 0
    return strides[group.axes[-1].var] if group.axes else 0


def _is_linear(place: Any, axes: Sequence[Axis], strides: Mapping[Any, int], fixed: Mapping[Any, Any]) -> bool:
    """The place of an element is the sum of its steps along the axes: no axis lies in blocks, none begins later."""
    rest = substitute(place, fixed)
    for axis in axes:
        rest = rest - axis.var * strides[axis.var]
    return as_int(analyzer_over(axes).simplify(rest)) == 0


class BulkTiles:
    """Of both operands, with a barrier a stage, at which their bytes are counted as they arrive."""

    def __init__(self, product: Product, sides: Sequence[EvenRows], plan: ProductPlan, memory: Shared) -> None:
        self._product, self._rows, self._plan, self._memory = product, sides, plan, memory
        self._maps = [
            tirx.Var(f"{rows.buffer.name}_map_{side}", tvm.ir.PointerType(tirx.TensorMapType()))
            for side, rows in zip(("left", "right"), sides, strict=True)
        ]
        words = memory.words
        self._arrived = tirx.decl_buffer(
            [number(plan.shared_words // 2)], "uint64", "arrived", data=words.data, scope="shared.dyn", layout=None
        )

    def encoded(self) -> list[Any]:
        """What the host does before the launch."""
        plan, statements = self._plan, list[Any]()
        for var, rows, across in zip(self._maps, self._rows, (plan.block_rows, plan.block_columns), strict=True):
            size, rank = self._bytes, len(rows.extents)
            strides = [stride * size for stride in rows.strides[1:]]
            box = [plan.block_steps, across, *[1] * (rank - 2)]
            sizes = [*rows.extents, *strides, *box, *[1] * rank]
            dtype = str(rows.buffer.ty.dtype)
            call = tirx.tensormap_encode_tiled(
                var, rows.buffer.data, *sizes, descriptor_dtype=dtype, rank=rank, swizzle=_EXCHANGED
            )
            statements += [tirx.Bind(var, tirx.tvm_stack_alloca("tensormap", 1)), tirx.Evaluate(call)]
        return statements

    def allocated(self) -> list[Any]:
        """The statements in front of all others, beside those of the memory."""
        return [tirx.DeclBuffer(self._arrived, data=self._memory.words.data)]

    def prepared(self, thread: Any) -> Any:
        """The barriers, for one that asks, which the unit for copies sees."""
        begun = [
            issued("mbarrier.init.shared::cta.b64", self._barrier(stage), _unsigned(1))
            for stage in range(self._plan.stages)
        ]
        fetched = [issued("prefetch.tensormap", tirx.reinterpret("handle", tirx.address_of(var))) for var in self._maps]
        return guarded(thread == 0, sequence_of([*fetched, *begun, issued("fence.mbarrier_init.release.cluster")]))

    def expected(self, tile: Any) -> Any:
        """So many bytes of both tiles will come."""
        place = self._barrier(tirx.floormod(tile, self._plan.stages))
        whole = _unsigned(self._plan.stage_words * 4)
        return issued("mbarrier.arrive.expect_tx.shared::cta.b64", place, whole)

    def asked_for(self, side: int, tile: Any, batch: Any, across: Any, step: Any) -> Any:
        """The tile of an operand that begins at this row or column and step."""
        plan, rows = self._plan, self._rows[side]
        stage = tirx.floormod(tile, plan.stages)
        first = stage * plan.stage_words + side * plan.block_rows * plan.block_steps * self._bytes // 4
        places = self._product.batch.at(batch)
        return issued(
            _COPY.format(len(rows.extents)),
            address(self._memory.words, first),
            tirx.reinterpret("handle", tirx.address_of(self._maps[side])),
            *(step, across, *(places[axis.var] for axis in rows.batch)),
            self._barrier(stage),
        )

    def waited_for(self, tile: Any) -> Any:
        """Both tiles are there: the phases of a barrier take turns."""
        stages, done = self._plan.stages, local(1, "uint32", "done")
        phase = tirx.floormod(tirx.floordiv(tile, stages), 2).astype("uint32")
        place = self._barrier(tirx.floormod(tile, stages))
        tried = issued("mbarrier.try_wait.parity.shared::cta.b64", at(done, 0), place, phase)
        return sequence_of(
            [tirx.AllocBuffer(done), kept(done, _unsigned(0), 0), tirx.While(at(done, 0) == _unsigned(0), tried)]
        )

    def _barrier(self, stage: Any) -> Any:
        return address(self._arrived, self._plan.arrived_word // 2 + stage)

    @property
    def _bytes(self) -> int:
        return self._plan.operand_bytes


def _unsigned(value: int) -> Any:
    return tirx.IntImm("uint32", value)
