"""Calls joined to kernels, whatever memories their operands and results lie in.

In: a legalised module whose PrimFuncs say the scopes of their buffers. Out: the same with one PrimFunc per group of
TVM's; what lies between the calls of a group lies nowhere. TVM joins what lies in ordinary memory, so scopes are taken
off before and put back on the ends of the groups. It joins nothing with a sum that has another layout; our kernels
take that along, so such functions are told to be elementwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import tvm
from tvm import ir, relax, tirx

from eqsat_layout.graph.vdevices import buffer_scope, buffer_scopes, with_vdevices, without_device
from eqsat_layout.maps import GLOBAL
from eqsat_layout.notes import Notes
from eqsat_layout.passes.fuse import GROUP, OPAQUE, Pass, fuse
from eqsat_layout.targets.gpu.kernels.functions import may_follow_sums
from eqsat_layout.tir.structural import substitute, with_primfuncs, with_relax_functions

_SCOPES: Final = "eqsat_layout.scopes"
"""The attribute of a PrimFunc without scopes: those that its parameters had, one text for each."""

_FOLLOWS: Final = 0
"""TVM's number for a function that is fused with the reduction before it (``OpPatternKind.kElemWise``)."""

Ends = Mapping[str, Sequence[str]]
"""By PrimFunc the scopes of its buffers."""


def joined_kernels(
    mod: tvm.IRModule, notes: Notes, make: Callable[[str], Any], annotated: Pass | None = None
) -> tvm.IRModule:
    """``make`` gives the ``VDevice`` of a scope; ``annotated`` says what TVM is told of PrimFuncs, else
    :func:`following`."""
    scopes: dict[str, Sequence[str]] = {}

    def remember(grouped: tvm.IRModule) -> tvm.IRModule:
        scopes.update(_ends_of_groups(grouped))
        return grouped

    joined_mod = fuse(without_scopes(mod), notes, annotated=annotated or following, grouped=remember)
    scoped = with_primfuncs(joined_mod, lambda name, func: with_scopes(func, _scopes_of(func) or scopes.get(name, ())))
    infos = {name: info for name, info in joined_mod.global_infos.items() if name != "vdevice"}
    return with_vdevices(tvm.IRModule(dict(scoped.functions_items()), attrs=scoped.attrs, global_infos=infos), make)


def following(mod: tvm.IRModule) -> tvm.IRModule:
    """Functions that kernels take along after a sum are elementwise to TVM."""

    def changed(_: str, func: Any) -> Any:
        follows = int(func.attrs["op_pattern"]) < OPAQUE and may_follow_sums(func)
        return func.with_attr("op_pattern", _FOLLOWS) if follows else func

    return with_primfuncs(mod, changed)


def without_scopes(mod: tvm.IRModule) -> tvm.IRModule:
    """All in ordinary memory; an attribute says where the buffers of a PrimFunc lay."""
    stripper = _Stripper(mod)
    return with_relax_functions(with_primfuncs(mod, _without_scopes), stripper.visit_expr)


def _without_scopes(_: str, func: Any) -> Any:
    scopes = buffer_scopes(func)
    plain = with_scopes(func, [GLOBAL] * len(scopes))
    return plain.with_attr(_SCOPES, scopes) if set(scopes) - {GLOBAL} else plain


def _scopes_of(func: Any) -> list[str]:
    said = func.attrs.get(_SCOPES) if func.attrs is not None else None
    return [] if said is None else list(map(str, said))


def with_scopes(func: Any, scopes: Sequence[str]) -> Any:
    """The PrimFunc with its first buffers in these scopes."""
    if func.attrs is not None and func.attrs.get(_SCOPES) is not None:
        func = func.without_attr(_SCOPES)
    buffers = [p for p in func.params if type(p.ty) is tirx.BufferType]
    new: dict[Any, Any] = {}
    for buffer, scope in zip(buffers, scopes, strict=False):
        if buffer_scope(buffer) != scope:
            new[buffer] = tirx.decl_buffer(buffer.ty.shape, buffer.ty.dtype, buffer.name, scope=scope, layout=None)
    if not new:
        return func
    params = [new.get(p, p) for p in func.params]
    return tirx.PrimFunc(params, substitute(func.body, new), ret_type=func.ret_type, attrs=func.attrs)


def _ends_of_groups(mod: tvm.IRModule) -> dict[str, Sequence[str]]:
    """The scopes of the buffers of what each group becomes: its parameters, then its results."""
    found: dict[str, Sequence[str]] = {}
    for var, func in mod.functions_items():
        if isinstance(func, relax.Function) and func.attrs is not None and func.attrs.get(GROUP) is not None:
            found[str(var.name_hint)] = _ends(mod, func)
    return found


def _ends(mod: tvm.IRModule, group: Any) -> list[str]:
    read: dict[Any, str] = {}
    written: dict[Any, Any] = {}
    for block in group.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, ir.Call) and value.op == ir.Op.get("relax.call_tir"):
                func = mod[value.args[0]]
                fields = [field for field in value.args[1].fields if isinstance(field.ty, relax.TensorType)]
                buffers = [p for p in func.params if type(p.ty) is tirx.BufferType]
                scopes = _scopes_of(func) or [GLOBAL] * len(buffers)
                read.update((field, scope) for field, scope in zip(fields, scopes, strict=False))
                own = scopes[len(fields) :]
                written[binding.var] = list(own) if isinstance(binding.var.ty, relax.TupleType) else own[0]
            else:
                written[binding.var] = _known(value, written)
    results = _known(group.body.body, written)
    return [*(read.get(p, GLOBAL) for p in group.params), *(results if isinstance(results, list) else [results])]


def _known(expr: Any, written: Mapping[Any, Any]) -> Any:
    if isinstance(expr, relax.Tuple):
        return [_known(field, written) for field in expr.fields]
    if isinstance(expr, relax.TupleGetItem):
        return _known(expr.tuple_value, written)[int(expr.index)]
    return written.get(expr, GLOBAL)


@relax.expr_functor.mutator
class _Stripper(relax.PyExprMutator):  # type: ignore[misc]
    """Types without virtual devices."""

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if call.op != ir.Op.get("relax.call_tir"):
            return call
        fields = [self._constant(field) for field in call.args[1].fields]
        args = [call.args[0], relax.Tuple(fields), *list(call.args)[2:]]
        return relax.Call(call.op, args, call.attrs, [without_device(ty) for ty in call.ty_args])

    def _constant(self, expr: Any) -> Any:
        is_placed = isinstance(expr, ir.GenericConst) and getattr(expr.ty, "vdevice", None) is not None
        return ir.GenericConst(expr.value, without_device(expr.ty)) if is_placed else expr
