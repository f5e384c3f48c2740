"""The machines that schedules are made for in tests: presets, whatever this one is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from effort import IS_LONG
from tvm import tirx

from eqsat_layout.graph.legalize import legalize
from eqsat_layout.notes import Notes
from eqsat_layout.passes.fuse import fuse
from eqsat_layout.soundness.programs.check import linked_library
from eqsat_layout.targets.cpu.machine import PRESETS, CpuMachine, with_caches
from eqsat_layout.targets.cpu.objects import build_scheduled
from eqsat_layout.targets.cpu.schedule import schedule_module
from eqsat_layout.targets.cpu.target import normalize_target

AVX512, AVX2 = (replace(PRESETS[name], cores=2) for name in ("avx512", "avx2"))
NEON = replace(PRESETS["neon"], cores=4)
HALVES = replace(PRESETS["avx512 in halves"], cores=2)
AMX = replace(PRESETS["amx"], cores=2)
MACHINES = [AVX512, AVX2, NEON]


def with_small_caches(machine: CpuMachine) -> CpuMachine:
    """One core, whose caches overflow soon."""
    return with_caches(replace(machine, cores=1, l1_way_bytes=512), {1: 4096, 2: 16384})


def scheduled(mod: Any, machine: CpuMachine) -> Any:
    """Legalised, in TVM's groups, with schedules."""
    return schedule_module(fuse(legalize(mod), Notes()), machine)


def kernel_of(mod: Any) -> Any:
    """The only PrimFunc."""
    (func,) = (f for f in mod.functions.values() if isinstance(f, tirx.PrimFunc))
    return func


def built(mod: Any) -> Any:
    """Scheduled kernels to run, without LLVM's optimisation but in ``make test-long``: that takes half of the time, and
    what the schedules say is asked here. Programs that are compiled, and single kernels, are optimised in all tests."""
    if IS_LONG:
        return build_scheduled(mod, normalize_target())
    return linked_library(build_scheduled(mod, normalize_target({"kind": "llvm", "opt-level": 0})))
