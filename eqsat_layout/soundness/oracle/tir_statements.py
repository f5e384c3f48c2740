"""Compiles TIR's statements for the interpreter: sequences, stores, branches, blocks, loops.

In: a statement, and the grid that its loops span where they run as arrays (none: one point at a time, all worlds
together). Out: a ``Step``. Nests of loops over one block go to :mod:`eqsat_layout.soundness.oracle.tir_nests` first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import s_tir, tirx

from eqsat_layout.soundness.oracle.tir_expressions import EnclosingFunction, Expressions, scalar_dtype
from eqsat_layout.soundness.oracle.tir_sorts import run_sort, sort_call
from eqsat_layout.soundness.oracle.tir_values import Array, Code, Frame, InterpreterError, Mask, Step, meet, scalar


@dataclass
class Slots:
    """Numbers for variables whose values the run decides."""

    count: int = 0

    def reader(self, turns: frozenset[int] | None = None) -> tuple[int, Code]:
        """A new slot, and the code that reads it; ``turns``: the loop variables that what is in it is worked out of."""
        slot, self.count = self.count, self.count + 1
        return slot, Code(lambda frame, taken: frame.scope[slot], turns=turns)

    def turn(self) -> tuple[int, Code]:
        """The same for a loop variable, of one element."""
        return self.reader(frozenset((self.count,)))


NestCompiler = Callable[["Statements", Any], Step | None]
MOST_TURNS = 2_000
"""Of loops whose ends the operands decide, in one run: a box as wide as the largest number has 10^38 places to read."""

_LIGHT = 16
"""Elements that one turn may read and be counted as one."""
_OVERHEAD = 10
"""Expressions that take as long as what a statement does beside evaluating its own."""


@dataclass
class Statements:
    """Statements at one place: what variables are, and the grid."""

    expressions: Expressions
    slots: Slots
    nests: NestCompiler | None = None
    """Tries to run a loop as arrays; ``None`` inside of such a nest, where only straight code may stand."""
    grid: tuple[int, ...] = ()
    lanes: Mask | None = field(default=None)
    """The lanes of the grid that run, as far as that is known now."""

    @property
    def function(self) -> EnclosingFunction:
        return self.expressions.function

    def compile(self, statement: Any) -> Step:
        """The step of ``statement``; raises :class:`InterpreterError` for what there are no words for."""
        kind = type(statement)
        if kind is tirx.SeqStmt:
            return in_sequence([self.compile(part) for part in statement.seq])
        if kind is tirx.BufferStore:
            return self._store(statement)
        if kind is tirx.Bind:
            return self.bind(statement.var, self.expressions.compile(statement.value, self.lanes))
        if kind is tirx.IfThenElse:
            return self._branch(statement)
        if kind is tirx.Evaluate and type(statement.value) is tirx.IntImm:
            return in_sequence([])
        sort = sort_call(statement)
        if sort is not None:
            name, buffers, settings = sort
            return run_sort(name, [self.function.numbers[buffer] for buffer in buffers], settings)
        if self.nests is not None:
            return self._compound(statement, self.nests)
        raise self._unknown(statement)

    def _compound(self, statement: Any, nests: NestCompiler) -> Step:
        kind = type(statement)
        if kind is s_tir.stmt.SBlockRealize:
            return self.block(statement)
        if kind is tirx.For:
            return nests(self, statement) or self._loop(statement)
        if kind is tirx.While:
            return self._while(statement)
        if kind is tirx.AllocBuffer:
            return self.allocate(statement.buffer)
        if kind is tirx.AttrStmt:
            return self.compile(statement.body)
        raise self._unknown(statement)

    def _unknown(self, statement: Any) -> InterpreterError:
        return self.function.fail(f"no words for {type(statement).__name__}{_named(statement)}")

    def number(self, expr: Any) -> int | None:
        """The integer that ``expr`` is, if that is known now."""
        known = self.expressions.compile(expr).known
        return None if known is None or known.size != 1 else int(known.reshape(-1)[0])

    def bind(self, var: Any, code: Code) -> Step:
        """Gives ``var`` a value."""
        if code.known is not None:
            self.expressions.scope[var] = code
            return in_sequence([])
        slot, self.expressions.scope[var] = self.slots.reader(code.turns)
        run = code.run

        def step(frame: Frame, taken: Mask | None) -> None:
            frame.scope[slot] = run(frame, taken)

        return step

    def allocate(self, buffer: Any) -> Step:
        """A buffer of which nothing is defined yet."""
        shape = self.declare(buffer)
        number, dtype = self.function.numbers[buffer], str(buffer.ty.dtype)

        def step(frame: Frame, taken: Mask | None) -> None:
            frame.values[number] = np.zeros((frame.worlds, *shape), dtype)
            frame.masks[number] = np.zeros((frame.worlds, *shape), bool)

        return step

    def declare(self, buffer: Any) -> tuple[int, ...]:
        """Gives a buffer its number; returns its shape. Raises for strides, offsets, unknown and negative extents."""
        info = buffer.ty
        if type(info.elem_offset) is tvm.ir.Var:  # whatever it is, arrays start at 0 here
            self.expressions.scope[info.elem_offset] = Code.constant(scalar(0, scalar_dtype(info.elem_offset)))
        if len(info.strides) or _is_spread(info) or self.number(info.elem_offset) != 0:
            raise self.function.fail(f"no words for the strides or offset of {buffer.name}")
        shape = []
        for extent in info.shape:
            size = self.number(extent)
            if size is None:
                raise self.function.fail(f"nobody says how large {buffer.name} is")
            if size < 0:
                raise self.function.fail(f"{buffer.name} would have {size} elements")
            shape.append(size)
        self.function.numbers[buffer] = len(self.function.shapes)
        self.function.shapes.append(tuple(shape))
        return tuple(shape)

    def _store(self, store: Any) -> Step:
        value = self.expressions.compile(store.value, self.lanes)
        indices = self.expressions.indices(store, self.lanes)
        place = self.function.place(store.buffer, self.expressions.axes, indices, self.lanes)
        return _counted(place.store(value, self.grid, self.lanes), store)

    def _branch(self, statement: Any) -> Step:
        test = self.expressions.compile(statement.condition, self.lanes)
        then = self.compile(statement.then_case)
        otherwise = None if statement.else_case is None else self.compile(statement.else_case)

        def step(frame: Frame, taken: Mask | None) -> None:
            holds = self._decision(test, frame, taken)
            yes = meet(taken, holds)
            if yes is not None and yes.any():
                then(frame, None if taken is None and yes.all() else yes)
            no = meet(taken, ~holds)
            if otherwise is not None and no is not None and no.any():
                otherwise(frame, None if taken is None and no.all() else no)

        return _counted(step, statement.condition)

    def _decision(self, test: Code, frame: Frame, taken: Mask | None) -> Mask:
        values, defined = test.run(frame, taken)
        if defined is not None and (~defined if taken is None else ~defined & taken).any():
            raise self.function.fail("branches on what is not defined")
        return values.astype(bool, copy=False)

    def block(self, realize: Any) -> Step:
        """A block at one point of its loops."""
        block = realize.block
        if block.match_buffers:
            raise self.function.fail("no words for match_buffers")
        steps = [self.allocate(buffer) for buffer in block.alloc_buffers]
        firsts = []
        for variable, value in zip(block.iter_vars, realize.iter_values, strict=True):
            code = self.expressions.compile(value)
            steps.append(self.bind(variable.var, code))
            if int(variable.iter_type) == tirx.IterVar.CommReduce:
                firsts.append((self.expressions.compile(variable.var), self.expressions.compile(variable.dom.min)))
        init = None if block.init is None else self.compile(block.init)
        body = self.compile(block.body)

        def work(frame: Frame, taken: Mask | None) -> None:
            if init is not None:
                first = taken
                for variable, least in firsts:
                    first = meet(first, variable.run(frame, None)[0] == least.run(frame, None)[0])
                if first is None or first.any():
                    init(frame, first)
            body(frame, taken)

        predicate = self.expressions.compile(realize.predicate)
        if predicate.known is not None and predicate.known.all():
            return in_sequence([*steps, work])

        def guarded(frame: Frame, taken: Mask | None) -> None:
            lanes = meet(taken, self._decision(predicate, frame, taken))
            if lanes is not None and lanes.any():
                work(frame, lanes)

        return in_sequence([*steps, guarded])

    def _loop(self, loop: Any) -> Step:
        """One iteration after the other."""
        start, extent = self.expressions.compile(loop.min), self.expressions.compile(loop.extent)
        stride = 1 if loop.step is None else self.number(loop.step)
        if stride is None or stride < 1:
            raise self.function.fail(f"no words for the step of {loop.loop_var.name}")
        slot, self.expressions.scope[loop.loop_var] = self.slots.turn()
        dtype = scalar_dtype(loop.loop_var)
        body = self.compile(loop.body)
        decided = start.known is None or extent.known is None
        weight = 1 + _count(loop.body, tvm.ir.TensorLoad) // _LIGHT

        def step(frame: Frame, taken: Mask | None) -> None:
            low, high = self._bound(start, frame, taken), self._bound(extent, frame, taken)
            end = low + high
            if not end.size:
                return
            alike = low.size == end.size == 1
            if decided:
                self._turn(frame, weight * ((int(end.max()) - int(low.min())) // stride))
            for n in range(int(low.min()), int(end.max()), stride):
                lanes = taken if alike else meet(taken, (low <= n) & (n < end) & ((n - low) % stride == 0))
                if lanes is None or lanes.any():
                    frame.scope[slot] = np.full(1, n, dtype), None
                    body(frame, lanes)

        return step

    def _bound(self, code: Code, frame: Frame, taken: Mask | None) -> Array:
        values, defined = code.run(frame, taken)
        if defined is not None and (~defined if taken is None else ~defined & taken).any():
            raise self.function.fail("a loop has bounds that are not defined")
        return values

    def _while(self, statement: Any) -> Step:
        test, body = self.expressions.compile(statement.condition), self.compile(statement.body)

        def step(frame: Frame, taken: Mask | None) -> None:
            while True:
                taken = meet(taken, self._decision(test, frame, taken))
                if taken is None or not taken.any():
                    return
                self._turn(frame)
                body(frame, taken)

        return step

    def _turn(self, frame: Frame, turns: int = 1) -> None:
        frame.turns += max(0, turns)
        if frame.turns > MOST_TURNS:
            raise self.function.fail(f"its operands let loops go round more than {MOST_TURNS} times")


def _counted(step: Step, evaluated: Any) -> Step:
    """The step, which says how much work it is: the same on every machine."""
    work = _OVERHEAD + _count(evaluated, tvm.ir.Expr)

    def run(frame: Frame, taken: Mask | None) -> None:
        frame.work += work
        if frame.work > frame.most_work:
            raise InterpreterError("it takes too long")
        step(frame, taken)

    return run


def in_sequence(steps: list[Step]) -> Step:
    """One step after the other."""
    if len(steps) == 1:
        return steps[0]

    def step(frame: Frame, taken: Mask | None) -> None:
        for part in steps:
            part(frame, taken)

    return step


def _is_spread(ty: Any) -> bool:
    """Whether a buffer's layout is another than that of a plain buffer of its shape."""
    if ty.layout is None:
        return False
    return not tvm_ffi.structural_equal(ty.layout, tirx.decl_buffer(ty.shape, ty.dtype).ty.layout)


def _count(node: Any, kind: Any) -> int:
    """How many parts of it are of a kind."""
    found: list[Any] = []
    tvm_ffi.structural_walk(node, (kind, found.append))
    return len(found)


def _named(statement: Any) -> str:
    """The op that an ``Evaluate`` calls."""
    op = getattr(getattr(statement, "value", None), "op", None)
    arguments = getattr(getattr(statement, "value", None), "args", ())
    literal = "".join(f" {a.value}" for a in list(arguments)[:1] if type(a) is tvm.ir.StringImm)
    return "" if op is None else f" of {getattr(op, 'name', op)}{literal}"
