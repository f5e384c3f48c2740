"""One kernel, or a few that call one another, as machine code.

In: PrimFuncs as JSON and the target, so that another process can do it. Out: an object file. A PrimFunc that is not
scheduled is scheduled here; one whose schedule can't be lowered is built without it, and a note says so.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import tvm
from tvm import s_tir, tirx
from tvm.tirx import compilation_pipeline

from eqsat_layout.notes import Notes
from eqsat_layout.targets.cpu.machine import machine_of
from eqsat_layout.targets.cpu.schedule import schedule_module
from eqsat_layout.targets.schedules.exact_values import revealed
from eqsat_layout.tir.structural import structural_map

_PIPELINE: Final = "eqsat_layout.llvm"
_LARGEST_ON_STACK: Final = 1 << 14

LOWERING_FAULTS: Final = (tvm.error.InternalError, RuntimeError, ValueError, TypeError)
"""What TVM's lowering raises."""


@dataclass(frozen=True)
class KernelJob:
    """PrimFuncs by symbol, and the checked target, both as JSON. ``strict`` as for :class:`Notes`."""

    functions: tuple[tuple[str, str], ...]
    target: str
    strict: bool


@dataclass(frozen=True)
class MadeObject:
    """Machine code, and notes on what could not be done. ``is_faulty``: something failed that should not."""

    data: bytes
    notes: tuple[str, ...]
    is_faulty: bool = False


def make_object(job: KernelJob) -> MadeObject:
    """Raises what TVM raises for a function that can't be built even without a schedule."""
    target = tvm.ir.load_json(job.target)
    machine, notes = machine_of(target), Notes(job.strict)
    plain = {name: tvm.ir.load_json(text) for name, text in job.functions}
    scheduled = schedule_module(tvm.IRModule(plain), machine, notes)
    try:
        data = _object_of({str(v.name_hint): func for v, func in scheduled.functions_items()}, target)
    except LOWERING_FAULTS as error:
        notes.fault(f"kernel {' and '.join(plain)} is built without its schedule", error)
        data = _object_of(plain, target)
    return MadeObject(data, tuple(notes), notes.has_faults)


def build_scheduled(mod: tvm.IRModule, target: tvm.target.Target) -> Any:
    """A module whose PrimFuncs are scheduled already, built in one piece by this process."""
    return tvm.compile(mod, target=target, tir_pipeline=_stack_pipeline_name())


def _object_of(functions: dict[str, Any], target: tvm.target.Target) -> bytes:
    named = {name: func.with_attr("global_symbol", name) for name, func in functions.items()}
    built = tvm.tirx.build(tvm.IRModule(named), target=target, pipeline=_stack_pipeline_name())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.o"
        built.write_to_file(str(path))
        return path.read_bytes()


def _stack_pipeline_name() -> str:
    compilation_pipeline.register_tir_pipeline(_PIPELINE, _stack_pipeline)
    return _PIPELINE


def _stack_pipeline(**_: Any) -> tuple[Any, Any, Any]:
    lowering, finalize_host, finalize_device = s_tir.pipeline.default_s_tir_pipeline()

    def pipeline(mod: tvm.IRModule, _ctx: Any) -> tvm.IRModule:
        return _with_all_arithmetic()(_keep_on_stack()(lowering(mod)))

    return tvm.transform.module_pass(pipeline, opt_level=0), finalize_host, finalize_device


def _with_all_arithmetic() -> Any:
    """A pass: the arithmetic that was hidden from the simplifier."""
    return tirx.transform.prim_func_pass(
        lambda func, _mod, _ctx: revealed(func), opt_level=0, name="eqsat_layout.WithAllArithmetic"
    )


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
