"""Memory scopes as Relax says them: virtual devices on the types of tensors.

In: a module whose PrimFuncs declare buffers in memory scopes. Out: the same, the results of their calls, and constants
among their operands, typed with the virtual devices of those scopes, which are among the module's global infos.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tvm
from tvm import ir, relax, tirx

from eqsat_layout.maps import GLOBAL
from eqsat_layout.tir.structural import with_relax_functions


def with_vdevices(mod: tvm.IRModule, make: Callable[[str], Any]) -> tvm.IRModule:
    """``mod`` itself where all lies in ordinary memory. ``make`` gives the ``VDevice`` of a scope."""
    known = {str(device.memory_scope): device for device in mod.global_infos.get("vdevice", [])}
    placer = _Placer(mod, known, make)
    placed = with_relax_functions(mod, placer.visit_expr)
    if not placer.has_placed:
        return mod
    infos = dict(mod.global_infos.items()) | {"vdevice": list(known.values())}
    return tvm.IRModule(dict(placed.functions_items()), attrs=mod.attrs, global_infos=infos)


def scope_of(ty: Any) -> str:
    """The memory that a tensor's type names."""
    device = getattr(ty, "vdevice", None)
    return GLOBAL if device is None else str(device.memory_scope) or GLOBAL


def scopes_in(ty: Any) -> list[str]:
    """The memories other than the ordinary one that a type, perhaps of a tuple, names."""
    if isinstance(ty, relax.TupleType):
        return list(dict.fromkeys(scope for field in ty.fields for scope in scopes_in(field)))
    scope = scope_of(ty)
    return [] if scope == GLOBAL else [scope]


def buffer_scopes(func: Any) -> list[str]:
    """The memory of each buffer among the parameters of a PrimFunc."""
    return [buffer_scope(param) for param in func.params if type(param.ty) is tirx.BufferType]


def buffer_scope(buffer: Any) -> str:
    """The memory that a buffer is declared in."""
    return str(buffer.ty.storage_scope) or GLOBAL


def without_device(ty: Any) -> Any:
    """The type of the same tensor in ordinary memory: what an op computes does not depend on where its operands lie."""
    if isinstance(ty, relax.TupleType):
        return relax.TupleType([without_device(field) for field in ty.fields])
    is_placed = isinstance(ty, relax.TensorType) and ty.vdevice is not None and ty.shape is not None
    return relax.TensorType(ty.shape, ty.dtype) if is_placed else ty


def ordinary_device(types: Iterable[Any]) -> Any:
    """The virtual device that some of these tensors name for ordinary memory; ``None`` where none does."""
    devices = (ty.vdevice for ty in types if isinstance(ty, relax.TensorType) and ty.vdevice is not None)
    return next((d for d in devices if (str(d.memory_scope) or GLOBAL) == GLOBAL), None)


def on_device(expr: Any, device: Any) -> Any:
    """A call whose one tensor lies on ``device``; ``expr`` itself where it names another one, or is no such call."""
    ty = expr.ty
    if device is None or not isinstance(expr, ir.Call) or not isinstance(ty, relax.TensorType):
        return expr
    if ty.vdevice is not None or ty.shape is None:
        return expr
    placed = relax.TensorType(ty.shape, ty.dtype, device)
    given = [placed if isinstance(own, relax.TensorType) else own for own in expr.ty_args or ()]
    return relax.Call(expr.op, expr.args, expr.attrs, given, ret_ty=placed)


@relax.expr_functor.mutator
class _Placer(relax.PyExprMutator):  # type: ignore[misc]
    """Types results by the scopes of the buffers that they are written to. ``known``: virtual devices by scope."""

    def __init__(self, mod: tvm.IRModule, known: dict[str, Any], make: Callable[[str], Any]) -> None:
        super().__init__(mod)
        self._mod, self._known, self._make = mod, known, make
        self.has_placed = False

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if call.op != ir.Op.get("relax.call_tir"):
            return call
        func = self._mod.functions.get(call.args[0])
        (out,) = call.ty_args
        types = list(out.fields) if isinstance(out, relax.TupleType) else [out]
        if not isinstance(func, tirx.PrimFunc):
            return call
        buffers = [p for p in func.params if type(p.ty) is tirx.BufferType][-len(types) :]
        if len(buffers) < len(types):  # handles, of which no scope is known
            return call
        placed = [self._placed(ty, buffer) for ty, buffer in zip(types, buffers, strict=True)]
        operands = self._operands(call.args[1], func.params)
        if operands is call.args[1] and all(new is old for new, old in zip(placed, types, strict=True)):
            return call
        self.has_placed = True
        result = relax.TupleType(placed) if isinstance(out, relax.TupleType) else placed[0]
        return relax.Call(call.op, [call.args[0], operands, *list(call.args)[2:]], call.attrs, [result])

    def _operands(self, operands: Any, params: Any) -> Any:
        """The tuple of operands with its constants placed, itself where none is."""
        found = []
        for operand, param in zip(operands.fields, params, strict=False):
            before = operand.ty
            is_constant = isinstance(operand, ir.GenericConst) and type(param.ty) is tirx.BufferType
            after = self._placed(before, param) if is_constant else before
            found.append((operand, False) if after is before else (ir.GenericConst(operand.value, after), True))
        return relax.Tuple([operand for operand, _ in found]) if any(new for _, new in found) else operands

    def _placed(self, ty: Any, buffer: Any) -> Any:
        scope = buffer_scope(buffer)
        if scope in (GLOBAL, scope_of(ty)):
            return ty
        if scope not in self._known:
            self._known[scope] = self._make(scope)
        return relax.TensorType(ty.shape, ty.dtype, self._known[scope])
