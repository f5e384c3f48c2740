"""Loops whose iterations are independent, so that they may run as work items.

In: a statement without blocks. Out: its outer loops that are independent: those whose variable every access to a
written buffer depends on in such a way that no two iterations touch one element, and those marked parallel, unless it
is data that say which elements are touched: TVM marks updates so that may meet. What is known to be apart all the same
has :data:`APART`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import tirx

from eqsat_layout.tir.intrinsics import short_name
from eqsat_layout.tir.structural import is_one_of, let_values, nodes_of, substitute

APART: Final = "eqsat_layout.apart"
"""Annotation of a loop."""
_BY_ADDRESS: Final = ("address_of", "tvm_access_ptr", "buffer_data", "call_extern", "call_packed")
"""Calls that may touch memory beside loads and stores."""
_LEAVING: Final = ("break_loop", "continue_loop", "thread_return", "ret")
"""Calls after which other statements are not done."""


@dataclass(frozen=True)
class IndependentLoops:
    """``loops`` may run at once; ``body`` is what each iteration of all of them does."""

    loops: tuple[Any, ...]
    body: Any


def independent_loops(statement: Any) -> IndependentLoops:
    """The independent ones of perfectly nested loops, from the outside in."""
    chain: list[Any] = []
    inner = statement
    while isinstance(inner, tirx.For) and inner.thread_binding is None:
        chain.append(inner)
        inner = inner.body
    said = list(itertools.takewhile(lambda loop: int(loop.kind) == tirx.ForKind.PARALLEL, chain))
    accesses = _Accesses.of(chain, inner)
    free = [
        loop
        for loop in chain
        if _is_known_before(loop, chain)
        and (
            (accesses is not None and accesses.follow(loop))
            or (loop in said and (APART in loop.annotations or accesses is None or not accesses.hang_on_data))
        )
    ]
    for loop in reversed([loop for loop in chain if loop not in free]):
        inner = tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, inner)
    return IndependentLoops(tuple(free), inner)


def _is_known_before(loop: Any, chain: Sequence[Any]) -> bool:
    """Its bounds hang on sizes only."""
    parts = nodes_of(loop.extent, tirx.Var, tvm.ir.TensorLoad) + nodes_of(loop.min, tirx.Var, tvm.ir.TensorLoad)
    own = [other.loop_var for other in chain]
    return not any(isinstance(one, tvm.ir.TensorLoad) or is_one_of(one, own) for one in parts)


@dataclass(frozen=True)
class _Accesses:
    """``indices``: of all accesses of each tensor that is written, and behind them their offset in it, simplified."""

    indices: tuple[tuple[tuple[Any, ...], ...], ...]
    analyzer: Any
    inside: tuple[Any, ...]
    """Variables that have several values while the statement runs."""

    @staticmethod
    def of(chain: Sequence[Any], body: Any) -> _Accesses | None:
        """``None`` where memory may be touched otherwise."""
        if does_more_than_store(body):
            return None
        loops = [*chain, *nodes_of(body, tirx.For)]
        analyzer, bound = analyzer_of_loops(loops), let_values(body)
        own = [one.buffer for one in nodes_of(body, tirx.AllocBuffer)]
        stores, loads = nodes_of(body, tirx.BufferStore), nodes_of(body, tvm.ir.TensorLoad)
        found: dict[Any, list[Any]] = {}
        for store in stores:
            if not is_one_of(store.buffer, own):
                at = [substitute(index, bound) for index in store.indices]
                found.setdefault(store.buffer, []).append(_with_offset(store.buffer, at))
        for load in loads:
            if load.source in found:
                at = [substitute(index, bound) for index in load.indices]
                found[load.source].append(_with_offset(load.source, at))
        simple = tuple(
            tuple(tuple(analyzer.simplify(index) for index in one) for one in accesses) for accesses in found.values()
        )
        return _Accesses(simple, analyzer, tuple(loop.loop_var for loop in loops))

    @property
    def hang_on_data(self) -> bool:
        """Some element is touched at a place that is read from memory."""
        places = (index for accesses in self.indices for one in accesses for index in one)
        return any(nodes_of(place, tvm.ir.TensorLoad) for place in places)

    def follow(self, loop: Any) -> bool:
        """Two iterations of the loop touch no common element of what is written, whatever other loops do."""
        var = loop.loop_var
        return bool(self.indices) and all(
            any(self._tells_apart(var, [one[axis] for one in accesses]) for axis in range(len(accesses[0])))
            for accesses in self.indices
        )

    def _tells_apart(self, var: Any, indices: Sequence[Any]) -> bool:
        """The same index in all accesses that nothing else moves; or blocks along it, each of one iteration."""
        first = indices[0]
        factor = self._factor(var, first)
        if not factor:
            return False
        others = [one for one in nodes_of(first, tirx.Var) if not one.same_as(var)]
        moves_alone = not any(one.same_as(other) for one in self.inside for other in others)
        if moves_alone and not nodes_of(first, tvm.ir.TensorLoad):
            return all(tvm_ffi.structural_equal(one, first) for one in indices)
        blocks = (self.analyzer.simplify(tirx.floordiv(one, factor)) for one in indices)
        return factor > 0 and all(block.same_as(var) for block in blocks)

    def _factor(self, var: Any, index: Any) -> int:
        """How much the index grows with the variable; 0 where that is not a number."""
        found = tvm.sym.detect_linear_equation(index, [var])
        return int(found[0]) if len(found) == 2 and isinstance(found[0], tirx.IntImm) else 0


def analyzer_of_loops(loops: Sequence[Any]) -> Any:
    """One that knows the range of each loop's variable."""
    analyzer = tvm.sym.Analyzer()
    for loop in loops:
        analyzer.bind(loop.loop_var, tvm.ir.Range.from_min_extent(loop.min, loop.extent))
    return analyzer


def does_more_than_store(body: Any) -> bool:
    """It touches memory beside what its loads and stores say, or leaves a loop early."""
    names = [short_name(call) for call in nodes_of(body, tvm.ir.Call)]
    return any(name in (*_BY_ADDRESS, *_LEAVING) for name in names) or bool(nodes_of(body, tirx.DeclBuffer))


def _with_offset(buffer: Any, indices: Sequence[Any]) -> tuple[Any, ...]:
    if not indices:
        return (tirx.IntImm("int32", 0),)
    offset, *others = indices
    for index, extent in zip(others, list(buffer.ty.shape)[1:], strict=True):
        offset = offset * extent + index
    return (*indices, offset)
