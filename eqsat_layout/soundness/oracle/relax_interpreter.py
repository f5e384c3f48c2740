"""Reference interpreter of Relax in NumPy.

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
from eqsat_layout.soundness.oracle.tir_interpreter import Interpreter, InterpreterError, Masked

Value = Any
"""An array, a shape (a tuple of numbers in a :class:`Shape`), or a list of values for a tuple.

Arrays have worlds in front, or one for what is the same in all of them; shapes are those of one world.
"""


class NotInterpretable(EqsatError):
    """Something that is no PrimFunc, or TIR that the interpreter has no words for; the message names it."""


class Shape(tuple[int, ...]):
    """The value of a shape expression."""


def run_function(mod: Any, name: str, inputs: Sequence[Value]) -> Value:
    """What function ``name`` gives: an array, a :class:`Shape`, or a list for a tuple.

    ``inputs`` are arrays, lists or tuples of them for tuples, and tuples of numbers for shapes. Raises
    :class:`NotInterpretable` for what is no PrimFunc, and for inputs or casts whose sizes contradict each other.
    """
    legal = legalize(mod)
    worlds = [_in_a_world(param.ty, value) for param, value in zip(legal[name].params, inputs, strict=True)]
    return _alone(RelaxInterpreter(legal).call(name, worlds))


def _in_a_world(ty: Any, value: Value) -> Value:
    """A value without worlds as one of one world."""
    if isinstance(ty, relax.TupleType):
        return [_in_a_world(field, part) for field, part in zip(ty.fields, value, strict=True)]
    return np.asarray(value)[None] if isinstance(ty, relax.TensorType) else value


def _alone(value: Value) -> Value:
    """What a value of one world is there."""
    if isinstance(value, list):
        return [_alone(part) for part in value]
    return np.asarray(value[0]) if isinstance(value, np.ndarray) else value


class RelaxInterpreter:
    """Interprets a legalised module; its kernels are compiled once."""

    def __init__(self, mod: Any, device_world: int | None = None) -> None:
        """``device_world``: see :func:`run_prim_func`."""
        self._mod, self._device_world = mod, device_world
        self._kernels: dict[Any, Interpreter] = {}

    @property
    def work(self) -> int:
        """Of all its kernels so far; see :class:`Interpreter`."""
        return sum(kernel.work for kernel in self._kernels.values())

    def call(self, name: str, inputs: Sequence[Value]) -> Value:
        """See :func:`run_function`; in all worlds at once."""
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
            conditions = np.unique(self._value(expr.cond, scope, sizes))
            if len(conditions) > 1:
                raise NotInterpretable("a condition differs between worlds")
            return self._value(expr.true_branch if conditions[0] else expr.false_branch, dict(scope), sizes)
        if type(expr.ty) is tvm.ir.PrimType and kind is not tvm.ir.Call:
            return _size(expr, sizes)
        if hasattr(expr, "value") and hasattr(expr.value, "numpy"):
            return expr.value.numpy()[None]
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
        if name in ("relax.call_tir", "relax.call_tir_inplace"):
            return self._call_tir(call, scope, sizes)
        if name == "relax.shape_of":
            return Shape(np.shape(self._value(call.args[0], scope, sizes))[1:])
        raise NotInterpretable(f"{name} is no PrimFunc after legalisation")

    def _call_tir(self, call: Any, scope: dict[Any, Value], sizes: dict[Any, int]) -> Value:
        func = self._mod[call.args[0]]
        kernel = self._kernels.get(call.args[0])
        if kernel is None:
            kernel = self._kernels[call.args[0]] = Interpreter(func, self._device_world)
        operands: list[Any] = []
        names: dict[str, int] = {}
        for param, argument in zip(func.params, self._value(call.args[1], scope, sizes), strict=False):
            if type(param.ty) is tirx.BufferType:
                operands.append(argument)
            else:
                names[str(param.name)] = int(argument)
        in_place = [int(i) for i in getattr(call.attrs, "inplace_indices", ())]
        try:
            known = names if in_place else {**_sizes_of(call, func, sizes), **names}
            tensors = kernel.run_in_place(_in_the_same_worlds(operands), known)
        except InterpreterError as error:
            raise NotInterpretable(str(error)) from error
        fresh = iter(tensors[len(operands) :])
        chosen = [tensors[i] if i >= 0 else next(fresh) for i in in_place] if in_place else list(fresh)
        results = [tensor.values for tensor in chosen]
        return results if isinstance(call.ty_args[0], relax.TupleType) else results[0]


def _in_the_same_worlds(arrays: Sequence[Any]) -> list[Masked]:
    worlds = max(map(len, arrays), default=1)
    return [Masked.of(np.broadcast_to(array, (worlds, *array.shape[1:]))) for array in arrays]


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
    """Binds a variable, and the sizes that its type (or the type it is cast to) names."""
    scope[var] = _typed(var.ty if ty is None else ty, value, sizes)
    if isinstance(var.ty, tvm.ir.PrimType):
        sizes[var] = int(value)


def _typed(ty: Any, value: Value, sizes: dict[Any, int]) -> Value:
    """``value`` as one of ``ty``, whose symbols get their sizes; raises where they have others."""
    if isinstance(ty, relax.TupleType):
        return [_typed(field, part, sizes) for field, part in zip(ty.fields, value, strict=True)]
    if isinstance(ty, relax.ShapeType):
        value = Shape(int(n) for n in value)
        extents, actual = ty.values, tuple(value)
    elif isinstance(ty, relax.TensorType):
        extents, actual = getattr(ty.shape, "values", None), np.shape(value)[1:]
    else:
        return value
    if extents is None:
        return value
    if len(extents) != len(actual):
        raise NotInterpretable(f"a value of shape {list(actual)} is no {ty}")
    for extent, size in zip(extents, actual, strict=True):
        if isinstance(extent, tvm.ir.Var):
            sizes.setdefault(extent, int(size))
    if any(_size(extent, sizes) != size for extent, size in zip(extents, actual, strict=True)):
        raise NotInterpretable(f"a value of shape {list(actual)} is no {ty}")
    return value


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
