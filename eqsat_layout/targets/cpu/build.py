"""The build for CPUs through LLVM (targets room).

In: a Relax module and a checked target. Out: an executable for ``relax.VirtualMachine``. The order of passes matters:
fuse unscheduled PrimFuncs first, schedule the fused ones after.
"""

from __future__ import annotations

import math
from typing import Any, Final

import tvm
from tvm import relax, s_tir, tirx
from tvm.tirx import compilation_pipeline

from eqsat_layout.graph.legalize import legalize
from eqsat_layout.passes.fold_constants import fold_constants
from eqsat_layout.passes.matrix_literals import with_literals
from eqsat_layout.passes.scalar_literals import with_numbers
from eqsat_layout.targets.cpu.chains.join_calls import join_chains
from eqsat_layout.targets.cpu.machine import machine_of
from eqsat_layout.targets.cpu.schedule import schedule_module
from eqsat_layout.targets.cpu.target import Progress
from eqsat_layout.tir.structural import structural_map

_PIPELINE: Final = "eqsat_layout.llvm"
_LARGEST_ON_STACK: Final = 1 << 14


def build_llvm(mod: tvm.IRModule, target: tvm.target.Target, *, progress: Progress | None = None) -> Any:
    """``mod`` built for ``target``."""
    say = progress or (lambda _: None)
    say("legalize")
    mod = fold_constants(legalize(mod), progress=say)
    return build_unfolded(mod, target, progress=say)


def build_unfolded(mod: tvm.IRModule, target: tvm.target.Target, *, progress: Progress | None = None) -> Any:
    """Like :func:`build_llvm`, with constant expressions left as they are."""
    say = progress or (lambda _: None)
    say("fuse")
    machine = machine_of(target)
    mod = join_chains(with_literals(fuse(with_numbers(legalize(mod)))), machine)
    say("schedule")
    scheduled = schedule_module(mod, machine)
    say("build")
    try:
        return build_scheduled(scheduled, target)
    except Exception:  # a schedule that TVM accepts but can't lower; if it was not that, this raises again
        return build_scheduled(mod, target)


def fuse(mod: tvm.IRModule) -> tvm.IRModule:
    """``call_tir`` calls grouped into fused PrimFuncs by TVM's own rules; ``mod`` itself where FuseTIR fails on it."""
    passes = relax.transform
    grouping = [passes.AnnotateTIROpPattern(), passes.FuseOps(), passes.FuseTIR(), passes.DeadCodeElimination()]
    try:
        return tvm.transform.Sequential(grouping)(mod)
    except Exception:  # PrimFuncs with int32 shapes, for one
        return mod


def build_scheduled(mod: tvm.IRModule, target: tvm.target.Target) -> Any:
    """A module whose PrimFuncs are scheduled already, built with accumulators kept on the stack."""
    compilation_pipeline.register_tir_pipeline(_PIPELINE, _stack_pipeline)
    return tvm.compile(mod, target=target, tir_pipeline=_PIPELINE)


def _stack_pipeline(**_: Any) -> tuple[Any, Any, Any]:
    lowering, finalize_host, finalize_device = s_tir.pipeline.default_s_tir_pipeline()

    def pipeline(mod: tvm.IRModule, _ctx: Any) -> tvm.IRModule:
        return _keep_on_stack()(lowering(mod))

    return tvm.transform.module_pass(pipeline, opt_level=0), finalize_host, finalize_device


def _keep_on_stack() -> Any:
    """A pass: small "local" buffers become stack memory, where TVM would allocate workspace for them."""

    def mark(allocation: Any) -> Any:
        size = _bytes(allocation.buffer)
        if allocation.buffer.scope() != "local" or size is None or size > _LARGEST_ON_STACK:
            return allocation
        annotations = dict(allocation.annotations) if allocation.annotations else {}
        annotations["disable_lower_builtin"] = tirx.IntImm("int32", 1)
        return tirx.AllocBuffer(allocation.buffer, annotations)

    def transform(func: Any, _mod: Any, _ctx: Any) -> Any:
        return func.with_body(structural_map(func.body, (tirx.AllocBuffer, mark)))

    return tirx.transform.prim_func_pass(transform, opt_level=0, name="eqsat_layout.KeepOnStack")


def _bytes(buffer: Any) -> int | None:
    """Size of a buffer of known shape, else ``None``."""
    shape = list(buffer.shape)
    if not all(isinstance(extent, tirx.IntImm) for extent in shape):
        return None
    bits = int(tvm.DataType(str(buffer.dtype)).bits)
    return math.prod(int(extent) for extent in shape) * ((bits + 7) // 8)
