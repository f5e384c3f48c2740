"""Reference interpreter of Relax in NumPy (soundness room).

In: an IRModule, a function and its inputs. Out: its results. Relax ops are legalised by TVM, and the PrimFuncs run by
the interpreter of TIR: no schedule and no compiler has a part in it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.graph.legalize import legalize
from eqsat_layout.soundness.tir_interpreter import InterpreterError, Masked, run_prim_func

Value = Any
"""An array, a shape (a tuple of numbers in a :class:`Shape`), or a list of values for a tuple."""


class NotInterpretable(EqsatError):
    """Something that is no PrimFunc, or TIR that the interpreter has no words for; the message names it."""


class Shape(tuple[int, ...]):
    """The value of a shape expression."""


def run_function(mod: Any, name: str, inputs: Sequence[Value]) -> Value:
    """What function ``name`` gives: an array, or a list for a tuple. Raises :class:`NotInterpretable`."""
    return _Frame(legalize(mod)).call(name, inputs)


class _Frame:
    """The module, and the variables of the function that runs."""

    def __init__(self, mod: Any) -> None:
        self._mod = mod

    def call(self, name: str, inputs: Sequence[Value]) -> Value:
        """Runs one function; others that it calls have scopes of their own."""
        function = self._mod[name]
        scope: dict[Any, Value] = {}
        sizes: dict[Any, int] = {}
        for param, value in zip(function.params, inputs, strict=True):
            _bind(param, value, scope, sizes)
        return self._value(function.body, scope, sizes)

    def _value(self, expr: Any, scope: dict[Any, Value], sizes: dict[Any, int]) -> Value:
        kind = type(expr)
        if kind is relax.SeqExpr:
            return self._sequence(expr, scope, sizes)
        if isinstance(expr, tvm.ir.Var) and expr in scope:
            return scope[expr]
        if kind is relax.Tuple:
            return [self._value(field, scope, sizes) for field in expr.fields]
        if kind is relax.TupleGetItem:
            return self._value(expr.tuple_value, scope, sizes)[int(expr.index)]
        if kind is relax.ShapeExpr:
            return Shape(_size(e, sizes) for e in expr.values)
        if kind is relax.If:
            condition = self._value(expr.cond, scope, sizes)
            return self._value(expr.true_branch if bool(condition) else expr.false_branch, dict(scope), sizes)
        if hasattr(expr, "value") and hasattr(expr.value, "numpy"):
            return expr.value.numpy()
        if kind is tvm.ir.Call:
            return self._call(expr, scope, sizes)
        raise NotInterpretable(f"no words for {kind.__name__}")

    def _sequence(self, expr: Any, scope: dict[Any, Value], sizes: dict[Any, int]) -> Value:
        for block in expr.blocks:
            for binding in block.bindings:
                ty = binding.ty if isinstance(binding, relax.MatchCast) else None
                _bind(binding.var, self._value(binding.value, scope, sizes), scope, sizes, ty)
        return self._value(expr.body, scope, sizes)

    def _call(self, call: Any, scope: dict[Any, Value], sizes: dict[Any, int]) -> Value:
        if isinstance(call.op, tvm.ir.GlobalVar):
            return self.call(str(call.op.name_hint), [self._value(a, scope, sizes) for a in call.args])
        name = str(getattr(call.op, "name", call.op))
        if name == "relax.call_tir":
            return self._call_tir(call, scope, sizes)
        if name == "relax.shape_of":
            return Shape(np.shape(self._value(call.args[0], scope, sizes)))
        raise NotInterpretable(f"{name} is no PrimFunc after legalisation")

    def _call_tir(self, call: Any, scope: dict[Any, Value], sizes: dict[Any, int]) -> Value:
        func = self._mod[call.args[0]]
        arguments = self._value(call.args[1], scope, sizes)
        operands = [Masked.of(np.asarray(a)[None]) for a in arguments]
        given = list(self._value(call.args[2], scope, sizes)) if len(call.args) > 2 else []
        plain = [p for p in func.params if type(p.ty) is not tirx.BufferType]
        names = {str(p.name): n for p, n in zip(plain, given, strict=False)}
        try:
            results = [r.values[0] for r in run_prim_func(func, operands, {**_sizes_of(call, func, sizes), **names})]
        except InterpreterError as error:
            raise NotInterpretable(str(error)) from error
        return results if isinstance(call.ty_args[0], relax.TupleType) else results[0]


def _sizes_of(call: Any, func: Any, sizes: Mapping[Any, int]) -> dict[str, int]:
    """What the symbols in the types of results are: by position, from the types that the call states."""
    ty = call.ty_args[0]
    types = list(ty.fields) if isinstance(ty, relax.TupleType) else [ty]
    tensors = [p for p in func.params if type(p.ty) is tirx.BufferType]
    found: dict[str, int] = {}
    for param, stated in zip(tensors[len(tensors) - len(types) :], types, strict=True):
        for extent, said in zip(param.ty.shape, stated.shape.values, strict=True):
            if type(extent) is tvm.ir.Var:
                found[str(extent.name)] = _size(said, sizes)
    return found


def _bind(var: Any, value: Value, scope: dict[Any, Value], sizes: dict[Any, int], ty: Any = None) -> None:
    """Binds a variable, and the sizes that its type names."""
    scope[var] = value
    ty = var.ty if ty is None else ty
    if isinstance(ty, relax.TupleType):
        for field, part in zip(ty.fields, value, strict=True):
            _bind_sizes(field, part, sizes)
    else:
        _bind_sizes(ty, value, sizes)


def _bind_sizes(ty: Any, value: Value, sizes: dict[Any, int]) -> None:
    if isinstance(ty, relax.TupleType):
        for field, part in zip(ty.fields, value, strict=True):
            _bind_sizes(field, part, sizes)
        return
    extents = ty.values if isinstance(ty, relax.ShapeType) else getattr(getattr(ty, "shape", None), "values", None)
    actual = value if isinstance(value, Shape) else np.shape(value)
    for extent, size in zip(extents or (), actual, strict=False):
        if isinstance(extent, tvm.ir.Var):
            sizes.setdefault(extent, int(size))


def _size(expr: Any, sizes: Mapping[Any, int]) -> int:
    if isinstance(expr, tirx.IntImm):
        return int(expr)
    if isinstance(expr, tvm.ir.Var):
        if expr not in sizes:
            raise NotInterpretable(f"nobody says how large {expr.name} is")
        return sizes[expr]
    operation = _SIZES.get(type(expr))
    if operation is None:
        raise NotInterpretable(f"no words for a size that is a {type(expr).__name__}")
    return int(operation(_size(expr.a, sizes), _size(expr.b, sizes)))


_SIZES: dict[Any, Callable[[int, int], int]] = {
    tirx.Add: operator.add,
    tirx.Sub: operator.sub,
    tirx.Mul: operator.mul,
    tirx.FloorDiv: operator.floordiv,
    tirx.FloorMod: operator.mod,
    tirx.Min: min,
    tirx.Max: max,
}
