"""The machines that schedules are made for in tests: presets, whatever this one is."""

from __future__ import annotations

from dataclasses import replace

from eqsat_layout.targets.cpu.machine import PRESETS, CpuMachine, with_caches

AVX512, AVX2 = (replace(PRESETS[name], cores=2) for name in ("avx512", "avx2"))
NEON = replace(PRESETS["neon"], cores=4)
HALVES = replace(PRESETS["avx512 in halves"], cores=2)
AMX = replace(PRESETS["amx"], cores=2)


def with_small_caches(machine: CpuMachine) -> CpuMachine:
    """One core, whose caches overflow soon."""
    return with_caches(replace(machine, cores=1, l1_way_bytes=512), {1: 4096, 2: 16384})
