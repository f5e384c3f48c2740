"""Vectors whose elements lie in a few other vectors, in an order that is known: channels that are shuffled.

In: a block whose loads jump by the place in the row, and by other axes with it. Out: statements in which those axes are
written out, so that each vector of the result is one shuffle of whole vectors of memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import tvm
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.single.lanes import (
    LaneBody,
    Lanes,
    constant_vector,
    lanes_of_stage,
    shuffled,
    table_of,
    vector_at,
)
from eqsat_layout.targets.schedules.accesses import as_int, depends_on
from eqsat_layout.targets.schedules.stages import Stage
from eqsat_layout.tir.analyzers import analyzer_of
from eqsat_layout.tir.blocks import store_of
from eqsat_layout.tir.structural import nodes_of, substitute

_MOST_SOURCES: Final = 4
"""Vectors that one is put together of: for more, reading element by element is as good."""
_MOST_VECTORS: Final = 64
"""Of the result, that are written out: straight code takes LLVM long."""


def from_few_vectors(block: Any, stage: Stage, machine: CpuMachine) -> LaneBody:
    """The statements; refused where vectors have elements of many others, or of places that are not known."""
    store = store_of(block)
    *outer, last = block.iter_vars
    extent = int(last.dom.extent)
    size = lanes_of_stage(stage, machine, extent)
    starts = [min(start, extent - size) for start in range(0, extent, size)]
    together = [axis for axis in outer if _is_with(store.value, axis.var, last.var)]
    sizes = [int(axis.dom.extent) for axis in together]
    if math.prod(sizes) * len(starts) > _MOST_VECTORS:
        raise Refused("more than straight code is good for")
    analyzer = analyzer_of(outer)
    statements: list[Any] = []
    for places in itertools.product(*map(range, sizes)):
        pairs = zip(together, places, strict=True)
        known = {axis.var: tirx.IntImm(str(axis.var.ty.dtype), place) for axis, place in pairs}
        for start in starts:
            row = _Row(known, last.var, start + np.arange(size), analyzer)
            value = Lanes(last.var, size, row.load, row.table).of(substitute(store.value, known))
            at = [analyzer.simplify(substitute(index, known)) for index in store.indices[:-1]]
            target = vector_at([*at, tirx.IntImm(str(last.var.ty.dtype), start)], size)
            statements.append(tirx.BufferStore(store.buffer, value, target))
    return LaneBody([axis for axis in outer if axis not in together], statements, 0)


def _is_with(value: Any, var: Any, lane: Any) -> bool:
    """Some index depends on both."""
    indices = [index for load in nodes_of(value, tvm.ir.TensorLoad) for index in load.indices]
    return any(depends_on(index, var) and depends_on(index, lane) for index in indices)


class _Row:
    """A vector of the result, its elements at the ``places`` of the axis ``var``, where other axes are ``known``."""

    def __init__(self, known: Mapping[Any, Any], var: Any, places: Any, analyzer: Any) -> None:
        self._known, self._var, self._places, self._analyzer = known, var, places, analyzer

    def table(self, expr: Any) -> Any:
        """The vector of numbers that depend on the place only."""
        return constant_vector(table_of(expr, self._var, self._places))

    def load(self, load: Any) -> Any:
        """A shuffle of the vectors that hold what the load reads."""
        size = len(self._places)
        indices = [self._analyzer.simplify(index) for index in load.indices]
        moving = [depends_on(index, self._var) for index in indices]
        numbers = [table_of(i, self._var, self._places) if m else None for i, m in zip(indices, moving, strict=True)]
        row = as_int(load.source.ty.shape[-1])
        if numbers[-1] is None or row is None or row < size:
            raise Refused("no vector in the row")
        starts = np.minimum(numbers[-1] // size * size, row - size)
        sources: dict[tuple[int, ...], int] = {}
        lanes: list[int] = []
        for place, start in enumerate(starts):
            key = (*(int(own[place]) for own in numbers[:-1] if own is not None), int(start))
            lanes.append(sources.setdefault(key, len(sources)) * size + int(numbers[-1][place] - start))
        if len(sources) > _MOST_SOURCES:
            raise Refused("elements of many vectors")
        vectors = []
        for key in sources:
            rest = iter(key)
            at = [
                index if own is None else tirx.IntImm(str(index.ty.dtype), next(rest))
                for index, own in zip(indices, numbers, strict=True)
            ]
            vectors.append(tirx.BufferLoad(load.source, vector_at(at, size)))
        return vectors[0] if lanes == list(range(size)) else shuffled(vectors, lanes)
