"""Loops over one block as arrays, for the interpreter of TIR.

In: a nest of loops whose iterations share nothing but what they reduce into. Out: a ``Step`` that runs the spatial
loops as array axes and the reduction's iterations one by one in their order, so that sums are added as TIR adds them.
What of a reduction's body does not read its result is computed for many iterations at once. Other nests: ``None``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import s_tir, tirx

from eqsat_layout.soundness.oracle.tir_expressions import Expressions, scalar_dtype
from eqsat_layout.soundness.oracle.tir_places import is_one_to_one
from eqsat_layout.soundness.oracle.tir_statements import Statements, in_sequence
from eqsat_layout.soundness.oracle.tir_values import Array, Code, Frame, InterpreterError, Mask, Pair, Step

AT_ONCE = 1 << 18
"""Elements per world that a reduction computes ahead at most."""


def compile_nest(statements: Statements, loop: Any) -> Step | None:
    """The step of the nest under ``loop``; ``None`` where its iterations have to run one after the other."""
    nest = _Nest.of(statements, loop)
    if nest is None:
        return None
    ahead = nest.loops_ahead()
    for count in (ahead, 0) if ahead else (0,):
        try:
            return nest.compile(count)
        except _InOrderError:
            return None
        except _NotAheadError:
            continue
    return None


class _InOrderError(Exception):
    """The iterations have to run one after the other."""


class _NotAheadError(Exception):
    """Something of the body can't be computed ahead of its iteration."""


@dataclass(frozen=True)
class _Loop:
    var: Any
    start: int
    extent: int

    def values(self) -> range:
        return range(self.start, self.start + self.extent)

    def along(self, axis: int, axes: int) -> Code:
        shape = [1] * (1 + axes)
        shape[1 + axis] = -1
        return Code.constant(
            np.arange(self.start, self.start + self.extent, dtype=scalar_dtype(self.var)).reshape(shape)
        )


