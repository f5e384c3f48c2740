"""Kernels that start while those in front of them end: programmatic dependent launch.

In: kernels as TVM writes them, a host plan, and which operands are constants. Out: kernels that let the next one start
at once, and wait before they touch what others write; a plan whose launches overlap. As each waits for all of the one
in front of it, all before that one has ended too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

import tvm
from tvm import relax

from eqsat_layout.errors import TargetError
from eqsat_layout.passes.call_windows import KernelCall, calls_of
from eqsat_layout.targets.cuda.kernels.statements import issued
from eqsat_layout.targets.gpu.host.plan import HostFunction, HostPlan

_FIRST: Final = 90
"""The first compute capability that has it."""
_CONSTANTS: Final = "eqsat_layout.constants"
"""Attribute of a PrimFunc whose launch may overlap: names of parameters that no kernel writes."""
_KERNEL: Final = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\([\d, ]+\) )?\w+\(([^)]*)\) \{\n')
_WAIT: Final = re.compile(r"^ *tvm_builtin_ptx_griddepcontrol_wait\(\);\n", re.MULTILINE)
_RESTRICT: Final = " __restrict__"


def has_dependent_launch(arch: str) -> bool:
    """``arch``: as in ``sm_90a``."""
    return int(arch.removeprefix("sm_").rstrip("a")) >= _FIRST


def knowing_constants(mod: tvm.IRModule, functions: Mapping[str, Any]) -> dict[str, Any]:
    """``functions``, which know what each call of them in ``mod`` gives as a constant."""
    calls: dict[str, list[KernelCall]] = {name: [] for name in functions}
    for _, func in mod.functions_items():
        for call in calls_of(func)[0] if isinstance(func, relax.Function) else ():
            if (name := str(call.callee.name_hint)) in calls:  # not those that only look at memory in another way
                calls[name].append(call)
    return {name: func.with_attr(_CONSTANTS, _constants(func, calls[name])) for name, func in functions.items()}


def _constants(func: Any, calls: Collection[KernelCall]) -> list[str]:
    names = [str(param.name) for param in func.params]
    return [
        name
        for number, name in enumerate(names)
        if calls
        and names.count(name) == 1
        and all(number < len(call.args) and isinstance(call.args[number], tvm.ir.GenericConst) for call in calls)
    ]


def overlaps(func: Any) -> bool:
    """Whether its launch may overlap with the one in front of it."""
    return func.attrs is not None and _CONSTANTS in func.attrs


def constants_of(func: Any) -> frozenset[str]:
    """The names of parameters that may be read before the wait; none where launches do not overlap."""
    return frozenset(map(str, func.attrs[_CONSTANTS])) if overlaps(func) else frozenset()


def waited() -> Any:
    """The statement from which on all may be touched, where a kernel is not to wait at its beginning."""
    return issued("griddepcontrol.wait")


def waiting(source: str, constants: Collection[str]) -> str:
    """The kernel lets the next one start, and waits, at its beginning if it does not where it likes.

    Pointers to what others may write come out of the wait: a compiler takes ``__restrict__`` for leave to load in
    front of it, which was seen in machine code.
    """
    kernels = list(_KERNEL.finditer(source))
    if len(kernels) != 1:
        raise TargetError(f"{len(kernels)} kernels in the text of one:\n{source}")
    begin = kernels[0].end()
    parameters = [one.split()[-1] for one in kernels[0][1].split(",") if "*" in one]
    settled = {f"{name}_ptr" for name in constants}
    waits = [name for name in parameters if name not in settled]
    outputs = ", ".join(f'"+l"({name})' for name in waits)
    wait = f'  asm volatile("griddepcontrol.wait;" : {outputs} : : "memory");\n'
    wait += "".join(f"  __builtin_assume(__isGlobal({name}));\n" for name in waits)
    head, body = source[:begin], source[begin:]
    for name in waits:
        head = re.sub(rf"{_RESTRICT}( {name}\b)", r"\1", head)
    body, count = _WAIT.subn(lambda _: wait, body)
    start = '  asm volatile("griddepcontrol.launch_dependents;" : : : "memory");\n'
    return f"{head}{start}{'' if count else wait}{body}"


def overlapping(plan: HostPlan) -> HostPlan:
    """All launches of a function but the first one, which comes after whatever else is done."""

    def overlap(function: HostFunction) -> HostFunction:
        launches = (replace(one, overlaps=number > 0) for number, one in enumerate(function.launches))
        return replace(function, launches=tuple(launches))

    return replace(plan, functions=tuple(function.changed(overlap) for function in plan.functions))
