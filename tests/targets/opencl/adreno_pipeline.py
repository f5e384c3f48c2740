"""TVM's own way to textures, as far as Relax goes: layouts by name, scopes by vote, copies folded. To compare with.

In: a module. Out: what TVM's passes for Adreno make of it, and what of that only copies.
"""

from __future__ import annotations

from typing import Any, Final

import tvm
from tvm import ir, relax
from tvm.relax.backend.adreno import transform as adreno
from tvm.relax.transform.legalize_ops import adreno as legalize_adreno

_LATER: Final = ("relax.nn.conv2d", "relax.nn.max_pool2d", "relax.nn.adaptive_avg_pool2d")
_COPIES: Final = ("te_layout_transform", "layout_transform", "transpose", "to_vdevice")


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


def copies_of_tvm(planned: Any) -> int:
    """Kernels that only copy, and copies from one scope to another."""
    return sum(name.startswith(_COPIES) for name in launches_of_tvm(planned))


def launches_of_tvm(planned: Any) -> list[str]:
    """Kernels by name, and copies between scopes as ``to_vdevice``; one with several stages may be several launches."""
    values = [binding.value for block in planned["main"].body.blocks for binding in block.bindings]
    calls = [value for value in values if isinstance(value, relax.Call)]
    kernel, moved = (ir.Op.get(f"relax.{name}") for name in ("call_tir", "to_vdevice"))
    found = [call for call in calls if call.op in (kernel, moved)]
    return ["to_vdevice" if call.op == moved else str(call.args[0].name_hint) for call in found]
