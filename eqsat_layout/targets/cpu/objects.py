"""One kernel, or a few that call one another, as machine code.

In: PrimFuncs as JSON and the target, so that another process can do it. Out: an object file. A PrimFunc that is not
scheduled is scheduled here; one whose schedule can't be lowered is built without it, and a note says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import tvm
from tvm_ffi.serialization import from_json_graph_str

from eqsat_layout.notes import Notes
from eqsat_layout.passes.size_symbols import with_size_symbols
from eqsat_layout.system.collector import collector_paused
from eqsat_layout.system.memory_files import files_in_memory
from eqsat_layout.targets.cpu.lowering import pipeline_name
from eqsat_layout.targets.cpu.machine import machine_of
from eqsat_layout.targets.cpu.schedule import schedule_module

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
    with collector_paused():
        return _made(job)


def _made(job: KernelJob) -> MadeObject:
    target = from_json_graph_str(job.target)
    machine, notes = machine_of(target), Notes(job.strict)
    plain = {name: with_size_symbols(from_json_graph_str(text)) for name, text in job.functions}
    scheduled = schedule_module(tvm.IRModule(plain), machine, notes)
    try:
        data = _object_of({str(v.name_hint): func for v, func in scheduled.functions_items()}, target)
    except LOWERING_FAULTS as error:
        notes.fault(f"kernel {' and '.join(plain)} is built without its schedule", error)
        data = _object_of(plain, target)
    return MadeObject(data, tuple(notes), notes.has_faults)


def build_scheduled(mod: tvm.IRModule, target: tvm.target.Target) -> Any:
    """A module whose PrimFuncs are scheduled already, built in one piece by this process."""
    return tvm.compile(mod, target=target, tir_pipeline=pipeline_name())


def _object_of(functions: dict[str, Any], target: tvm.target.Target) -> bytes:
    named = {name: func.with_attr("global_symbol", name) for name, func in functions.items()}
    built = tvm.tirx.build(tvm.IRModule(named), target=target, pipeline=pipeline_name())
    with files_in_memory(1) as (path,):  # of a disk that is full LLVM ends the process
        built.write_to_file(str(path), "o")
        return path.read_bytes()
