"""A call alone, as tests of the types of ops make it, as a program of its free variables.

In: a call. Out: a module of one function. A tensor whose shape is a variable has sizes with names; sizes that no tensor
has are a parameter of their own; and devices that types name are the module's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx


def program_of(call: Any, normalize: Callable[[Any], Any]) -> Any:
    """See above; ``normalize``: a block builder's. Raises what TVM raises where sizes with names don't fit."""
    opened = _Opened()
    typed = normalize(opened.expr(call))
    result = relax.Var("result", typed.ty)
    block = relax.BindingBlock([relax.VarBinding(result, typed)])
    body = normalize(relax.SeqExpr([block], result))
    params = list(opened.variables.values())
    function = relax.Function(params, body, is_pure=False)
    if missing := list(relax.analysis.free_symbolic_vars(function)):
        sizes = relax.Var("sizes", relax.ShapeType(missing))
        function = relax.Function([sizes, *params], body, is_pure=False)
    mod = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    devices = list[Any]()
    for device in (device for var in (*params, result) for device in _devices(var.ty)):
        if not any(tvm_ffi.Object.same_as(device, other) for other in devices):  # VDevice's own recurses
            devices.append(device)
    if devices:
        mod.update_global_info("vdevice", devices)
    return mod


@dataclass
class _Opened:
    """Expressions with shapes that are variables replaced, and the free variables as they are then."""

    variables: dict[Any, Any] = field(default_factory=dict)
    _sizes: dict[Any, Any] = field(default_factory=dict)

    def expr(self, expr: Any) -> Any:
        if isinstance(expr, relax.Var):
            if isinstance(expr.ty, relax.ShapeType) and expr.ty.ndim >= 0:
                return self._sizes_of(expr)
            if expr not in self.variables:
                self.variables[expr] = relax.Var(str(expr.name), self._opened(expr.ty))
            return self.variables[expr]
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self.expr(each) for each in expr.fields])
        if isinstance(expr, relax.TupleGetItem):
            return relax.TupleGetItem(self.expr(expr.tuple_value), expr.index)
        if isinstance(expr, tvm.ir.Call) and isinstance(expr.op, tvm.ir.Op):
            return relax.Call(expr.op, [self.expr(arg) for arg in expr.args], expr.attrs, expr.ty_args)
        return expr

    def _opened(self, ty: Any) -> Any:
        if isinstance(ty, relax.TupleType):
            return relax.TupleType([self._opened(each) for each in ty.fields])
        if isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.Var):
            if ty.ndim < 0:
                return relax.TensorType(None, ty.dtype, ty.vdevice)
            return relax.TensorType(self._sizes_of(ty.shape), ty.dtype, ty.vdevice)
        return ty

    def _sizes_of(self, shape: Any) -> Any:
        """Those of a variable: its own, whenever it is met."""
        if shape.ty.values is not None:
            return relax.ShapeExpr(shape.ty.values)
        if shape not in self._sizes:
            names = [f"{shape.name}{i}" for i in range(shape.ty.ndim)]
            self._sizes[shape] = relax.ShapeExpr([tirx.Var(name, "int64") for name in names])
        return self._sizes[shape]


def _devices(ty: Any) -> Iterator[Any]:
    if isinstance(ty, relax.TupleType):
        for each in ty.fields:
            yield from _devices(each)
    elif isinstance(ty, relax.TensorType) and ty.vdevice is not None:
        yield ty.vdevice
