"""Kernels that start while those in front of them end: programmatic dependent launch.

In: a kernel as TVM writes it, and a host plan. Out: a kernel that lets the next one start at once, and waits before it
touches memory; a plan whose launches overlap. As each waits for all of the one in front of it, all before that one has
ended too.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from eqsat_layout.errors import TargetError
from eqsat_layout.targets.gpu.host.plan import HostPlan

_FIRST: Final = 90
"""The first compute capability that has it."""
_KERNEL: Final = re.compile(r'extern "C" __global__ void ((?:__launch_bounds__\(\d+\) )?)(\w+)\(([^)]*)\)(;| \{)')
_POINTER: Final = re.compile(r"\*.*?(\w+)$")


def has_dependent_launch(arch: str) -> bool:
    """``arch``: as in ``sm_90a``."""
    return int(arch.removeprefix("sm_").rstrip("a")) >= _FIRST


def waiting(source: str) -> str:
    """The kernel becomes a function of a kernel that waits.

    The pointers that it goes on with come out of the wait: a compiler takes ``__restrict__`` for leave to load in front
    of it, which was seen in machine code.
    """
    defined = [found for found in _KERNEL.finditer(source) if found[4] != ";"]
    if len(defined) != 1:
        raise TargetError(f"{len(defined)} kernels in the text of one:\n{source}")
    bounds, name, parameters, _ = defined[0].groups()
    given = [one.strip() for one in parameters.split(",") if one.strip()]
    pointers = [found[1] for found in map(_POINTER.search, given) if found]
    outputs = ", ".join(f'"+l"({pointer})' for pointer in pointers)
    arguments = ", ".join(one.split()[-1] for one in given)
    inner = _KERNEL.sub(lambda found: f"__device__ __forceinline__ void {name}_after({found[3]}){found[4]}", source)
    return (
        f"{inner}\n"
        f'extern "C" __global__ void {bounds}{name}({", ".join(given).replace(" __restrict__", "")}) {{\n'
        '  asm volatile("griddepcontrol.launch_dependents;" : : : "memory");\n'
        f'  asm volatile("griddepcontrol.wait;" : {outputs} : : "memory");\n'
        f"  {name}_after({arguments});\n}}\n"
    )


def overlapping(plan: HostPlan) -> HostPlan:
    """All launches of a function but the first one, which comes after whatever else is done."""
    functions = (
        replace(
            function,
            launches=tuple(replace(one, overlaps=number > 0) for number, one in enumerate(function.launches)),
        )
        for function in plan.functions
    )
    return replace(plan, functions=tuple(functions))
