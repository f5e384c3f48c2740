"""This machine's CPU: its name, its features, its caches.

In: nothing, or a checked target. Out: what the system says, and whether it runs what is built for the target.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import tvm
from tvm.target import codegen

from eqsat_layout.system.own_cpu import UNIT

_USUAL_CACHE: Final = 32 << 20
"""Bytes of a last-level cache where the system does not say."""
_LEAST_CACHE: Final = _USUAL_CACHE // 4
"""No last-level cache is taken for a smaller one: what is to be cold has to exceed it."""


def cpu_name() -> str:
    """As the system has it, such as ``AMD EPYC 9R45``."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    except OSError:
        pass
    return platform.processor() or platform.machine()


def cache_sizes() -> dict[int, int]:
    """Bytes of the caches of the first core by level, but of instruction caches; nothing where the system is silent."""
    found: dict[int, int] = {}
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
            if kind != "Instruction":
                found[int(level)] = int(size.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(size[-1:], 0)
        except (OSError, ValueError):
            continue
    return found


def last_cache_bytes() -> int:
    """Size of the last-level cache, 32 MiB where the system does not say; no less than a quarter of that."""
    sizes = cache_sizes()
    return max(_LEAST_CACHE, *sizes.values()) if sizes else _USUAL_CACHE


def features(target: tvm.target.Target) -> list[str]:
    """LLVM's names of what the CPU has, sorted."""
    return sorted(map(str, codegen.llvm_get_cpu_features(target)))


def needs(target: tvm.target.Target) -> tuple[str, ...]:
    """The sets of instructions that code for an x86 target may use beyond what each such CPU has, by Linux's names."""
    allowed = set(map(str, dict(target.attrs).get("mattr", ())))
    used = (name for name in features(target) if not name.startswith(UNIT) or f"+{name}" in allowed)
    return tuple(own for name in used if (own := name.replace("-", "_")) in _CHECKED)


def is_architecture(config: Mapping[str, Any]) -> bool:
    """A target of this configuration is of this machine's architecture."""
    triple = str(config.get("mtriple") or "")
    return not triple or triple.split("-")[0] == str(codegen.llvm_get_system_triple()).split("-")[0]


def runs(target: tvm.target.Target, own: tvm.target.Target) -> bool:
    """Whether this machine, whose target is ``own``, has the architecture and all features that code may use."""
    return is_architecture(dict(target.attrs)) and _instruction_sets(target) <= _instruction_sets(own)


def _instruction_sets(target: tvm.target.Target) -> set[str]:
    """The features of a target without those that only say what is fast on it."""
    return {name for name in features(target) if name.split("-")[0] not in _TUNING}


_CHECKED: Final = frozenset(
    (
        *("avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl"),
        *("amx_tile", "amx_bf16", "amx_int8", "amx_fp16"),
    )
)
"""Those that LLVM and Linux call alike; the ones between come with the next larger one."""

_TUNING: Final = frozenset(
    (
        *("allow", "branchfusion", "false", "fast", "faster", "idivl", "idivq", "lea", "macrofusion"),
        *("no", "pad", "prefer", "sbb", "slow", "tuning", "use", "vzeroupper"),
    )
)
"""First words of LLVM's names of them for x86, where an older CPU has some that a newer one has not."""
