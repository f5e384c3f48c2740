"""The table of signatures: every distinct op of a module once, with its TIR and what the TIR says.

In: calls as the importer meets them. Out: :class:`Signature` by key. All Relax ops are legalised in one go, as one
module of one-op functions; what does not become exactly one PrimFunc over the call's tensors is left opaque.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import ir, relax, tirx

from eqsat_layout.errors import LayoutError
from eqsat_layout.graph.frozen import FROZEN_ATTRIBUTE
from eqsat_layout.graph.graph import Frozen, Signature, TensorType
from eqsat_layout.graph.legalize import legalize
from eqsat_layout.graph.templates import leaf_exprs, with_leaves
from eqsat_layout.maps import Format
from eqsat_layout.tir.signature import analyse, view_map


class SignatureTable:
    """Collects signatures while a module is read; :meth:`finish` legalises and analyses them all."""

    def __init__(self, mod: Any):
        self._mod = mod
        self._keys: dict[Any, str] = {}
        self._raw: dict[str, Signature] = {}

    def key_of(
        self,
        call: Any,
        operands: tuple[TensorType | None, ...],
        results: tuple[TensorType | None, ...],
        frozen: Frozen | None,
    ) -> str:
        """The key of ``call``; equal for calls that do the same to operands of the same types."""
        name = str(call.op.name) if isinstance(call.op, ir.Op) else "call"
        if None in operands or None in results or not isinstance(call.op, ir.Op):
            return self.key_of_opaque(call, name, operands, results)
        if name == "relax.call_tir":
            if len(call.args) != 2:
                return self.key_of_opaque(call, name, operands, results)
            name = str(call.args[0].name_hint)
            identity: tuple[Any, ...] = ("call_tir", name, operands, results, frozen)
        elif _is_plain(call):
            identity = (name, tvm_ffi.StructuralKey(call.attrs), _static_arguments(call), operands, results, frozen)
        else:
            return self.key_of_opaque(call, name, operands, results)
        key = self._keys.get(identity)
        if key is None:
            key = self._keys[identity] = f"{name}#{len(self._raw)}"
            self._raw[key] = Signature(key, name, operands, results, call, frozen=frozen)
        return key

    def key_of_opaque(
        self, template: Any, name: str, operands: Sequence[TensorType | None], results: Sequence[TensorType | None]
    ) -> str:
        """A key of its own: what is not understood is never taken for the same as anything else."""
        key = f"{name}#{len(self._raw)}"
        self._raw[key] = Signature(key, name, tuple(operands), tuple(results), template)
        return key

    def has_parts(self, key: str) -> bool:
        """The op's value is a tuple of tensors of known types, each with a layout of its own."""
        return key in self._raw and self._raw[key].is_tuple

    def finish(self) -> dict[str, Signature]:
        """All signatures, with their PrimFuncs and analyses."""
        pending = [s for s in self._raw.values() if s.results != (None,) and None not in s.operands]
        calls = [s for s in pending if isinstance(s.template.op, ir.Op) and s.template.op.name != "relax.call_tir"]
        funcs = dict(zip((s.key for s in calls), legalise_calls([s.template for s in calls]), strict=True))
        done: dict[str, Signature] = {}
        for key, raw in self._raw.items():
            func = funcs.get(key)
            frozen = raw.frozen
            if func is None and raw in pending and isinstance(raw.template.op, ir.Op):
                func, frozen = self._called(raw)
            done[key] = _analysed(raw, func, frozen)
        return done

    def _called(self, raw: Signature) -> tuple[Any, Frozen | None]:
        """The PrimFunc of a call_tir, and its frozen formats where it carries the attribute."""
        if raw.template.op.name != "relax.call_tir" or len(raw.template.args) != 2:
            return None, raw.frozen
        func = self._mod[raw.template.args[0]]
        if not isinstance(func, tirx.PrimFunc):
            return None, None
        if func.attrs is not None and func.attrs.get(FROZEN_ATTRIBUTE):
            return func, Frozen(_row_major(raw.operands), _row_major(raw.results))
        return func, None


def legalise_calls(calls: Sequence[Any]) -> list[Any]:
    """The PrimFunc of each Relax call, ``None`` where legalisation does not give exactly one over its tensors."""
    if not calls:
        return []
    builder = relax.BlockBuilder()
    names: list[str | None] = []
    for i, call in enumerate(calls):
        params = [relax.Var(f"p{j}", leaf.ty) for j, leaf in enumerate(leaf_exprs(call))]
        try:
            with builder.function(f"f{i}", params):
                with builder.dataflow():
                    output = builder.emit_output(with_leaves(call, params))
                builder.emit_func_output(output)
            names.append(f"f{i}")
        except Exception:
            if len(calls) == 1:
                return [None]
            return [legalise_calls([c])[0] for c in calls]
    mod = legalize(builder.finalize())
    return [_single_primfunc(mod, name) for name in names]


def _single_primfunc(mod: Any, name: str | None) -> Any:
    function = mod[name]
    bindings = [b for block in function.body.blocks for b in block.bindings]
    calls = [b.value for b in bindings if isinstance(b.value, ir.Call)]
    if len(calls) != 1 or any(not isinstance(b.value, ir.Call | ir.Var) for b in bindings):
        return None
    (call,) = calls
    if not isinstance(call.op, ir.Op) or call.op.name != "relax.call_tir" or len(call.args) != 2:
        return None
    operands = list(call.args[1].fields)
    if len(operands) != len(function.params):
        return None
    if not all(a.same_as(p) for a, p in zip(operands, function.params, strict=True)):
        return None
    func = mod[call.args[0]]
    return func if isinstance(func, tirx.PrimFunc) else None


def _analysed(raw: Signature, func: Any, frozen: Frozen | None) -> Signature:
    computation = analyse(func) if func is not None else None
    if frozen is not None and computation is None:
        if not all(f.is_row_major for f in (*frozen.operands, *frozen.results)):
            raise LayoutError(f"{raw.name}: can't be frozen to other layouts, its TIR is not understood")
        frozen = None  # it runs as it was written in any case
    view = view_map(computation) if computation is not None else None
    return Signature(
        raw.key, raw.name, raw.operands, raw.results, raw.template, func, computation, None if frozen else view, frozen
    )


def _row_major(types: Sequence[TensorType | None]) -> tuple[Format, ...]:
    return tuple(Format.row_major(t.shape) for t in types if t is not None)


def _is_plain(call: Any) -> bool:
    return all(not isinstance(arg, ir.GlobalVar | relax.ExternFunc | relax.Function) for arg in call.args)


def _static_arguments(call: Any) -> tuple[Any, ...]:
    """Arguments that are not tensors, and the nesting of those that are."""
    return tuple(_static(arg) for arg in call.args)


def _static(arg: Any) -> Any:
    if isinstance(arg, relax.Tuple):
        return tuple(_static(field) for field in arg.fields)
    if isinstance(arg, ir.GenericConst) or (isinstance(arg, ir.Var) and isinstance(arg.ty, relax.TensorType)):
        return "tensor"
    if isinstance(arg, ir.Var) and isinstance(arg.ty, relax.TupleType):
        return ("tensor",) * len(arg.ty.fields)
    return tvm_ffi.StructuralKey(arg)
