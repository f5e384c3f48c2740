"""The table of signatures: every distinct op of a module once, with its TIR and what the TIR says.

In: calls as the importer meets them. Out: :class:`Signature` by key. All Relax ops are legalised in one go, as one
module of one-op functions; what does not become exactly one PrimFunc over the call's tensors is left opaque.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache, partial
from typing import Any

import tvm_ffi
from tvm import ir, relax, tirx

from eqsat_layout.errors import ILL_TYPED, LayoutError, MalformedModuleError
from eqsat_layout.graph.borders import Part, parts_of
from eqsat_layout.graph.frozen import FROZEN_ATTRIBUTE
from eqsat_layout.graph.graph import Frozen, Lifted, Signature, TensorType
from eqsat_layout.graph.legalised_calls import Legalised, given, legalised_in_turn, primfunc_of
from eqsat_layout.graph.rotations import is_legalised_rightly
from eqsat_layout.graph.te_kernels import TeKernel
from eqsat_layout.graph.templates import settings_of, takes_tensors
from eqsat_layout.graph.vdevices import without_device
from eqsat_layout.maps import GLOBAL, Format, IndexMap
from eqsat_layout.tir.access_maps import view_map
from eqsat_layout.tir.callbacks import FlowCallbacks
from eqsat_layout.tir.extents import expr_of
from eqsat_layout.tir.hoist import Hoisted, hoist, moves_before_or_after
from eqsat_layout.tir.rewrite_form import split_computation
from eqsat_layout.tir.signature import Computation, analyse


class SignatureTable:
    """Collects signatures while a module is read; :meth:`finish` legalises and analyses them all."""

    def __init__(
        self,
        mod: Any,
        callbacks: FlowCallbacks | None = None,
        kernels: Mapping[str, TeKernel] | None = None,
        *,
        any_numbers: bool = False,
    ):
        self._mod, self._callbacks, self._any_numbers = mod, callbacks, any_numbers
        self._kernels = kernels or {}
        self._keys: dict[Any, str] = {}
        self._raw: dict[str, Signature] = {}
        self._where: dict[str, str] = {}
        self._hoisted: dict[str, Hoisted | None] = {}
        self._lowered: dict[str, Callable[[], Any]] = {}
        self._is_well_typed = False

    def key_of(
        self,
        where: str,
        call: Any,
        operands: tuple[TensorType | None, ...],
        results: tuple[TensorType | None, ...],
        frozen: Frozen | None,
        symbols: tuple[tuple[str, Any], ...] = (),
    ) -> str:
        """The key of ``call``; equal for calls that do the same to operands of the same types. ``where`` names it."""
        variables = tuple(hash(var) for _, var in symbols)
        name = str(call.op.name) if isinstance(call.op, ir.Op) else "call"
        is_empty = frozen is None and any(t is not None and 0 in t.shape for t in (*operands, *results))
        if is_empty or None in operands or None in results or not isinstance(call.op, ir.Op):
            return self.key_of_opaque(call, name, operands, results)  # TVM builds no copy of an empty tensor
        args = list(call.args)
        if name == "relax.call_tir":
            if not takes_tensors(call):
                return self.key_of_opaque(call, name, operands, results)
            name = str(args[0].name_hint)
            identity: tuple[Any, ...] = ("call_tir", name, operands, results, frozen, variables)
        elif any(isinstance(arg, ir.GlobalVar | relax.ExternFunc | relax.Function) for arg in args):
            return self.key_of_opaque(call, name, operands, results)
        else:
            identity = (name, settings_of(call), operands, results, frozen, variables)
        key = self._keys.get(identity)
        if key is None:
            key = self._keys[identity] = f"{name}#{len(self._raw)}"
            self._raw[key] = Signature(key, name, operands, results, call, frozen=frozen, symbols=symbols)
            self._where[key] = where
        return key

    def hoisted(
        self, call: Any, operands: Sequence[TensorType | None], results: Sequence[TensorType | None]
    ) -> Hoisted | None:
        """The called PrimFunc without the layout rewrites at its ends; ``None`` if there are none to lift out."""
        if not isinstance(call.op, ir.Op) or call.op.name != "relax.call_tir" or not takes_tensors(call):
            return None
        name = str(call.args[0].name_hint)
        if name not in self._hoisted:
            self._hoisted[name] = self._hoist(call.args[0])
        found = self._hoisted[name]
        if found is None or (found.operands, found.results) != (len(operands), len(results)):
            return None
        sides = ((found.pre, operands, "shape"), (found.post, results, "result_shape"))
        fits = all(ty is not None for ty in (*operands, *results)) and all(
            getattr(rewrite, side) == getattr(types[i], "shape", None)
            for rewrites, types, side in sides
            for i, rewrite in rewrites.items()
        )
        return found if fits else None

    def _hoist(self, callee: Any) -> Hoisted | None:
        name = str(callee.name_hint)
        kernel = self._kernels.get(name)
        known = None if kernel is None else kernel.computation
        if known is not None and not moves_before_or_after(known):
            return None
        func = self._lowered_of(callee)()
        return hoist(func) if isinstance(func, tirx.PrimFunc) and self._may_hoist(name) else None

    def _lowered_of(self, callee: Any) -> Callable[[], Any]:
        """What gives the function that is called."""
        name = str(callee.name_hint)
        if name not in self._lowered:
            kernel = self._kernels.get(name)
            made = partial(self._mod.__getitem__, callee) if kernel is None else primfunc_of(kernel, cache)
            self._lowered[name] = made
        return self._lowered[name]

    def _may_hoist(self, name: str) -> bool:
        """A PrimFunc that a flow callback speaks for stays whole: the callback knows its operands as they are."""
        if self._callbacks is None:
            return True
        return self._callbacks.named(name, self._mod[name], f"call_tir:{name}") is None

    def key_of_hoisted(
        self,
        where: str,
        name: str,
        func: Any,
        operands: Sequence[TensorType],
        results: Sequence[TensorType],
        symbols: tuple[tuple[str, Any], ...],
        lifted: Lifted | None,
    ) -> str:
        """The key of what is left of the PrimFunc called ``name`` when its rewrites are lifted out: ``func``."""
        identity = ("hoisted", name, tuple(operands), tuple(results), tuple(hash(var) for _, var in symbols))
        key = self._keys.get(identity)
        if key is None:
            key = self._keys[identity] = f"{name}#{len(self._raw)}"
            template = _call_of_tir(ir.GlobalVar(name), operands, results, dict(symbols))
            self._raw[key] = Signature(
                key, name, tuple(operands), tuple(results), template, given(func), symbols=symbols, lifted=lifted
            )
            self._where[key] = where
        return key

    def key_of_opaque(
        self, template: Any, name: str, operands: Sequence[TensorType | None], results: Sequence[TensorType | None]
    ) -> str:
        """A key of its own: what is not understood is never taken for the same as anything else."""
        key = f"{name}#{len(self._raw)}"
        self._raw[key] = Signature(key, name, tuple(operands), tuple(results), template)
        return key

    def key_of_placing(self, call: Any, operand: TensorType, result: TensorType) -> str:
        """The key of a call whose result is its operand in another memory: a view that renames nothing."""
        view = IndexMap.identity(operand.shape)
        key = self.key_of_opaque(call, str(call.op.name), (operand,), (result,))
        self._raw[key] = replace(self._raw[key], view=view, parts=(view,))
        return key

    def has_parts(self, key: str) -> bool:
        """The op's value is a tuple of tensors of known types, each with a layout of its own."""
        return key in self._raw and self._raw[key].is_tuple

    def finish(self) -> dict[str, Signature]:
        """All signatures, with their PrimFuncs and analyses. :class:`MalformedModuleError` for an ill-typed op."""
        calls = {s.key: s.template for s in self._raw.values() if self._is_op(s)}
        done: dict[str, Signature] = {}
        with closing(legalised_in_turn(list(calls.values()))) as legalised:
            for key, raw in self._raw.items():
                if raw.parts:
                    done[key] = raw
                    continue
                own = self._op_kernel(raw, next(legalised)) if key in calls else self._called(raw)
                done[key] = self._as_used(_analysed(own, self._where.get(key, raw.name)))
        return done

    def _as_used(self, signature: Signature) -> Signature:
        if signature.computation is None or not self._any_numbers:
            return signature
        return replace(signature, computation=replace(signature.computation, any_numbers=True))

    def _is_op(self, raw: Signature) -> bool:
        return raw.key in self._where and not raw.parts and raw.template.op.name != "relax.call_tir"

    def _op_kernel(self, raw: Signature, legalised: Legalised) -> Signature:
        """``raw`` with its kernel. Checks types once per signature; TVM's own check of every binding takes longer than
        the whole plan."""
        if legalised.type is None or not tvm_ffi.structural_equal(legalised.type, without_device(raw.template.ty)):
            self._check_types(raw.key)
        return replace(raw, lowered=legalised.lowered, computation=legalised.computation)

    def _check_types(self, key: str) -> None:
        """TVM may take the module: a type may be less exact than it could be."""
        if self._is_well_typed:
            return
        try:
            relax.analysis.well_formed(self._mod)
        except ILL_TYPED as error:
            raise MalformedModuleError(f"{self._where[key]}: {str(error).strip()}") from error
        self._is_well_typed = True

    def _called(self, raw: Signature) -> Signature:
        """With the PrimFunc of a call_tir, and its frozen formats where it carries the attribute."""
        if raw.key not in self._where:
            return raw
        if raw.lowered is None:
            callee = raw.template.args[0]
            kernel = self._kernels.get(str(callee.name_hint))
            raw = replace(raw, lowered=self._lowered_of(callee))
            if kernel is not None:
                return replace(raw, computation=kernel.computation, frozen=None)
        func = raw.func
        if not isinstance(func, tirx.PrimFunc):
            return replace(raw, lowered=None, frozen=None)
        is_frozen = func.attrs is not None and func.attrs.get(FROZEN_ATTRIBUTE)
        return replace(raw, frozen=Frozen(_row_major(raw.operands), _row_major(raw.results)) if is_frozen else None)


