"""This machine's CPU as LLVM knows it.

Out: its name, and what such CPUs have and this machine lacks.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import tvm
from tvm.target import codegen

UNIT: Final = "amx-"
"""The sets of the matrix unit, which LLVM does not use by itself: a target's ``mattr`` allows them."""

_CHOSEN: Final = (
    "adx",
    "avx",
    "bmi",
    "f16c",
    "fma",
    "gfni",
    "lzcnt",
    "movbe",
    "popcnt",
    "sse",
    "ssse",
    "vaes",
    "vpclmul",
)
"""How the names of those begin that LLVM uses of its own accord for x86."""


class OwnCpu(NamedTuple):
    """``name``: a target's ``mcpu``. ``hidden``: for its ``mattr``, what such CPUs have and this machine lacks."""

    name: str
    hidden: tuple[str, ...]

    @property
    def config(self) -> dict[str, Any]:
        """A target of it, without the matrix unit."""
        return {"kind": "llvm", "mcpu": self.name} | ({"mattr": self.hidden} if self.hidden else {})


@functools.cache
def own_cpu() -> OwnCpu:
    """The CPU that this runs on. LLVM names it by its model, and hypervisors hide sets of instructions."""
    name = str(codegen.llvm_get_system_cpu())
    usual = map(str, codegen.llvm_get_cpu_features(tvm.target.Target({"kind": "llvm", "mcpu": name})))
    told = tvm.get_global_func("tvm.codegen.llvm.GetHostCPUFeatures")()
    return OwnCpu(name, hidden_features(usual, {str(feature): bool(has) for feature, has in told.items()}))


def hidden_features(usual: Iterable[str], told: Mapping[str, bool]) -> tuple[str, ...]:
    """Those of the ``usual`` features that code may use of which the system ``told`` that they are not there."""
    return tuple(f"-{name}" for name in sorted(usual) if name.startswith(_CHOSEN) and not told.get(name, True))
