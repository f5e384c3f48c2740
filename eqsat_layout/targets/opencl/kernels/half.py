"""Half precision on devices without its arithmetic: stored as halves, computed in single precision.

In: the nests of a PrimFunc and its parameters, or a PrimFunc without blocks. Out: the same with images of halves read
and written as floats, which images do by themselves, buffers of halves as bits that two functions of OpenCL C convert,
and all else in single precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import tvm
from tvm import ir, tirx

from eqsat_layout.targets.gpu.kernels.nests import Nest
from eqsat_layout.targets.gpu.kernels.vectors import is_image
from eqsat_layout.tir.structural import structural_map, substitute

_HALF, _SINGLE, _BITS = "float16", "float32", "uint16"

READ: Final = "eqsat_half_to_float"
WRITE: Final = "eqsat_float_to_half"

FUNCTIONS: Final = f"""#ifndef EQSAT_HALF
#define EQSAT_HALF
float {READ}(ushort bits) {{ return vload_half(0, (const __private half*)&bits); }}
ushort {WRITE}(float value) {{ ushort bits; vstore_half(value, 0, (__private half*)&bits); return bits; }}
#endif
"""
"""Core OpenCL C: no extension is needed. Kernels that are built together have them once."""

_BINARY: Final = (
    *(tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod, tirx.Min, tirx.Max),
    *(tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE),
)


def halves_in_single_precision(func: Any, nests: Sequence[Nest]) -> tuple[Any, list[Nest]]:
    """``func`` with other parameters, and its nests over these."""
    single = _Single(func.params)
    found = [one for nest in nests for one in single.nest(nest)]
    params = [single.buffers.get(p, p) for p in func.params]
    return tirx.PrimFunc(params, func.body, ret_type=func.ret_type, attrs=func.attrs), found


def body_in_single_precision(func: Any) -> Any:
    """The same for a function of plain statements."""
    single = _Single(func.params)
    params = [single.buffers.get(p, p) for p in func.params]
    return tirx.PrimFunc(params, single.mapped(func.body), ret_type=func.ret_type, attrs=func.attrs)


def with_types_of(known: Any, func: Any) -> Any:
    """A host function of the same memory, whose parameters have the types of those of ``known``."""
    new: dict[Any, Any] = {}
    for stated, param in zip(known.params, func.params, strict=False):
        is_buffer = type(param.ty) is tirx.BufferType and type(stated.ty) is tirx.BufferType
        if is_buffer and str(param.ty.dtype) != str(stated.ty.dtype):
            new[param] = _typed(param, str(stated.ty.dtype))
    if not new:
        return func
    params = [new.get(p, p) for p in func.params]
    return tirx.PrimFunc(params, substitute(func.body, new), ret_type=func.ret_type, attrs=func.attrs)


class _Single:
    def __init__(self, params: Sequence[Any]) -> None:
        self.buffers: dict[Any, Any] = {}
        self._stored: set[Any] = set()
        self._vars: dict[Any, Any] = {}
        for param in params:
            if type(param.ty) is tirx.BufferType and str(param.ty.dtype) == _HALF:
                self.buffers[param] = _typed(param, _SINGLE if is_image(param) else _BITS)
                self._stored |= set() if is_image(param) else {param}

    def nest(self, nest: Nest) -> list[Nest]:
        """The nest; a reduction into a buffer of halves is one into registers, and a copy."""
        copies: list[Nest] = []
        if nest.reduced:
            nest, copies = self._apart(nest)
        inits, stores = (tuple(map(self.mapped, part)) for part in (nest.inits, nest.stores))
        plain = [replace(copy, stores=tuple(map(self.mapped, copy.stores))) for copy in copies]
        return [replace(nest, inits=inits, stores=stores), *plain]

    def _apart(self, nest: Nest) -> tuple[Nest, list[Nest]]:
        halves = [buffer for buffer in nest.buffers if buffer in self._stored]
        inside = {b: tirx.decl_buffer(b.ty.shape, _HALF, f"{b.name}_sum", layout=None) for b in halves}
        if not inside:
            return nest, []

        def on_load(load: Any) -> Any:
            return tirx.BufferLoad(inside[load.source], list(load.indices)) if load.source in inside else load

        def on_store(store: Any) -> Any:
            return tirx.BufferStore(inside.get(store.buffer, store.buffer), store.value, list(store.indices))

        rules = ((ir.expr.TensorLoad, on_load), (tirx.BufferStore, on_store))
        inits, stores = (tuple(structural_map(one, *rules) for one in part) for part in (nest.inits, nest.stores))
        copies = []
        for number, store in enumerate(nest.stores):
            if store.buffer in inside:
                at = list(store.indices)
                copy = tirx.BufferStore(store.buffer, tirx.BufferLoad(inside[store.buffer], at), at)
                copies.append(Nest(f"{nest.name}_{number}", nest.spatial, (), (), (copy,)))
        return replace(nest, inits=inits, stores=stores), copies

    def mapped(self, node: Any) -> Any:
        """A statement or an expression."""
        return structural_map(
            node,
            (tirx.FloatImm, self._number),
            (tvm.ir.Var, self._var),
            (ir.expr.TensorLoad, self._load),
            (_BINARY, lambda n: type(n)(n.a, n.b)),
            (tirx.Cast, self._cast),
            (tirx.Select, lambda n: tirx.Select(n.condition, n.true_value, n.false_value)),
            (ir.Call, self._call),
            (tirx.BufferStore, self._store),
            (tirx.AllocBuffer, lambda n: tirx.AllocBuffer(self._buffer(n.buffer), n.annotations)),
        )

    def _number(self, number: Any) -> Any:
        return tirx.FloatImm(_SINGLE, float(number.value)) if str(number.ty.dtype) == _HALF else number

    def _var(self, var: Any) -> Any:
        if isinstance(var.ty, ir.PrimType) and str(var.ty.dtype) == _HALF:
            return self._vars.setdefault(var, tirx.Var(var.name, _SINGLE))
        return var

    def _buffer(self, buffer: Any) -> Any:
        if str(buffer.ty.dtype) != _HALF:
            return buffer
        return self.buffers.setdefault(buffer, _typed(buffer, _SINGLE))

    def _load(self, load: Any) -> Any:
        own = tirx.BufferLoad(self._buffer(load.source), list(load.indices))
        return tirx.call_pure_extern(_SINGLE, READ, own) if load.source in self._stored else own

    def _store(self, store: Any) -> Any:
        value = store.value
        if store.buffer in self._stored:
            value = tirx.call_pure_extern(_BITS, WRITE, value)
        return tirx.BufferStore(self._buffer(store.buffer), value, list(store.indices))

    def _cast(self, cast: Any) -> Any:
        dtype = str(cast.ty.dtype)
        dtype = _SINGLE if dtype == _HALF else dtype
        return cast.value if str(cast.value.ty.dtype) == dtype else tirx.Cast(dtype, cast.value)

    def _call(self, call: Any) -> Any:
        if not isinstance(call.ty, ir.PrimType) or str(call.ty.dtype) != _HALF:
            return call
        return ir.Call(call.op, list(call.args), attrs=call.attrs, ret_ty=ir.PrimType(_SINGLE))


def _typed(buffer: Any, dtype: str) -> Any:
    scope = str(buffer.ty.storage_scope)
    return tirx.decl_buffer(buffer.ty.shape, dtype, buffer.name, scope=scope, layout=None)