def _analysed(raw: Signature, where: str) -> Signature:
    """``raw`` with what its kernel computes."""
    if not is_legalised_rightly(raw):
        raw = replace(raw, lowered=None, computation=None)
    raw = _understood(raw)
    computation = raw.computation
    view = view_map(computation) if computation is not None and raw.frozen is None else None
    parts: tuple[Part, ...] = () if view is None else (view,)
    if computation is not None and raw.frozen is None and view is None:
        parts = parts_of(split_computation(computation) or ())
    done = replace(raw, view=view, parts=parts)
    if done.is_moved and computation is None and done.frozen is not None and done.frozen.required:
        raise LayoutError(f"{where}: can't be frozen to other layouts, its TIR is not understood")
    return done if computation is not None else replace(done, frozen=None)


def _understood(raw: Signature) -> Signature:
    """With the computation of its PrimFunc, if that is over the operands and the results."""
    computation = raw.computation
    if computation is None and raw.lowered is not None:
        computation = analyse(raw.func)
    if computation is not None and not _fits(computation, raw):
        func = _specialised(raw.func, raw)
        computation = analyse(func) if func is not None else None
        if computation is not None and not _fits(computation, raw):
            computation = None
        raw = replace(raw, lowered=given(func))
    return replace(raw, computation=computation)


