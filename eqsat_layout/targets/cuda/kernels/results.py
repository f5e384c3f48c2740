"""What becomes of sums: the elementwise nest that follows, stored by as many bytes as lie together.

In: a product. Out: statements that store a run of elements along the columns, given their sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.targets.cuda.kernels.extents import is_whole_tiles
from eqsat_layout.targets.cuda.kernels.loaded_ahead import LoadedAhead
from eqsat_layout.targets.cuda.kernels.products import Product
from eqsat_layout.targets.cuda.kernels.runs import in_runs
from eqsat_layout.targets.cuda.kernels.statements import all_of, at, guarded, kept, local, sequence_of, vectorized
from eqsat_layout.tir.structural import structural_map, substitute

_STORED: Final = 16
"""Bytes of one store."""
_LANES: Final = 4
"""Of arithmetic: TVM's code generator takes no longer vectors of floats."""


class Results:
    """How results of ``product`` are stored. ``turns``: runs that a thread has at once, for what is loaded ahead."""

    def __init__(self, product: Product, turns: Callable[[int], int] = lambda run: 0) -> None:
        self._product = product
        self._store = product.store
        self._dtype = str(self._store.buffer.ty.dtype)
        self._sum_dtype = str(product.sums.ty.dtype)
        self._ahead = LoadedAhead(product, self.run, turns(self.run))

    @property
    def run(self) -> int:
        """Elements that are stored together: a power of two, no more than 16 bytes."""
        store, product = self._store, self._product
        if self._dtype == "bool":  # TVM's code generator makes vectors of halves of them
            return 1
        longest = max(1, _STORED * 8 // tvm.DataType(self._dtype).bits)
        for run in (8, 4, 2):
            if run <= longest and in_runs(store.buffer, list(store.indices), product.columns, run, product.fixed):
                return run
        return 1

    def allocated(self) -> list[Any]:
        """The statements in front of all others."""
        return self._ahead.allocated()

    def loaded(self, turn: int, batch: Any, row: Any, column: Any) -> Any:
        """What the store of a turn reads beside the sums; ``None`` for nothing."""

        def indices(given: Sequence[Any], lane: Any) -> list[Any]:
            places = self._places(batch, row, column, lane)
            return [tvm.sym.Analyzer().simplify(substitute(index, places)) for index in given]

        return self._ahead.loaded(turn, indices)

    def stored(self, batch: Any, row: Any, column: Any, total: Callable[[Any], Any], turn: int = 0) -> Any:
        """``run`` elements from a column on. ``total``: the sum of a lane; ``turn``: see :meth:`loaded`."""
        return self.stored_by(self.run, batch, row, column, total, turn)

    def stored_by(self, run: int, batch: Any, row: Any, column: Any, total: Callable[[Any], Any], turn: int = 0) -> Any:
        """Fewer elements than could be stored together."""
        if run <= _LANES:
            return vectorized(run, lambda lane: self._one(batch, row, column, lane, total(lane), turn))
        made = local(run, self._dtype, "made")

        def few(start: int) -> Any:
            def one(lane: Any) -> Any:
                return kept(
                    made, self._value(batch, row, column, start + lane, total(start + lane), turn), start + lane
                )

            return vectorized(_LANES, one)

        def copied(lane: Any) -> Any:
            return tirx.BufferStore(self._store.buffer, at(made, lane), self._indices(batch, row, column, lane))

        return sequence_of([tirx.AllocBuffer(made), *map(few, range(0, run, _LANES)), vectorized(run, copied)])

    def inside(self, row: Any, column: Any, rows: int, columns: int, body: Any) -> Any:
        """``body`` for a run that is one of results, in tiles of so many rows and columns."""
        product = self._product
        sides = ((row, product.rows.extent, rows), (column, product.columns.extent, columns))
        conditions = [at < extent for at, extent, tile in sides if not is_whole_tiles(extent, tile)]
        return guarded(all_of(conditions), body)

    def _one(self, batch: Any, row: Any, column: Any, lane: Any, total: Any, turn: int) -> Any:
        value = self._value(batch, row, column, lane, total, turn)
        return tirx.BufferStore(self._store.buffer, value, self._indices(batch, row, column, lane))

    def _value(self, batch: Any, row: Any, column: Any, lane: Any, total: Any, turn: int) -> Any:
        """The element whose sum is ``total``."""
        if str(total.ty.dtype) != self._sum_dtype:
            is_wrapped = str(total.ty.dtype) == f"u{self._sum_dtype}"  # cast, TVM would take it for no less than 0
            total = (tirx.reinterpret if is_wrapped else tirx.Cast)(self._sum_dtype, total)
        places = self._places(batch, row, column, lane)
        sums = self._product.sums

        def on_load(load: Any) -> Any:
            return total if load.source.same_as(sums) else load

        placed = substitute(self._ahead.value, {**places, self._ahead.place: turn * self.run + lane})
        return structural_map(placed, (tvm.ir.TensorLoad, on_load))

    def _indices(self, batch: Any, row: Any, column: Any, lane: Any) -> list[Any]:
        places = self._places(batch, row, column, lane)
        return [tvm.sym.Analyzer().simplify(substitute(index, places)) for index in self._store.indices]

    def _places(self, batch: Any, row: Any, column: Any, lane: Any) -> Mapping[Any, Any]:
        product = self._product
        return {
            **product.fixed,
            **product.batch.at(batch),
            **product.rows.at(row),
            **_with_lane(product.columns.at(column), product.columns.axes[-1].var, lane),
        }


def _with_lane(places: Mapping[Any, Any], last: Any, lane: Any) -> dict[Any, Any]:
    """``lane`` elements on along the last axis: runs never go beyond its end."""
    return {**places, last: places[last] + lane}
