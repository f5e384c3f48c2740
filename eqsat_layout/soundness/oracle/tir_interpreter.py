"""Reference interpreter of TIR in NumPy, with undef.

In: a PrimFunc and its operands in several worlds. Out: its results, and which of their elements are defined. It reads
the TIR itself and shares nothing with the analysis of the ``tir`` room, so that it can check what that makes. Spatial
loops run as arrays, reductions in the order of the loops, everything else element by element.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx

from eqsat_layout.soundness.oracle.tir_expressions import EnclosingFunction, Expressions, scalar_dtype
from eqsat_layout.soundness.oracle.tir_nests import compile_nest
from eqsat_layout.soundness.oracle.tir_statements import Slots, Statements, in_sequence
from eqsat_layout.soundness.oracle.tir_values import Code, Frame, InterpreterError, Masked, Step, scalar

__all__ = ["Interpreter", "InterpreterError", "Masked", "run_prim_func"]


def run_prim_func(func: Any, operands: Sequence[Masked], device_world: int | None = None) -> list[Masked]:
    """The results of ``func``: its first tensor parameters are the operands, the others the results.

    The operands' shapes give symbolic extents. NaN differs from no number, as in TVM's code for CPUs, but from all in
    the ``device_world``, if there are so many. What is undefined
    stays so through arithmetic; a choice whose condition is defined takes from the branch that it chooses. Raises
    :class:`InterpreterError` for TIR of another kind, for a read or a store out of bounds in a branch that is taken
    (whether or not the index is defined), and for a store, a loop or a branch that undefined numbers decide.
    """
    return Interpreter(func, device_world).run(operands)


class Interpreter:
    """``func`` ready to run: what of it depends on sizes only is worked out once for each choice of them."""

    def __init__(self, func: Any, device_world: int | None = None) -> None:
        attributes = func.attrs or {}
        self.name = str(attributes["global_symbol"]) if "global_symbol" in attributes else "a PrimFunc"
        self._func, self._device_world = func, device_world
        self._params = list(func.params)
        self._tensors = [param for param in self._params if type(param.ty) is tirx.BufferType]
        self._symbols = _symbols(self._params)
        self._plans: dict[tuple[int, ...], _Plan] = {}
        self.work = 0
        """Expressions that all runs evaluated so far: how long they take, without a clock."""
        self.most_work = math.inf
        """That one run may evaluate; with more it ends with an error."""

    def run(self, operands: Sequence[Masked], sizes: Mapping[str, int] | None = None) -> list[Masked]:
        """The results, which are the tensor parameters after the operands; see :func:`run_prim_func`."""
        return self.run_in_place(operands, sizes)[len(operands) :]

    def run_in_place(self, operands: Sequence[Masked], sizes: Mapping[str, int] | None = None) -> list[Masked]:
        """All tensor parameters as they are afterwards, in order; the operands' own arrays are not changed."""
        if len(operands) > len(self._tensors):
            raise InterpreterError(f"{self.name}: {len(operands)} operands for {len(self._tensors)} tensors")
        found = self._sizes(operands, dict(sizes or {}))
        plan = self._plans.get(found)
        with np.errstate(all="ignore"):
            if plan is None:
                plan = self._plans[found] = self._compile(found)
            results, work = plan.run(operands, self.most_work)
        self.work += work
        return results

    def _sizes(self, operands: Sequence[Masked], sizes: dict[str, int]) -> tuple[int, ...]:
        """The numbers that the symbols stand for."""
        if not self._symbols:
            return ()
        for param, operand in zip(self._tensors, operands, strict=False):
            for extent, size in zip(param.ty.shape, operand.values.shape[1:], strict=False):
                if type(extent) is tvm.ir.Var:
                    sizes.setdefault(str(extent.name), size)
        missing = [name for name in self._symbols if name not in sizes]
        if missing:
            raise InterpreterError(f"{self.name}: nobody says how large {missing[0]} is")
        return tuple(sizes[name] for name in self._symbols)

    def _compile(self, sizes: tuple[int, ...]) -> _Plan:
        function = EnclosingFunction(self.name, {}, [], self._device_world)
        numbers = dict(zip(self._symbols, sizes, strict=True))
        scope = {
            var: Code.constant(scalar(numbers[name], scalar_dtype(var)))
            for name, variables in self._symbols.items()
            for var in variables
        }
        slots = Slots()
        statements = Statements(Expressions(function, 0, scope), slots, compile_nest)
        shapes = [statements.declare(param) for param in self._tensors]
        dtypes = [str(param.ty.dtype) for param in self._tensors]
        step = in_sequence([statements.compile(self._func.body)])
        written = _written(self._func)
        return _Plan(
            self.name,
            tuple(zip(shapes, dtypes, (param in written for param in self._tensors), strict=True)),
            len(function.shapes),
            slots.count,
            step,
        )


@dataclass(frozen=True)
class _Plan:
    """A function for given sizes. ``tensors`` are shape, dtype and whether it is written to, per parameter."""

    name: str
    tensors: tuple[tuple[tuple[int, ...], str, bool], ...]
    buffers: int
    slots: int
    step: Step

    def run(self, operands: Sequence[Masked], most_work: float) -> tuple[list[Masked], int]:
        """All tensor parameters afterwards, and how much work that was."""
        worlds = len(operands[0].values) if operands else 1
        frame = Frame(worlds, [np.zeros(0)] * self.buffers, [None] * self.buffers, [(np.zeros(0), None)] * self.slots)
        for number, (shape, dtype, written) in enumerate(self.tensors):
            if number < len(operands):
                self._bind(frame, number, operands[number], written)
            else:
                frame.values[number] = np.zeros((worlds, *shape), dtype)
                frame.masks[number] = np.zeros((worlds, *shape), bool)
        frame.most_work = most_work
        self.step(frame, None)
        return [Masked.of(frame.values[k], frame.masks[k]) for k in range(len(self.tensors))], frame.work

    def _bind(self, frame: Frame, number: int, operand: Masked, written: bool) -> None:
        shape, dtype, _ = self.tensors[number]
        values, defined = operand.values, operand.defined
        if values.shape != (frame.worlds, *shape) or values.dtype != dtype:
            what = f"{values.dtype}{list(values.shape[1:])}"
            raise InterpreterError(f"{self.name}: operand {number} is {what}, not {dtype}{list(shape)}")
        frame.values[number] = np.array(values, order="C", copy=written or None)
        if not defined.all():
            frame.masks[number] = np.array(defined, order="C", copy=written or None)


def _symbols(params: Sequence[Any]) -> dict[str, list[Any]]:
    """The scalar parameters and the variables in shapes, by name."""
    found: dict[str, list[Any]] = {}

    def visit(expr: Any) -> None:
        if type(expr) is tvm.ir.Var:
            known = found.setdefault(str(expr.name), [])
            if expr not in known:
                known.append(expr)
        elif hasattr(expr, "a"):
            visit(expr.a)
            visit(expr.b)

    for param in params:
        if type(param.ty) is not tirx.BufferType:
            visit(param)
            continue
        for extent in param.ty.shape:
            visit(extent)
    return found


def _written(func: Any) -> set[Any]:
    """The buffers that are stored to."""
    found: set[Any] = set()

    tvm_ffi.structural_walk(func.body, (tirx.BufferStore, lambda store: found.add(store.buffer)))
    return found