@dataclass(frozen=True)
class _Nest:
    """Loops over one block (or over straight code): ``reduced`` are those that reduction variables run over."""

    statements: Statements
    spatial: tuple[_Loop, ...]
    reduced: tuple[_Loop, ...]
    iters: tuple[tuple[Any, Any], ...]
    body: Any
    init: Any
    predicate: Any

    @staticmethod
    def of(statements: Statements, statement: Any) -> _Nest | None:
        loops: list[_Loop] = []
        while type(statement) is tirx.For:
            start, extent = _known(statements, statement.min), _known(statements, statement.extent)
            if start is None or extent is None or statement.step is not None:
                return None
            loops.append(_Loop(statement.loop_var, start, max(extent, 0)))
            statement = statement.body
        if type(statement) is not s_tir.stmt.SBlockRealize:
            straight = _is_straight(statement)
            return _Nest(statements, tuple(loops), (), (), statement, None, None) if straight else None
        block = statement.block
        if block.match_buffers or block.alloc_buffers or not _is_straight(block.body):
            return None
        iters = tuple(zip(block.iter_vars, statement.iter_values, strict=True))
        over = [var for i, value in iters if int(i.iter_type) == tirx.IterVar.CommReduce for var in _variables(value)]
        reduced = tuple(loop for loop in loops if loop.var in over)
        spatial = tuple(loop for loop in loops if loop.var not in over)
        return _Nest(statements, spatial, reduced, iters, block.body, block.init, statement.predicate)

    def loops_ahead(self) -> int:
        """How many of the innermost reduction loops are computed ahead."""
        size, count = math.prod(loop.extent for loop in self.spatial), 0
        for loop in reversed(self.reduced):
            size *= loop.extent
            if size > AT_ONCE:
                break
            count += 1
        return count

    def compile(self, ahead: int) -> Step:
        """The step, ``ahead`` of the reduction loops computed ahead."""
        function, slots = self.statements.function, self.statements.slots
        outer, inner = self.reduced[: len(self.reduced) - ahead], self.reduced[len(self.reduced) - ahead :]
        axes = ahead + len(self.spatial)
        grid = (1,) * ahead + tuple(loop.extent for loop in self.spatial)
        here = dict(self.statements.expressions.scope)
        here.update({loop.var: loop.along(ahead + k, axes) for k, loop in enumerate(self.spatial)})
        whole = dict(here)
        whole.update({loop.var: loop.along(k, axes) for k, loop in enumerate(inner)})
        places: list[int] = []
        for loop in outer:
            slot, whole[loop.var] = slots.reader()
            places.append(slot)
        everything, spatial = Expressions(function, axes, whole), Expressions(function, axes, here)
        self._bind(everything, {}, None)
        unknown = {loop.var: _UNKNOWN for loop in self.reduced}
        self._bind(spatial, unknown, _UNKNOWN)
        lanes = self._lanes(spatial)
        self._check(spatial, grid, lanes)
        reads = _Ahead(everything, spatial.scope, self.body) if ahead else everything
        straight = Statements(reads, slots, None, grid, lanes)
        body = straight.compile(self.body)
        init = None if self.init is None else Statements(spatial, slots, None, grid, lanes).compile(self.init)
        if not math.prod(grid):
            return in_sequence([])
        if not self.reduced:
            return _over_grid(in_sequence([body] if init is None else [init, body]), axes)
        order = _Order(
            tuple(
                zip(places, (loop.values() for loop in outer), (scalar_dtype(loop.var) for loop in outer), strict=True)
            ),
            tuple(loop.extent for loop in inner),
            axes,
            tuple(reads.hoists) if isinstance(reads, _Ahead) else (),
            tuple(self._firsts(everything)) if init is not None else (),
        )
        return _over_grid(_reduction(order, init, body), axes)

    def _bind(self, expressions: Expressions, unknown: dict[Any, Code], absent: Code | None) -> None:
        """Puts the block's variables into the scope; those that depend on ``unknown`` ones are ``absent``."""
        for variable, value in self.iters:
            if absent is not None and any(var in unknown for var in _variables(value)):
                expressions.scope[variable.var] = absent
            else:
                expressions.scope[variable.var] = expressions.compile(value)

    def _lanes(self, spatial: Expressions) -> Mask | None:
        if self.predicate is None:
            return None
        holds = _Unbound(spatial).compile(self.predicate).known
        if holds is None:
            raise _InOrderError
        return None if holds.all() else holds.astype(bool)

    def _check(self, spatial: Expressions, grid: tuple[int, ...], lanes: Mask | None) -> None:
        """Every point of the spatial loops writes elements of its own, and reads of those buffers no others."""
        if self.init is not None and any(spatial.scope.get(v) is _UNKNOWN for v in _variables(self.init)):
            raise _InOrderError
        unbound = _Unbound(spatial)
        written: dict[Any, Array] = {}

        def own(buffer: Any, indices: Any) -> None:
            codes = [unbound.compile(index, lanes) for index in indices]
            flat = spatial.function.place(buffer, spatial.axes, codes, lanes).flat
            if flat is None:
                raise _InOrderError
            if buffer not in written and not is_one_to_one(flat, grid, lanes):
                raise _InOrderError
            known = written.setdefault(buffer, flat)
            if known.shape != flat.shape or not np.array_equal(known, flat):
                raise _InOrderError

        parts = [self.body] if self.init is None else [self.body, self.init]
        for part in parts:
            for store in _nodes(part, tirx.BufferStore):
                own(store.buffer, store.indices)
        for part in parts:
            for load in _nodes(part, tvm.ir.expr.TensorLoad):
                if load.source in written:
                    own(load.source, load.indices)

    def _firsts(self, everything: Expressions) -> Iterator[tuple[Code, Code]]:
        for variable, _ in self.iters:
            if int(variable.iter_type) == tirx.IterVar.CommReduce:
                yield everything.scope[variable.var], everything.compile(variable.dom.min)


@dataclass(frozen=True)
class _Order:
    """The iterations of a reduction: slots with their values outside, and extents of what is computed ahead."""

    outer: tuple[tuple[int, range, str], ...]
    ahead: tuple[int, ...]
    axes: int
    hoists: tuple[Code, ...]
    firsts: tuple[tuple[Code, Code], ...]

    def count(self) -> int:
        return math.prod(self.ahead)

    def first(self, frame: Frame) -> list[bool]:
        """In which iterations ahead the result is initialised."""
        shape = (1, *self.ahead, *([1] * (self.axes - len(self.ahead))))
        holds = np.ones(shape, bool)
        for variable, least in self.firsts:
            holds = holds & (variable.run(frame, None)[0] == least.run(frame, None)[0])
        found: list[bool] = holds.reshape(-1).tolist()
        return found

    def rows(self, array: Array) -> Array:
        """``(worlds, iteration, 1..., spatial...)`` of what was computed ahead."""
        count = len(self.ahead)
        array = array.reshape((1,) * (1 + self.axes - array.ndim) + array.shape)
        whole = np.broadcast_to(array, (len(array), *self.ahead, *array.shape[1 + count :]))
        return whole.reshape(len(array), self.count(), *([1] * count), *array.shape[1 + count :])


