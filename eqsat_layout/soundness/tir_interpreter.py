"""Reference interpreter of TIR in NumPy, with undef (soundness room).

In: a PrimFunc and its operands in several worlds. Out: its results, and which of their elements are defined. It walks
the TIR itself and shares nothing with the analysis of the ``tir`` room, so that it can check what that makes. Spatial
loops run as arrays, reductions in the order of the loops, everything else element by element.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from tvm import s_tir, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.soundness.tir_arithmetic import BINARY, CALLS

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]


class InterpreterError(EqsatError):
    """TIR that the interpreter has no words for, or that stores where nothing is."""


@dataclass(frozen=True)
class Masked:
    """Elements and whether they are defined, worlds in front. What is not defined may be anything, NaN too."""

    values: Array
    defined: Mask

    @staticmethod
    def of(values: Array) -> Masked:
        """All defined."""
        return Masked(values, np.ones(values.shape, bool))


def run_prim_func(func: Any, operands: Sequence[Masked], sizes: Mapping[str, int] | None = None) -> list[Masked]:
    """The results of ``func``, whose parameters are the operands, results, then sizes (``sizes`` by name).

    Raises :class:`InterpreterError` for TIR of another kind.
    """
    return _Machine(func, operands, dict(sizes or {})).run()


@dataclass
class _Machine:
    """The state of one run. Arrays have the worlds in front, then an axis per loop that is run as an array."""

    func: Any
    operands: Sequence[Masked]
    sizes: dict[str, int]
    buffers: dict[Any, Masked] = field(default_factory=dict)
    scope: dict[Any, Masked] = field(default_factory=dict)
    worlds: int = 1
    axes: int = 0

    def run(self) -> list[Masked]:
        tensors = [p for p in self.func.params if type(p.ty) is tirx.BufferType]
        self.worlds = len(self.operands[0].values) if self.operands else 1
        for param, operand in zip(tensors, self.operands, strict=False):
            self._bind_sizes(param, operand.values.shape[1:])
            self.buffers[param] = operand
        for param in self.func.params:
            if type(param.ty) is not tirx.BufferType:
                self._set_size(param)
        results = tensors[len(self.operands) :]
        for result in results:
            self._allocate(result)
        self._statement(self.func.body, None)
        return [self.buffers[result] for result in results]

    def _bind_sizes(self, param: Any, shape: tuple[int, ...]) -> None:
        for extent, size in zip(param.ty.shape, shape, strict=True):
            if type(extent) is tvm.ir.Var:
                self.sizes.setdefault(str(extent.name), size)
                self._set_size(extent)

    def _set_size(self, var: Any) -> None:
        if str(var.name) not in self.sizes:
            raise InterpreterError(f"nobody says how large {var.name} is")
        self.scope[var] = _scalar(self.sizes[str(var.name)])

    def _allocate(self, buffer: Any) -> None:
        shape = (self.worlds, *(self._int(e) for e in buffer.ty.shape))
        self.buffers[buffer] = Masked(np.zeros(shape, str(buffer.ty.dtype)), np.zeros(shape, bool))

    # ---- statements -------------------------------------------------------------------------------------------------

    def _statement(self, statement: Any, mask: Mask | None) -> None:
        kind = type(statement)
        if kind is tirx.SeqStmt:
            for part in statement.seq:
                self._statement(part, mask)
        elif kind is tirx.For:
            self._loops(statement, mask)
        elif kind is s_tir.stmt.SBlockRealize:
            self._block(statement, mask)
        elif kind is tirx.BufferStore:
            self._store(statement, mask)
        elif kind is tirx.Bind:
            self.scope[statement.var] = self._value(statement.value)
        elif kind is tirx.IfThenElse:
            self._branch(statement, mask)
        elif kind is tirx.AllocBuffer:
            self._allocate(statement.buffer)
        else:
            raise InterpreterError(f"{self._name()}: no words for {kind.__name__}")

    def _loops(self, statement: Any, mask: Mask | None) -> None:
        """A nest of loops over one block: spatial ones as arrays where the block allows it."""
        loops = []
        body = statement
        while type(body) is tirx.For:
            loops.append(body)
            body = body.body
        one = type(body) is s_tir.stmt.SBlockRealize and mask is None and self.axes == 0
        if not one or not _is_data_parallel(body.block):
            start = self._int(statement.min)
            for n in range(start, start + self._int(statement.extent)):
                self.scope[statement.loop_var] = _scalar(n)
                self._statement(statement.body, mask)
            return
        reduced = _reduced(body)
        spatial = [loop for loop in loops if loop.loop_var not in reduced]
        self.axes = len(spatial)
        for axis, loop in enumerate(spatial):
            shape = [1] * (1 + self.axes)
            shape[1 + axis] = -1
            start = self._int(loop.min)
            self.scope[loop.loop_var] = Masked.of(np.arange(start, start + self._int(loop.extent)).reshape(shape))
        ranges = [range(self._int(p.min), self._int(p.min) + self._int(p.extent)) for p in loops if p not in spatial]
        for point in itertools.product(*ranges):
            for loop, n in zip([p for p in loops if p not in spatial], point, strict=True):
                self.scope[loop.loop_var] = _scalar(n)
            self._block(body, None)
        self.axes = 0

    def _block(self, realize: Any, mask: Mask | None) -> None:
        block = realize.block
        if block.match_buffers:
            raise InterpreterError(f"{self._name()}: no words for match_buffers")
        for buffer in block.alloc_buffers:
            self._allocate(buffer)
        first: Any = None
        for variable, value in zip(block.iter_vars, realize.iter_values, strict=True):
            bound = self._value(value)
            self.scope[variable.var] = bound
            if int(variable.iter_type) == tirx.IterVar.CommReduce:
                here = bound.values == self._int(variable.dom.min)
                first = here if first is None else first & here
        condition = self._value(realize.predicate)
        if not condition.values.all():
            mask = _both(mask, condition.values.astype(bool) & condition.defined)
        if block.init is not None and (first is None or first.any()):
            self._statement(block.init, mask if first is None or first.all() else _both(mask, first))
        self._statement(block.body, mask)

    def _branch(self, statement: Any, mask: Mask | None) -> None:
        condition = self._value(statement.condition)
        if not condition.defined.all():
            raise InterpreterError(f"{self._name()}: branches on what is not defined")
        holds = condition.values.astype(bool)
        if holds.any():
            self._statement(statement.then_case, None if holds.all() and mask is None else _both(mask, holds))
        if statement.else_case is not None and not holds.all():
            self._statement(statement.else_case, _both(mask, ~holds))

    def _store(self, store: Any, mask: Mask | None) -> None:
        buffer = self.buffers[store.buffer]
        value = self._value(store.value)
        indices = [self._value(index) for index in store.indices]
        world = np.arange(self.worlds).reshape([-1] + [1] * self.axes)
        parts = [world, value.values, value.defined, *(i.values for i in indices), *([] if mask is None else [mask])]
        whole: list[Array] = list(np.broadcast_arrays(*parts))
        if mask is not None:
            chosen = whole.pop().astype(bool)
            whole = [part[chosen] for part in whole]
        place = tuple(whole[i] for i in (0, *range(3, 3 + len(indices))))
        for index, at, extent in zip(indices, place[1:], buffer.values.shape[1:], strict=True):
            if not index.defined.all() or (at.size and (at.min() < 0 or at.max() >= extent)):
                raise InterpreterError(f"{self._name()}: stores outside of {store.buffer.name}")
        buffer.values[place] = whole[1]
        buffer.defined[place] = whole[2]

    # ---- expressions ------------------------------------------------------------------------------------------------

    def _int(self, expr: Any) -> int:
        if type(expr) is tirx.IntImm:
            return int(expr.value)
        return int(self._value(expr).values.reshape(-1)[0])

    def _value(self, expr: Any) -> Masked:
        kind = type(expr)
        if kind is tvm.ir.Var:
            if expr not in self.scope:
                raise InterpreterError(f"{self._name()}: nothing is bound to {expr.name}")
            return self.scope[expr]
        if kind is tirx.IntImm:
            return _scalar(int(expr.value), str(expr.ty.dtype))
        if kind is tirx.FloatImm:
            return _scalar(float(expr.value), str(expr.ty.dtype))
        if kind is tvm.ir.expr.TensorLoad:
            return self._load(expr)
        if kind in BINARY:
            a, b = self._value(expr.a), self._value(expr.b)
            with np.errstate(all="ignore"):
                return Masked(BINARY[kind](a.values, b.values), a.defined & b.defined)
        if kind in (tirx.And, tirx.Or):
            return _logic(self._value(expr.a), self._value(expr.b), absorbing=kind is tirx.Or)
        if kind is tirx.Not:
            inner = self._value(expr.a)
            return Masked(~inner.values.astype(bool), inner.defined)
        if kind is tirx.Cast:
            inner = self._value(expr.value)
            with np.errstate(all="ignore"):
                return Masked(inner.values.astype(str(expr.ty.dtype)), inner.defined)
        if kind is tirx.Select:
            return _chosen(*map(self._value, (expr.condition, expr.true_value, expr.false_value)))
        if kind is tvm.ir.expr.Call:
            return self._call(expr)
        raise InterpreterError(f"{self._name()}: no words for {kind.__name__}")

    def _call(self, call: Any) -> Masked:
        name = str(getattr(call.op, "name", call.op)).rpartition(".")[2]
        arguments = [self._value(a) for a in call.args]
        if name == "if_then_else":
            return _chosen(*arguments)
        function = CALLS.get(name)
        if function is None:
            raise InterpreterError(f"{self._name()}: no words for the call of {name}")
        defined = arguments[0].defined
        for argument in arguments[1:]:
            defined = defined & argument.defined
        with np.errstate(all="ignore"):
            values = function(*(a.values for a in arguments))
        return Masked(np.asarray(values).astype(str(call.ty.dtype)), defined)

    def _load(self, load: Any) -> Masked:
        """An element outside of the buffer is one that is not defined: a branch that is not taken may say so."""
        buffer = self.buffers[load.source]
        world = np.arange(self.worlds).reshape([-1] + [1] * self.axes)
        place: list[Array] = [world]
        inside: Any = np.ones((1,) * (1 + self.axes), bool)
        for index, extent in zip(load.indices, buffer.values.shape[1:], strict=True):
            at = self._value(index)
            inside = inside & at.defined & (at.values >= 0) & (at.values < extent)
            place.append(np.clip(at.values, 0, max(extent - 1, 0)))
        if 0 in buffer.values.shape:
            shape = np.broadcast_shapes(*(p.shape for p in place))
            return Masked(np.zeros(shape, buffer.values.dtype), np.zeros(shape, bool))
        return Masked(buffer.values[tuple(place)], buffer.defined[tuple(place)] & inside)

    def _name(self) -> str:
        attributes = self.func.attrs or {}
        return str(attributes["global_symbol"]) if "global_symbol" in attributes else "a PrimFunc"


def _scalar(value: float, dtype: str = "int64") -> Masked:
    return Masked(np.asarray(value).astype(dtype).reshape(1), np.ones(1, bool))


def _logic(a: Masked, b: Masked, *, absorbing: bool) -> Masked:
    """``and`` and ``or``: one side alone may decide."""
    x, y = a.values.astype(bool), b.values.astype(bool)
    decided = (a.defined & (x == absorbing)) | (b.defined & (y == absorbing))
    both = a.defined & b.defined
    values = np.where(decided, absorbing, (x | y) if absorbing else (x & y))
    return Masked(values, both | decided)


def _chosen(condition: Masked, yes: Masked, no: Masked) -> Masked:
    holds = condition.values.astype(bool)
    values = np.where(holds, yes.values, no.values).astype(np.result_type(yes.values, no.values))
    return Masked(values, condition.defined & np.where(holds, yes.defined, no.defined))


def _both(mask: Mask | None, other: Mask) -> Mask:
    return other if mask is None else mask & other


def _reduced(realize: Any) -> list[Any]:
    """The loop variables that reductions run over."""
    found: list[Any] = []

    def visit(expr: Any) -> None:
        if type(expr) is tvm.ir.Var:
            found.append(expr)

    for variable, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        if int(variable.iter_type) == tirx.IterVar.CommReduce:
            tvm_ffi.structural_walk(value, visit)
    return found


def _is_data_parallel(block: Any) -> bool:
    """Whether iterations only share what they reduce into: each reads of what it writes only its own element."""
    kinds = (tirx.IterVar.DataPar, tirx.IterVar.CommReduce)
    if any(int(v.iter_type) not in kinds for v in block.iter_vars):
        return False
    stores: list[Any] = []
    loads: list[Any] = []

    def visit(node: Any) -> None:
        if type(node) is tirx.BufferStore:
            stores.append(node)
        elif type(node) is tvm.ir.expr.TensorLoad:
            loads.append(node)
        elif type(node) in (tirx.For, tirx.While):
            stores.append(None)

    tvm_ffi.structural_walk(block.body, visit)
    if any(store is None for store in stores):
        return False
    for store in stores:
        for load in loads:
            if load.source.same_as(store.buffer) and not all(
                tvm_ffi.structural_equal(a, b) for a, b in zip(load.indices, store.indices, strict=True)
            ):
                return False
    return True
