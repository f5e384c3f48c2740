"""Calls grouped into fused PrimFuncs by TVM's own rules.

In: a Relax module of ``call_tir`` calls. Out: the same with one PrimFunc per group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx

from eqsat_layout.maps import GLOBAL
from eqsat_layout.notes import Notes, said_by
from eqsat_layout.passes.inlined import inlined
from eqsat_layout.passes.many_operands import MOST_JOINED, STEP
from eqsat_layout.passes.marks import fuse_ops
from eqsat_layout.passes.rounding import with_rounding
from eqsat_layout.tir.narrow_floats import NARROW
from eqsat_layout.tir.structural import nodes_of, substitute

GROUP: Final = "Primitive"
"""What TVM marks a group with that is to become one PrimFunc."""
OPAQUE: Final = 8
"""TVM's number for a function that is fused with nothing (``OpPatternKind.kOpaque``)."""

Pass = Callable[[tvm.IRModule], tvm.IRModule]


def fuse(
    mod: tvm.IRModule,
    notes: Notes,
    *,
    annotated: Pass | None = None,
    grouped: Pass | None = None,
    rounded: Collection[str] = NARROW,
) -> tvm.IRModule:
    """``mod`` with groups fused. What FuseTIR would spoil stays alone, and a note says why.

    ``annotated`` may change what TVM has found out of PrimFuncs, ``grouped`` is given groups as functions of calls.
    ``rounded``: types of values between ops that are not rounded as they are computed.
    """
    alone = {var: reason for var, func in mod.functions_items() if (reason := _why_alone(func)) is not None}
    alone |= dict.fromkeys(_mistaken(mod), "TVM's FuseTIR would take one of their sizes for another")
    for reason in sorted(set(alone.values())):
        names = sorted(str(var.name_hint) for var, own in alone.items() if own == reason)
        notes.add(f"fused with nothing, because {reason}: {', '.join(names)}")
    mod = _with_public_functions(
        tirx.transform.Apply(lambda func: with_rounding(func, rounded))(_with_alone(mod, alone))
    )
    groups = _in_groups(mod, annotated)
    if wide := _too_wide(groups):
        groups = _in_groups(_with_alone(mod, wide), annotated)
    return relax.transform.DeadCodeElimination()(_with_kernels(groups if grouped is None else grouped(groups), notes))


def _with_alone(mod: tvm.IRModule, alone: Collection[Any]) -> tvm.IRModule:
    """``mod`` with PrimFuncs that are fused with nothing."""
    functions = {
        var: func.with_attr("op_pattern", OPAQUE) if var in alone else func for var, func in mod.functions_items()
    }
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos) if alone else mod


def _in_groups(mod: tvm.IRModule, annotated: Pass | None) -> tvm.IRModule:
    mod = relax.transform.AnnotateTIROpPattern()(mod)
    return fuse_ops(mod if annotated is None else annotated(mod))


def _too_wide(mod: tvm.IRModule) -> set[Any]:
    """PrimFuncs over many operands in groups over more than one kernel should have: steps of a join, which would be one
    again (:mod:`eqsat_layout.passes.many_operands`)."""
    groups = [group for group in _groups(mod).values() if len(group.params) > MOST_JOINED]
    calls = [call for group in groups for call in _calls_in(group) if _is_kernel_call(mod, call)]
    return {call.args[0] for call in calls if len(call.args[1].fields) >= STEP}


def _with_kernels(mod: tvm.IRModule, notes: Notes) -> tvm.IRModule:
    """``mod`` with a PrimFunc for each group. A group that FuseTIR can't do is the calls that it was made of."""
    mod = _dissolved(mod, {var: group for var, group in _groups(mod).items() if not _has_kernels(group)})
    try:
        return relax.transform.FuseTIR()(mod)
    except tvm.error.InternalError as error:
        groups = _groups(mod)
        hopeless = {var: group for var, group in groups.items() if not _is_fusible(mod, var, groups)}
        if not hopeless:
            raise
        names = ", ".join(sorted(str(var.name_hint) for var in hopeless))
        notes.add(f"not fused, because TVM's FuseTIR fails ({said_by(error)}): {names}")
        return relax.transform.FuseTIR()(_dissolved(mod, hopeless))


def _groups(mod: tvm.IRModule) -> dict[Any, Any]:
    """Functions that FuseTIR makes PrimFuncs of."""
    return {
        var: func
        for var, func in mod.functions_items()
        if isinstance(func, relax.Function) and func.attrs and GROUP in func.attrs
    }


