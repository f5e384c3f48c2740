"""What a CPU is: the figures that schedules and costs depend on, all in one place.

In: a checked ``tvm.target.Target``, and what was measured on the machine, if anything. Out: a :class:`CpuMachine`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import tvm
from tvm.target import codegen

from eqsat_layout.system.own_cpu import own_cpu
from eqsat_layout.targets.cpu import host
from eqsat_layout.targets.cpu.amx.instructions import OF_BYTES, OF_FLOATS
from eqsat_layout.targets.cpu.dot_products import FEATURES

EXACT: Final = "eqsat_layout.exact"
"""A key of targets whose kernels are exact in NaN, infinities and signs of zero: it travels with the target."""


@dataclass(frozen=True)
class CpuMachine:
    """What a CPU is and does. How algorithms use it (shares of a cache, sizes that are tried) is said where they are.

    ``registers`` of ``vector_bytes`` each; ``broadcast_operand``: an arithmetic instruction can broadcast a scalar from
    memory, without a register of its own; ``byte_products``: one adds up four products of bytes in each 32 bits, as
    fast as it multiplies floats; ``cores``: threads of a parallel loop; ``matrix_unit``: AMX may be used for floats,
    ``matrix_bytes``: for bytes, and starts a product of tiles every ``matrix_cycles``; ``is_exact``: kernels give what
    TVM's own give of NaN, infinities and zeros, so that functions are TVM's and every reduction takes its steps in
    order.

    A cache has two figures. ``l1_bytes``, ``l2_bytes``, ``last_level_bytes`` are its sizes, as data sheets and sysfs
    have them; ``l2_ways`` lines of L2 share a set. ``l1_working_set`` and ``l2_working_set`` are what the data of one
    thread may take of it: the other hyperthread of a core, the code and the stack have their part, and a virtual
    machine does not say whether there is another hyperthread. On a Xeon with 2 MiB of L2, all ten networks of the bench
    took 0.4 to 4 % longer when schedules counted on 2 MiB instead of 1. So models of schedules read the working set;
    the size only bounds it from above. ``last_level_working_set``: the largest tensor that one kernel finds in the last
    level when another has written it (of the 260 MiB that a Xeon shares among virtual machines, 16 to 32). The first
    TLB of data has ``tlb_pages`` entries, for pages of ``page_bytes``.

    ``clock``: cycles a second under vector load. Each cycle, ``fma_units`` fused multiply-adds of vectors start, whose
    results are there ``fma_latency`` cycles later, beside ``loads_per_cycle`` and ``stores_per_cycle`` of vectors, of
    ``instructions_per_cycle`` in all, and ``l2_bytes_per_cycle`` come from L2, ``panel_bytes_per_cycle`` of weights
    where multiply-adds wait for them (Zen 4: tiles of 2 by 13 vectors took twice as long as their arithmetic). Units
    take ``unit_bytes`` at once: they are busy for two cycles with a vector that is twice as long; a scalar that is
    broadcast to one is one load (Zen 4: 14 products a step with one of them each run at the peak). The last-level
    cache and memory have clocks of their own: ``last_level_bandwidth`` and ``memory_bandwidth`` are bytes a second
    of one core, ``all_memory_bandwidth`` of all cores together; the hardware prefetches ``prefetch_streams`` pieces of
    memory at once. ``kernel_launch`` and ``parallel_launch`` are seconds that a kernel takes before it does anything,
    and a loop over all cores; ``kernel_call`` of these are the call's own (measured on Zen 4: .35 to .5 us).
    """

    vector_bytes: int
    registers: int
    unit_bytes: int = 64
    cores: int = 1
    broadcast_operand: bool = False
    byte_products: bool = False
    matrix_unit: bool = False
    matrix_bytes: bool = False
    matrix_cycles: int = 16
    is_exact: bool = False
    line_bytes: int = 64
    page_bytes: int = 4 << 10
    tlb_pages: int = 64
    l1_bytes: int = 32 << 10
    l1_way_bytes: int = 4 << 10
    l1_working_set: int = 32 << 10
    l2_bytes: int = 512 << 10
    l2_ways: int = 8
    l2_working_set: int = 512 << 10
    last_level_bytes: int = 32 << 20
    last_level_working_set: int = 16 << 20
    clock: float = 3.0e9
    fma_units: int = 2
    fma_latency: int = 4
    loads_per_cycle: float = 1.5
    stores_per_cycle: float = 1.0
    instructions_per_cycle: float = 2.75
    l2_bytes_per_cycle: float = 32.0
    panel_bytes_per_cycle: float = 32.0
    last_level_bandwidth: float = 25e9
    memory_bandwidth: float = 12.5e9
    all_memory_bandwidth: float = 21e9
    prefetch_streams: int = 12
    kernel_call: float = 350e-9
    kernel_launch: float = 1e-6
    parallel_launch: float = 3e-6

    def lanes(self, element_bytes: int) -> int:
        """Elements in a vector register."""
        return max(1, self.vector_bytes // max(1, element_bytes))

    def passes(self, size: Any) -> Any:
        """Cycles that a unit is busy with an instruction on so many bytes, a number or an array of them."""
        return -(-size // self.unit_bytes)

    @property
    def vectors_per_cycle(self) -> float:
        """Fused multiply-adds of whole vectors."""
        return self.fma_units / float(self.passes(self.vector_bytes))

    @property
    def sums_in_flight(self) -> int:
        """Sums that have to take turns so that none waits for its own last addition."""
        return int(self.vectors_per_cycle * self.fma_latency)

    @property
    def cycles_per_nanosecond(self) -> float:
        """The clock in GHz."""
        return self.clock / 1e9


_MEASURABLE: Final = frozenset(
    {
        "clock",
        "l2_bytes_per_cycle",
        "last_level_bandwidth",
        "memory_bandwidth",
        "all_memory_bandwidth",
        "kernel_launch",
        "parallel_launch",
    }
)
"""Figures that calibration may replace."""

_AVX512 = CpuMachine(64, 32, broadcast_operand=True, l2_bytes=1 << 20, l2_ways=16, l2_working_set=1 << 20)

PRESETS: Final[Mapping[str, CpuMachine]] = {
    # Caches of Zen 2 and 3 (AMD's optimisation guides; Haswell to Coffee Lake have 256 KiB of L2). Loads, instructions
    # and clock measured on a Zen 3, whose 94 GFLOP/s a core are 2.94 GHz. Bandwidths and launches are those with which
    # the models of schedules rank the kernels of bench.cpu.latency as they were measured there and on the Xeon below.
    "avx2": CpuMachine(32, 16),
    # Caches of Skylake-SP and Zen 4 (Intel's and AMD's optimisation guides); the rest as for AVX2.
    "avx512": _AVX512,
    # Zen 4: units of 32 bytes (AMD's optimisation guide). Clock and bandwidths measured on an EPYC of these, one core.
    "avx512 in halves": replace(
        _AVX512,
        unit_bytes=32,
        l2_ways=8,
        clock=3.6e9,
        panel_bytes_per_cycle=16.0,
        memory_bandwidth=20e9,
        all_memory_bandwidth=40e9,
        last_level_bandwidth=50e9,
    ),
    # Zen 5: clock and bandwidths measured on an EPYC of these, one core (268 GFLOP/s; 115 GB/s of the last level and 37
    # of memory, of which kernels see less). With them the kernels of seven networks (bench.cpu.model) that are off by
    # 1.5 times take 2 to 17 % of the time, in place of 4 to 65 %.
    "avx512 of zen 5": replace(
        _AVX512,
        clock=4.2e9,
        memory_bandwidth=30e9,
        all_memory_bandwidth=50e9,
        last_level_bandwidth=80e9,
    ),
    # Sapphire, Emerald and Granite Rapids have 2 MiB of L2 (Intel's data sheets); a tile product starts every 16 cycles
    # (Intel's optimisation manual, chapter on AMX). Measured on a Xeon of these (bench/FIGURES.md).
    "amx": replace(_AVX512, l2_bytes=2 << 20, byte_products=True, matrix_unit=True, matrix_bytes=True),
    # fmla takes one lane of a register. Vectors of the smallest SVE; never measured.
    "neon": CpuMachine(16, 32, broadcast_operand=True),
    # x86-64 of any make; never measured.
    "sse": CpuMachine(16, 16),
}
"""By instruction set, what one core is taken to be where nothing better is known."""

_BY_NAME: Final[Mapping[str, str]] = {"znver4": "avx512 in halves", "znver5": "avx512 of zen 5"}
"""Presets of CPUs, as LLVM names them, that no feature tells from others with AVX-512: Zen 4 takes half a vector at
once, and both have faster caches and memory."""


def machine_of(target: tvm.target.Target, measured: Mapping[str, float] | None = None) -> CpuMachine:
    """The figures of a target as :func:`normalize_target` gives it.

    Presets by its features; sizes of caches as the system says, where the target is this host; and what was
    ``measured``, by the names of the fields (others are left out: another version may know them).
    """
    cores, is_exact = int(dict(target.attrs).get("num-cores", 1)), EXACT in set(map(str, target.keys))
    has_products = not set(FEATURES).isdisjoint(map(str, codegen.llvm_get_cpu_features(target)))
    preset = PRESETS[_preset_of(target)]
    machine = replace(
        preset,
        cores=cores,
        is_exact=is_exact,
        byte_products=has_products,
        matrix_unit=preset.matrix_unit and _is_allowed(target, OF_FLOATS),
        matrix_bytes=preset.matrix_bytes and _is_allowed(target, OF_BYTES),
    )
    if _is_host(target):
        machine = with_caches(machine, host.cache_sizes())
    known: dict[str, Any] = {name: value for name, value in (measured or {}).items() if name in _MEASURABLE}
    return replace(machine, **known)


def with_caches(machine: CpuMachine, sizes: Mapping[int, int]) -> CpuMachine:
    """``machine`` with caches of such ``sizes``, in bytes by level. Working sets grow with none, but fit all."""
    l1, l2 = sizes.get(1, machine.l1_bytes), sizes.get(2, machine.l2_bytes)
    last = max(sizes.values(), default=machine.last_level_bytes)
    return replace(
        machine,
        l1_bytes=l1,
        l1_working_set=min(machine.l1_working_set, l1),
        l2_bytes=l2,
        l2_working_set=min(machine.l2_working_set, l2),
        last_level_bytes=last,
        last_level_working_set=min(machine.last_level_working_set, last // 2),
    )


def _preset_of(target: tvm.target.Target) -> str:
    features = set(map(str, codegen.llvm_get_cpu_features(target)))
    if "avx512f" in features:
        if _is_allowed(target, OF_FLOATS) or _is_allowed(target, OF_BYTES):
            return "amx"
        return _BY_NAME.get(str(dict(target.attrs).get("mcpu", "")), "avx512")
    if "avx" in features:
        return "avx2"
    return "neon" if features & {"neon", "sve"} else "sse"


def _is_allowed(target: tvm.target.Target, attributes: Collection[str]) -> bool:
    """A CPU of a kind that has the matrix unit need not be allowed to use it."""
    return set(map(str, dict(target.attrs).get("mattr", ()))).issuperset(attributes)


def _is_host(target: tvm.target.Target) -> bool:
    """The target is the CPU that this runs on, as far as its name says."""
    attributes, triple = dict(target.attrs), str(codegen.llvm_get_system_triple())
    architecture = str(attributes.get("mtriple") or triple).split("-")[0]
    return str(attributes.get("mcpu", "")) == own_cpu().name and architecture == triple.split("-")[0]
