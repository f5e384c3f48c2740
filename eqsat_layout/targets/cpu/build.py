"""The build for CPUs through LLVM.

In: a module of scheduled kernels and a checked TVM target. Out: an executable for ``relax.VirtualMachine``.
"""

from __future__ import annotations

import math
from typing import Any, Final

import tvm
from tvm import s_tir, tirx
from tvm.tirx import compilation_pipeline

from eqsat_layout.notes import Notes
from eqsat_layout.tir.structural import structural_map

_PIPELINE: Final = "eqsat_layout.llvm"
_LARGEST_ON_STACK: Final = 1 << 14


def build_kernels(plain: tvm.IRModule, scheduled: tvm.IRModule, target: tvm.target.Target, notes: Notes) -> Any:
    """``scheduled`` built; kernels whose schedules TVM accepts but can't lower are taken from ``plain``, with notes."""
    try:
        return build_scheduled(scheduled, target)
    except _LOWERING_FAULTS as error:
        functions = dict(scheduled.functions_items())
        for var, func in scheduled.functions_items():
            fault = _fault(func, target)
            if fault is not None:
                notes.fault(f"kernel {var.name_hint} is built without its schedule", fault)
                functions[var] = plain[var.name_hint]
        if all(functions[var].same_as(func) for var, func in scheduled.functions_items()):
            raise  # no kernel of its own is at fault
        notes.fault("the module was built again", error)
        return build_scheduled(tvm.IRModule(functions, attrs=plain.attrs, global_infos=plain.global_infos), target)


_LOWERING_FAULTS: Final = (tvm.error.InternalError, RuntimeError, ValueError, TypeError)
"""What TVM's lowering raises."""


def _fault(func: Any, target: tvm.target.Target) -> Exception | None:
    """What lowering a PrimFunc by itself raises."""
    if not isinstance(func, tirx.PrimFunc):
        return None
    alone = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    try:
        tvm.tirx.build(alone, target=target, pipeline=_stack_pipeline_of())
    except _LOWERING_FAULTS as error:
        return error
    return None


def _stack_pipeline_of() -> str:
    compilation_pipeline.register_tir_pipeline(_PIPELINE, _stack_pipeline)
    return _PIPELINE


def build_scheduled(mod: tvm.IRModule, target: tvm.target.Target) -> Any:
    """A module whose PrimFuncs are scheduled already, built with accumulators kept on the stack."""
    return tvm.compile(mod, target=target, tir_pipeline=_stack_pipeline_of())


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
