"""TVM's own way to OpenCL on Adreno, as far as it goes: its pipelines, its schedules, its lowering, run by our host.

In: a module. Out: a :class:`MadeByTvm`: the kernels that TVM makes, with textures as its passes for Adreno place them,
or in buffers only. Passes are those of ``relax.backend.adreno.pipeline`` and ``s_tir.backend.adreno.pipeline``, in
their order. One repair is made, without which no texture is written right: stores are typed as values where
``TextureFlatten`` types them as pointers. What TVM fails at raises :class:`FailsError`, with the pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import tvm
from tvm import tirx
from tvm.relax.backend.adreno.pipeline import legalize_passes
from tvm.s_tir.backend.adreno.pipeline import default_tir_pipeline
from tvm.s_tir.backend.adreno.transform import TextureFlatten

from eqsat_layout.targets.gpu.host.program import host_plan
from eqsat_layout.targets.opencl.host.executable import OpenClProgram
from eqsat_layout.targets.opencl.images import image_of
from eqsat_layout.targets.opencl.kernels.lowering import cleaned, typed_stores

TEXTURES: Final = "qcom/adreno-opencl-texture"
BUFFERS: Final = "qcom/adreno-opencl"
"""TVM's own tags of targets."""

_SCHEDULES: Final = "ApplyDefaultSchedule"
_HEAD: Final = "// Function: "


class FailsError(Exception):
    """What TVM can't do, with the pass that fails."""


@dataclass(frozen=True)
class MadeByTvm:
    """``kernels``: the module of fused PrimFuncs as it is before TVM schedules them; ``scheduled``: after."""

    kernels: tvm.IRModule
    scheduled: tvm.IRModule
    target: tvm.target.Target

    def program(self) -> OpenClProgram:
        """OpenCL C of TVM's, and a plan for our host."""
        functions = {str(v.name_hint): f for v, f in self.scheduled.functions_items() if isinstance(f, tirx.PrimFunc)}
        named = {tvm.ir.GlobalVar(name): f.with_attr("global_symbol", name) for name, f in functions.items()}
        seen = _HostFunctions()
        mod = tvm.IRModule(named)
        with tvm.transform.PassContext(instruments=[seen]):
            for one in (
                tirx.transform.BindTarget(self.target),
                TextureFlatten(),
                typed_stores(),
                default_tir_pipeline(),
            ):
                mod = _applied(one, mod)
        device = _applied(tirx.transform.LowerIntrin(), _device_functions(mod))
        text = str(tvm.get_global_func("target.build.opencl")(device, self.target).inspect_source())
        parts = [part.partition("\n") for part in text.split(_HEAD)[1:]]
        sources = {name.strip(): cleaned(body) for name, _, body in parts}
        hosts = {name: func for name, func in seen.functions.items() if name in functions}
        plan, constants = host_plan(self.scheduled, hosts, (), image_of)
        return OpenClProgram({name: text for name, text in sources.items() if name in plan.kernels}, plan, constants)


def made_by_tvm(mod: Any, tag: str) -> MadeByTvm:
    """What TVM's Relax pipeline for Adreno makes of a module, for the target that TVM calls ``tag``."""
    target = tvm.target.Target(tvm.target.Target(tag), host={"kind": "llvm"})
    kernels = None
    with target:
        for one in legalize_passes(target):
            if kernels is None and str(one.info.name) == _SCHEDULES:
                kernels = mod.clone()  # scheduling changes it in place
            mod = _applied(one, mod)
    assert kernels is not None
    return MadeByTvm(kernels, mod, target)


def _applied(one: Any, mod: Any) -> Any:
    try:
        return one(mod)
    except (RuntimeError, ValueError, TypeError, AttributeError, AssertionError) as error:
        raise FailsError(f"{one.info.name}: {str(error).strip().splitlines()[-1][:80]}") from error


def _device_functions(mod: tvm.IRModule) -> tvm.IRModule:
    return tirx.transform.Filter(lambda func: str(func.attrs["target"].kind.name) == "opencl")(mod)


@tvm.instrument.pass_instrument
class _HostFunctions:
    """Host functions as they are before TVM's calling convention."""

    def __init__(self) -> None:
        self.functions: Mapping[str, Any] = {}

    def run_before_pass(self, mod: Any, info: Any) -> None:
        if str(info.name) == "tirx.MakePackedAPI":
            self.functions = {str(var.name_hint): func for var, func in mod.functions_items()}