def _has_kernels(group: Any) -> bool:
    """Whether it calls anything: FuseOps makes groups of nothing but parts of tuples inside tuples, too."""
    return any(isinstance(binding.value, tvm.ir.Call) for block in group.body.blocks for binding in block.bindings)


def _mistaken(mod: tvm.IRModule) -> list[Any]:
    """PrimFuncs that are called with sizes that are not written as their own. FuseTIR goes through both side by side:
    of ``n + min(1, n)`` and ``min(1, m) + m`` it learns that ``m`` is ``min(1, n)``."""
    kernels = {
        var for var, func in mod.functions_items() if isinstance(func, tirx.PrimFunc) and _has_sums_as_sizes(func)
    }
    functions = [func for _, func in mod.functions_items() if isinstance(func, relax.Function)] if kernels else []
    calls = [call for func in functions for call in _calls_in(func) if call.args and call.args[0] in kernels]
    return [call.args[0] for call in calls if not _are_written_alike(mod, call)]


def _has_sums_as_sizes(func: Any) -> bool:
    """Some size is neither a number nor a symbol."""
    buffers = [param.ty for param in func.params if type(param.ty) is tirx.BufferType]
    return not all(isinstance(extent, tvm.ir.Var | tirx.IntImm) for ty in buffers for extent in ty.shape)


def _calls_in(func: Any) -> list[Any]:
    found: list[Any] = []
    relax.analysis.post_order_visit(func, lambda one: found.append(one) if isinstance(one, tvm.ir.Call) else None)
    return found


def _is_kernel_call(mod: tvm.IRModule, value: Any) -> bool:
    is_kernel = bool(value.args) and isinstance(value.args[0], tvm.ir.GlobalVar)
    return is_kernel and isinstance(mod[value.args[0]], tirx.PrimFunc)


def _are_written_alike(mod: tvm.IRModule, call: Any) -> bool:
    given = [one.ty for one in call.args[1].fields]
    given += list(call.ty.fields) if isinstance(call.ty, tvm.ir.TupleType) else [call.ty]
    buffers = [param.ty for param in mod[call.args[0]].params if type(param.ty) is tirx.BufferType]
    pairs = [
        pair
        for buffer, ty in zip(buffers, given, strict=False)
        if isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr)
        for pair in zip(buffer.shape, ty.shape.values, strict=False)
    ]
    known = {own: size for own, size in pairs if isinstance(own, tvm.ir.Var)}
    return all(
        tvm_ffi.structural_equal(substitute(own, known), size, map_free_vars=not all(v in known for v in _vars(own)))
        for own, size in pairs
        if not isinstance(own, tvm.ir.Var | tirx.IntImm)
    )


def _vars(value: Any) -> list[Any]:
    return nodes_of(value, tvm.ir.Var)


def _is_fusible(mod: tvm.IRModule, var: Any, groups: Mapping[Any, Any]) -> bool:
    others = {own: group for own, group in groups.items() if not own.same_as(var)}
    try:
        relax.transform.FuseTIR()(_dissolved(mod, others))
    except tvm.error.InternalError:
        return False
    return True


def _dissolved(mod: tvm.IRModule, groups: Mapping[Any, Any]) -> tvm.IRModule:
    """``mod`` with what is in the ``groups`` in the place of their calls."""
    if not groups:
        return mod
    functions = {
        var: inlined(func, groups) if isinstance(func, relax.Function) else func
        for var, func in mod.functions_items()
        if var not in groups
    }
    dissolved = tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
    normalised: tvm.IRModule = relax.transform.Normalize()(dissolved)
    return normalised


def _with_public_functions(mod: tvm.IRModule) -> tvm.IRModule:
    """Functions that are fused already but known outside stay what the outside calls: FuseTIR makes PrimFuncs of all
    that are marked."""
    marked = [var for var, group in _groups(mod).items() if "global_symbol" in group.attrs]
    if not marked:
        return mod
    mod = mod.clone()
    for var in marked:
        mod.update_func(var, mod[var].without_attr(GROUP))
    return mod


def _why_alone(func: Any) -> str | None:
    """Why TVM can't fuse a PrimFunc with others; ``None`` where it can."""
    if not isinstance(func, tirx.PrimFunc):
        return None
    if not isinstance(func.body, s_tir.SBlockRealize):
        return "their bodies are no blocks"
    buffers = [param.ty for param in func.params if type(param.ty) is tirx.BufferType]
    if any(str(ty.storage_scope) not in ("", GLOBAL) for ty in buffers):
        return "TVM would put what lies between in their memory"
    if any(str(extent.ty.dtype) != "int64" for ty in buffers for extent in ty.shape):
        return "their shapes are not int64, as those of Relax are"
    return None
