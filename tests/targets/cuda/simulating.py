"""Programs compiled for CUDA and run on the simulator, beside what TVM makes of them on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from compare import assert_close, inputs_for, machine

import eqsat_layout
from eqsat_layout.soundness.cuda.driver import simulated
from eqsat_layout.targets.cuda.host.executable import CudaProgram
from eqsat_layout.validation.inputs import arrays_in

CUDA: Final = {"kind": "cuda", "arch": "sm_80"}


def compiled(mod: Any, target: Any = CUDA, **options: Any) -> CudaProgram:
    program = eqsat_layout.compile(mod, target, **options)
    assert isinstance(program, CudaProgram)
    return program


def check(
    mod: Any, target: Any = CUDA, *, sizes: Sequence[int] = (3,), orders: Sequence[int] = (0, 1, 2), **options: Any
) -> CudaProgram:
    """The program, which has given the same numbers as the CPU; symbolic sizes take each value of ``sizes``."""
    program = compiled(mod, target, **options)
    on_cpu = machine(mod)
    for order in orders:
        device = simulated(program, order)
        for size in sizes:
            inputs = inputs_for(mod["main"], size)
            expected = list(arrays_in(on_cpu["main"](*inputs)))
            got = list(arrays_in(device(*[one.numpy() for one in inputs])))
            for a, b in zip(expected, got, strict=True):
                assert_close(a, b)
    return program


def launches(program: CudaProgram) -> list[str]:
    """The PrimFuncs whose kernels are launched, in order."""
    return [launch.op for function in program.plan.functions for launch in function.launches]
