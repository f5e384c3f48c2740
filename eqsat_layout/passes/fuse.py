"""Calls grouped into fused PrimFuncs by TVM's own rules.

In: a Relax module of ``call_tir`` calls. Out: the same with one PrimFunc per group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import tvm
from tvm import relax, tirx

from eqsat_layout.maps import GLOBAL
from eqsat_layout.notes import Notes

GROUP: Final = "Primitive"
"""What TVM marks a group with that is to become one PrimFunc."""
OPAQUE: Final = 8
"""TVM's number for a function that is fused with nothing (``OpPatternKind.kOpaque``)."""

Pass = Callable[[tvm.IRModule], tvm.IRModule]


def fuse(
    mod: tvm.IRModule, notes: Notes, *, annotated: Pass | None = None, grouped: Pass | None = None
) -> tvm.IRModule:
    """``mod`` with groups fused. What FuseTIR would spoil stays alone, and a note says why.

    ``annotated`` may change what TVM has found out of PrimFuncs, ``grouped`` is given groups as functions of calls.
    """
    alone = {var: reason for var, func in mod.functions_items() if (reason := _why_alone(func)) is not None}
    if alone:
        for reason in sorted(set(alone.values())):
            names = sorted(str(var.name_hint) for var, own in alone.items() if own == reason)
            notes.add(f"fused with nothing, because {reason}: {', '.join(names)}")
        functions = {
            var: func.with_attr("op_pattern", OPAQUE) if var in alone else func for var, func in mod.functions_items()
        }
        mod = tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
    mod = _with_public_functions(mod)
    passes = relax.transform
    for one in (
        passes.AnnotateTIROpPattern(),
        annotated,
        passes.FuseOps(),
        grouped,
        passes.FuseTIR(),
        passes.DeadCodeElimination(),
    ):
        mod = mod if one is None else one(mod)
    return mod


def _with_public_functions(mod: tvm.IRModule) -> tvm.IRModule:
    """Functions that are fused already but known outside stay what the outside calls: FuseTIR makes PrimFuncs of all
    that are marked."""
    marked = [
        var
        for var, func in mod.functions_items()
        if isinstance(func, relax.Function) and func.attrs and {"global_symbol", GROUP} <= set(func.attrs.keys())
    ]
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
    buffers = [param.ty for param in func.params if type(param.ty) is tirx.BufferType]
    if any(str(ty.storage_scope) not in ("", GLOBAL) for ty in buffers):
        return "TVM would put what lies between in their memory"
    if any(str(extent.ty.dtype) != "int64" for ty in buffers for extent in ty.shape):
        return "their shapes are not int64, as those of Relax are"
    return None