def _specialised(func: Any, raw: Signature) -> Any:
    """A PrimFunc of symbolic sizes with the sizes, or the names of sizes, that this call has; None if there is none."""
    types = [*raw.operands, *raw.results]
    if len(func.params) != len(types) or any(type(p.ty) is not tirx.BufferType for p in func.params):
        return None
    if any(ty is None or len(p.ty.shape) != len(ty.shape) for p, ty in zip(func.params, types, strict=True)):
        return None
    sizes: dict[Any, Any] = {}
    names = {name: tirx.Var(name, "int64") for name, _ in raw.symbols}
    buffers: dict[Any, Any] = {}
    for param, ty in zip(func.params, types, strict=True):
        assert ty is not None
        for old, extent in zip(param.ty.shape, ty.shape, strict=True):
            if isinstance(old, ir.Var) and sizes.setdefault(old, extent) != extent:
                return None
        shape = [expr_of(extent, names) for extent in ty.shape]
        buffers[param] = tirx.decl_buffer(shape, param.ty.dtype, param.name)
    try:
        return func.specialize(buffers)
    except TypeError:  # sizes that TVM can't solve for
        return None


def _fits(computation: Computation, raw: Signature) -> bool:
    """The parameters of the PrimFunc are the operands and results of the call."""
    params = [computation.buffers[i] for i in (*computation.operands, *computation.results)]
    types = [*raw.operands, *raw.results]
    return len(params) == len(types) and all(
        t is not None and (b.shape, b.dtype) == (t.shape, t.dtype) and b.scope in (GLOBAL, t.scope)
        for b, t in zip(params, types, strict=True)
    )


def _call_of_tir(
    global_var: Any, operands: Sequence[TensorType], results: Sequence[TensorType], symbols: dict[str, Any]
) -> Any:
    """A ``call_tir`` over stand-in variables."""

    def type_of(ty: TensorType) -> Any:
        return relax.TensorType(relax.ShapeExpr([expr_of(e, symbols) for e in ty.shape]), ty.dtype)

    leaves = relax.Tuple([relax.Var(f"p{i}", type_of(t)) for i, t in enumerate(operands)])
    types = [type_of(t) for t in results]
    out = types[0] if len(types) == 1 else relax.TupleType(types)
    return relax.Call(ir.Op.get("relax.call_tir"), [global_var, leaves], None, [out], ret_ty=out)


def _row_major(types: Sequence[TensorType | None]) -> tuple[Format, ...]:
    return tuple(t.row_major for t in types if t is not None)
