"""Programs compiled for an OpenCL device and run on PoCL, beside what TVM makes of them on the CPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import numpy.typing as npt
from compare import assert_close, inputs_for, machine
from effort import IS_LONG

import eqsat_layout
from eqsat_layout.maps import GLOBAL
from eqsat_layout.targets.opencl.host.device import first_context
from eqsat_layout.targets.opencl.host.executable import OpenClProgram
from eqsat_layout.validation.inputs import arrays_in

os.environ.setdefault("POCL_MAX_PTHREAD_COUNT", "1")  # the workers of pytest-xdist share the cores
if not IS_LONG:  # compiling takes most of the time
    os.environ.setdefault("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable")
os.environ.setdefault("POCL_CACHE_DIR", os.path.join(os.environ["EQSAT_LAYOUT_CACHE"], "pocl"))

ADRENO: Final = {"kind": "opencl", "device": "adreno"}


@cache
def context() -> Any:
    """Of the one device that all tests share. PoCL comes with the dependency group ``test``."""
    found = first_context()
    assert found.devices[0].image_support, "PoCL has images; is pocl-binary-distribution installed?"
    return found


def compiled(mod: Any, target: Any = ADRENO, **options: Any) -> OpenClProgram:
    program = eqsat_layout.compile(mod, target, **options)
    assert isinstance(program, OpenClProgram)
    return program


def results(program: OpenClProgram, inputs: Sequence[Any], entry: str | None = None) -> list[npt.NDArray[Any]]:
    return list(arrays_in(program.on(context())(*inputs, entry=entry)))


def check(mod: Any, target: Any = ADRENO, *, entry: str = "main", sizes: Sequence[int] = (3,), **options: Any) -> Any:
    """The program, which has given the same numbers as the CPU; symbolic sizes take each value of ``sizes``."""
    program = compiled(mod, target, **options)
    on_cpu = machine(mod)
    for size in sizes:
        inputs = inputs_for(mod[entry], size)
        expected = list(arrays_in(on_cpu[entry](*inputs)))
        got = results(program, [one.numpy() for one in inputs], entry)
        for a, b in zip(expected, got, strict=True):
            assert_close(a, b)
    return program


def images(program: OpenClProgram) -> int:
    """Tensors that lie in images."""
    return sum(value.scope != GLOBAL for value in program.plan.values)


def launches(program: OpenClProgram) -> list[str]:
    """The PrimFuncs whose kernels are launched, in order."""
    return [launch.op for function in program.plan.functions for launch in function.launches]