def _reduction(order: _Order, init: Step | None, body: Step) -> Step:
    def step(frame: Frame, taken: Mask | None) -> None:
        for point in itertools.product(*(values for _, values, _ in order.outer)):
            for (slot, _, dtype), n in zip(order.outer, point, strict=True):
                frame.scope[slot] = np.full(1, n, dtype), None
            ahead = []
            for code in order.hoists:
                values, defined = code.run(frame, taken)
                ahead.append((order.rows(values), None if defined is None else order.rows(defined)))
            first = order.first(frame) if init is not None else []
            for n in range(order.count()):
                frame.slices = [(v[:, n], None if d is None else d[:, n]) for v, d in ahead]
                if init is not None and first[n]:
                    init(frame, taken)
                body(frame, taken)

    return step


def _over_grid(step: Step, axes: int) -> Step:
    """The step of a nest: a mask of worlds becomes one of the grid's lanes."""

    def run(frame: Frame, taken: Mask | None) -> None:
        step(frame, None if taken is None else taken.reshape(-1, *([1] * axes)))

    return run


class _Ahead(Expressions):
    """The body of a reduction: what does not read its result is computed by ``everything`` for many iterations."""

    def __init__(self, everything: Expressions, scope: dict[Any, Code], body: Any) -> None:
        super().__init__(everything.function, everything.axes, scope)
        self.everything = everything
        self.stored = {node.buffer for node in _nodes(body, tirx.BufferStore)}
        self.hoists: list[Code] = []
        self.conditional = len(_nodes(body, tirx.IfThenElse))

    def compile(self, expr: Any, lanes: Mask | None = None) -> Code:
        if not self._is_free(expr):
            return self.compile_anew(expr, lanes)
        code = self.everything.compile(expr, lanes)
        if code.known is not None and code.known.size == 1:
            return code
        own = self.compile_anew(expr, lanes) if code.known is not None and not self._reads_iterations(expr) else None
        if own is not None and own.known is not None:
            return own
        if code.unsafe and self.conditional:
            raise _NotAheadError
        number = len(self.hoists)
        self.hoists.append(code)
        return Code(lambda frame, taken: frame.slices[number])

    def _reads_iterations(self, expr: Any) -> bool:
        return any(self.scope.get(var, _UNKNOWN) is _UNKNOWN for var in _variables(expr))

    def _is_free(self, expr: Any) -> bool:
        if any(load.source in self.stored for load in _nodes(expr, tvm.ir.expr.TensorLoad)):
            return False
        return all(var in self.everything.scope for var in _variables(expr))

    def _choice(self, condition: Any, yes: Any, no: Any, lanes: Mask | None) -> Code:
        self.conditional += 1
        code = super()._choice(condition, yes, no, lanes)
        self.conditional -= 1
        return code

    def _logic(self, expr: Any, lanes: Mask | None) -> Code:
        self.conditional += 1
        code = super()._logic(expr, lanes)
        self.conditional -= 1
        return code


class _Unbound(Expressions):
    """Expressions of which only what is known now matters; other variables are unknown."""

    def __init__(self, expressions: Expressions) -> None:
        super().__init__(expressions.function, expressions.axes, expressions.scope)

    def compile(self, expr: Any, lanes: Mask | None = None) -> Code:
        if type(expr) is tvm.ir.Var:
            found: Code = self.scope.get(expr, _UNKNOWN)
            return found
        return self.compile_anew(expr, lanes)


def _absent(frame: Frame, taken: Mask | None) -> Pair:
    raise InterpreterError("a variable of a reduction outside of it")


_UNKNOWN = Code(_absent)
_JUMPS = (tirx.For, tirx.While, s_tir.stmt.SBlockRealize, tirx.AllocBuffer, tirx.DeclBuffer, tirx.AttrStmt)


def _is_straight(statement: Any) -> bool:
    """Whether it is stores, bindings and branches only; what else may stand there is refused by name."""
    return not _nodes(statement, _JUMPS)


def _known(statements: Statements, expr: Any) -> int | None:
    """The integer that a loop's bound is; a bound that depends on loops is not known."""
    scope = statements.expressions.scope
    return None if any(var not in scope for var in _variables(expr)) else statements.number(expr)


def _variables(expr: Any) -> list[Any]:
    """The scalar variables in ``expr``."""
    return [v for v in _nodes(expr, tvm.ir.Var) if type(v.ty) is tvm.ir.PrimType]


def _nodes(node: Any, kind: Any) -> list[Any]:
    """All nodes of a kind (or of one of several) in ``node``."""
    found: list[Any] = []

    def visit(part: Any) -> None:
        found.append(part)

    tvm_ffi.structural_walk(node, (kind, visit))
    return found
