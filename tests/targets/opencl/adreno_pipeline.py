"""TVM's own way to textures, as far as Relax goes: layouts by name, scopes by vote, copies folded. To compare with."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import ir, relax
from tvm.relax.backend.adreno import transform as adreno
from tvm.relax.transform.legalize_ops import adreno as legalize_adreno

_LATER = ("relax.nn.conv2d", "relax.nn.max_pool2d", "relax.nn.adaptive_avg_pool2d")


def planned_by_tvm(mod: Any) -> Any:
    """The module that TVM's passes for Adreno make, fused, with copies between scopes where they are left."""
    target = tvm.target.Target({"kind": "opencl", "device": "adreno"}, host="llvm")
    passes = relax.transform
    with target:
        for one in (
            tvm.tirx.transform.BindTarget(target),
            passes.DecomposeOpsForInference(),
            passes.FoldConstant(),
            passes.ConvertLayout({"relax.nn.conv2d": ["NCHW4c", "OIHW4o", "NCHW4c"]}),
            passes.Normalize(),
            passes.FoldConstant(),
            passes.LegalizeOps(skip_ops=list(_LATER)),
            passes.AnnotateTIROpPattern(),
            adreno.AnnotateCustomMemoryScope(target),
            passes.LegalizeOps(),
            passes.LegalizeOps({"relax.nn.conv2d": legalize_adreno.conv2d_NCHWc_OIHWo}),
            passes.AnnotateTIROpPattern(),
            passes.FoldConstant(),
            passes.FuseOps(),
            passes.FuseTIR(),
            passes.DeadCodeElimination(),
            adreno.FoldVDeviceScopeChange(),
            passes.DeadCodeElimination(),
        ):
            mod = one(mod)
    return mod


def copies_of_tvm(mod: Any) -> int:
    """Kernels that only copy, and copies from one scope to another."""
    calls = [b.value for block in planned_by_tvm(mod)["main"].body.blocks for b in block.bindings]
    calls = [call for call in calls if isinstance(call, relax.Call)]
    kernels = [str(c.args[0].name_hint) for c in calls if c.op == ir.Op.get("relax.call_tir")]
    moved = sum(c.op == ir.Op.get("relax.to_vdevice") for c in calls)
    return moved + sum(name.startswith(("te_layout_transform", "layout_transform", "transpose")) for name in kernels)
