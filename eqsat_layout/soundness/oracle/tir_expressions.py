"""Compiles TIR's expressions for the interpreter.

In: an expression and what its variables are: grids of loops that run as arrays, or slots of the frame. Out: ``Code``.
Whatever does not depend on loads is computed here, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx

from eqsat_layout.soundness.oracle.tir_calls import CALLS
from eqsat_layout.soundness.oracle.tir_places import AccessPlace
from eqsat_layout.soundness.oracle.tir_values import (
    Array,
    Code,
    InterpreterError,
    Mask,
    SharedPart,
    begun_anew,
    chosen,
    decided,
    lifted,
    meet,
    scalar,
    unequal_in_worlds,
)
from eqsat_layout.tir.arithmetic import BINARY, are_floats


@dataclass
class EnclosingFunction:
    """What expressions ask of the function that they are in: its name, buffers with their numbers and shapes, and the
    world that computes as devices do."""

    name: str
    numbers: dict[Any, int]
    shapes: list[tuple[int, ...]]
    device_world: int | None = None

    def fail(self, what: str) -> InterpreterError:
        return InterpreterError(f"{self.name}: {what}")

    def place(self, buffer: Any, axes: int, indices: list[Code], lanes: Mask | None) -> AccessPlace:
        """Where an access to ``buffer`` is."""
        if buffer not in self.numbers:
            raise self.fail(f"nothing is known of the buffer {buffer.name}")
        number = self.numbers[buffer]
        shape = self.shapes[number]
        if len(shape) != len(indices):
            raise self.fail(f"{len(indices)} indices into {buffer.name}, which has {len(shape)} axes")
        return AccessPlace.of(self.name, str(buffer.name), number, shape, axes, indices, lanes)


class Expressions:
    """The expressions on one grid. ``scope`` says what the variables are.

    What stands in one of them several times, as the indices of bicubic samples do, is compiled and computed once.
    """

    def __init__(self, function: EnclosingFunction, axes: int, scope: Mapping[Any, Code]) -> None:
        self.function = function
        self.axes = axes
        self.scope = dict(scope)
        self._known: dict[tuple[Any, int], tuple[SharedPart, Mask | None]] | None = None

    def compile(self, expr: Any, lanes: Mask | None = None) -> Code:
        """The code of ``expr``, which only ``lanes`` ask for, as far as that is known now."""
        if type(expr) in _LEAVES:
            return self.compile_anew(expr, lanes)
        if self._known is None:
            return self._compile_whole(expr, lanes)
        key = tvm_ffi.StructuralKey(expr), id(lanes)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = SharedPart.of(self.compile_anew(expr, lanes)), lanes  # it keeps its id so
        elif found[0].may_be_shared:
            found[0].is_shared = True
        return found[0].code

    def _compile_whole(self, expr: Any, lanes: Mask | None) -> Code:
        """The code of an expression that stands by itself."""
        parts = self._known = {}
        try:
            code = self.compile_anew(expr, lanes)
        finally:
            self._known = None
        return begun_anew(code) if any(part.is_shared for part, _ in parts.values()) else code

    def compile_anew(self, expr: Any, lanes: Mask | None) -> Code:
        """The code of an expression, whatever was compiled before."""
        kind = type(expr)
        if kind is tvm.ir.Var:
            code: Code | None = self.scope.get(expr)
            if code is None:
                raise self.function.fail(f"nothing is bound to {expr.name}")
            return code
        if kind in (tirx.IntImm, tirx.FloatImm):
            return Code.constant(scalar(expr.value, scalar_dtype(expr)))
        if kind is tvm.ir.expr.TensorLoad:
            return self.function.place(expr.source, self.axes, self.indices(expr, lanes), lanes).load()
        if kind in BINARY:
            first, second = self.compile(expr.a, lanes), self.compile(expr.b, lanes)
            device = self.function.device_world
            if kind is tirx.NE and device is not None and are_floats(scalar_dtype(expr.a)):
                return unequal_in_worlds(BINARY[kind], first, second, device, self.axes)
            return lifted(BINARY[kind], (first, second))
        if kind is tvm.ir.expr.Call:
            return self._call(expr, lanes)
        return self._other(expr, lanes)

    def indices(self, access: Any, lanes: Mask | None) -> list[Code]:
        """Those of a load or a store. TVM takes the bits of a bfloat16 for one, and refuses other floats."""
        if any("float" in scalar_dtype(index) for index in access.indices):
            raise self.function.fail("an index is no integer")
        return [self.compile(index, lanes) for index in access.indices]

    def _other(self, expr: Any, lanes: Mask | None) -> Code:
        kind = type(expr)
        if kind in (tirx.And, tirx.Or):
            return self._logic(expr, lanes)
        if kind in _UNARY:
            return lifted(_UNARY[kind], (self.compile(expr.a, lanes),))
        if kind is tirx.Cast:
            dtype = scalar_dtype(expr)
            return lifted(lambda x: x.astype(dtype), (self.compile(expr.value, lanes),))
        if kind is tirx.Select:
            return self._choice(expr.condition, expr.true_value, expr.false_value, lanes)
        if kind is tirx.Let:
            self.scope[expr.var] = self.compile(expr.value, lanes)
            return self.compile(expr.body, lanes)
        raise self.function.fail(f"no words for {kind.__name__}")

    def _logic(self, expr: Any, lanes: Mask | None) -> Code:
        absorbing = type(expr) is tirx.Or
        first = self.compile(expr.a, lanes)
        if first.known is not None:
            x = first.known.astype(bool)
            lanes = meet(lanes, ~x if absorbing else x)
        return decided(first, self.compile(expr.b, lanes), absorbing)

    def _choice(self, condition: Any, yes: Any, no: Any, lanes: Mask | None) -> Code:
        test = self.compile(condition, lanes)
        if test.known is None:
            return chosen(test, self.compile(yes, lanes), self.compile(no, lanes))
        holds = test.known.astype(bool)
        if holds.all():
            return self.compile(yes, lanes)
        if not holds.any():
            return self.compile(no, lanes)
        return chosen(test, self.compile(yes, meet(lanes, holds)), self.compile(no, meet(lanes, ~holds)))

    def _call(self, call: Any, lanes: Mask | None) -> Code:
        name = str(getattr(call.op, "name", call.op))
        short = name.rpartition(".")[2]
        if short == "if_then_else":
            condition, yes, no = call.args
            return self._choice(condition, yes, no, lanes)
        dtype = scalar_dtype(call)
        if short == "reinterpret":
            return lifted(lambda x: np.ascontiguousarray(x).view(dtype), (self.compile(call.args[0], lanes),))
        function = CALLS.get(short)
        if function is None:
            raise self.function.fail(f"no words for the call of {name}")

        def compute(*values: Array) -> Array:
            return np.asarray(function(*values)).astype(dtype, copy=False)

        return lifted(compute, [self.compile(argument, lanes) for argument in call.args])


_LEAVES = (tvm.ir.Var, tirx.IntImm, tirx.FloatImm)
_UNARY: Mapping[Any, Any] = {tirx.Not: np.logical_not, tirx.BitwiseNot: np.bitwise_not}


def scalar_dtype(expr: Any) -> str:
    """The dtype of a scalar expression; raises for vectors and pointers."""
    dtype = str(expr.ty.dtype) if type(expr.ty) is tvm.ir.PrimType else "handle"
    try:
        np.dtype(dtype)
    except TypeError as error:
        raise InterpreterError(f"no words for the dtype {dtype}") from error
    return dtype
