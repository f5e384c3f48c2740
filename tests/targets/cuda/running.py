"""PrimFuncs that launch kernels, run in the simulator."""

from __future__ import annotations

import os
import struct
import tempfile
from collections import Counter
from functools import cache, cached_property
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import tvm

from eqsat_layout.soundness.cuda import LaunchReport, MappedArray, Simulator
from eqsat_layout.soundness.programs.check import unscheduled_library
from eqsat_layout.targets.cuda.compiler import Compiled, available_compiler, compiled
from eqsat_layout.targets.cuda.lowering import lowered
from eqsat_layout.targets.cuda.machine import CudaMachine
from eqsat_layout.targets.gpu.host.launches import launches_of
from eqsat_layout.targets.gpu.host.plan import Argument

Array = npt.NDArray[Any]

H100: Final = CudaMachine(
    arch="sm_90",
    multiprocessors=132,
    shared_bytes_per_block=227 << 10,
    shared_bytes=228 << 10,
    registers=65536,
    l2_bytes=50 << 20,
    bandwidth=3.0e12,
    flops={"float16": 798e12, "bfloat16": 798e12, "tensorfloat32": 399e12, "int8": 1596e12, "float32": 60e12},
    launch_seconds=2.5e-6,
)

needs_compiler: Final = pytest.mark.skipif(available_compiler() is None, reason="neither NVRTC nor nvcc is here")


def machine_code(source: str, arch: str) -> Compiled:
    """As the compiler has it; headers are parsed once in a process, which takes as long as a large kernel."""
    return compiled(source, arch, _headers())


def instructions(cubin: bytes) -> Counter[str]:
    """Those that :data:`_OPCODES` names, of all kernels; ``.128`` behind what moves 16 bytes."""
    found: Counter[str] = Counter()
    start, (size, count) = struct.unpack_from("<Q", cubin, 40)[0], struct.unpack_from("<HH", cubin, 58)
    for section in range(start, start + size * count, size):
        kind, flags, _, offset, length = struct.unpack_from("<IQQQQ", cubin, section + 4)
        for at in range(offset, offset + length, 16) if kind == _IS_CODE and flags & _IS_RUN else ():
            low, high = struct.unpack_from("<QQ", cubin, at)
            name = _OPCODES.get(low & 0x1FF)
            if name is not None:
                found[f"{name}.128" if name == "LDGSTS" and high >> 9 & 7 == 6 else name] += 1
    return found


_IS_CODE: Final = 1
_IS_RUN: Final = 4
"""Kind and flag of a section of ELF."""
_OPCODES: Final = {0x03C: "HMMA", 0x037: "IMMA", 0x03B: "LDSM", 0x1AE: "LDGSTS", 0x1B4: "UTMALDG", 0x1F0: "HGMMA"}
"""Found by comparing machine code with the PTX it was made of: there is no disassembler here."""


@cache
def _headers() -> str:
    return tempfile.mkdtemp(prefix="headers_", dir=os.environ["EQSAT_LAYOUT_CACHE"])


class Kernels:
    """A PrimFunc without blocks, lowered; ``sources``: by kernel."""

    def __init__(self, func: Any, arch: str = "sm_90") -> None:
        self.reports: list[LaunchReport] = []
        self._lowered = lowered({"main": func}, tvm.target.Target({"kind": "cuda", "arch": arch}))
        self.sources = self._lowered.sources

    @cached_property
    def _simulators(self) -> dict[str, Simulator]:
        return dict(zip(self.sources, Simulator.of_each([*self.sources.values()]), strict=True))

    def run(self, *arrays: Array, order: int = 0) -> None:
        """With an array for each parameter; results are written into theirs, ``reports`` are of each launch."""
        memories = list(arrays)
        given_zeros: list[Array] = []

        def allocate(elements: Any, dtype: str, zeros: bool) -> int:
            memories.append(np.full(int(elements), 0 if zeros else unwritten(np.dtype(dtype)), dtype))
            if zeros:
                given_zeros.append(memories[-1])
            return len(memories) - 1

        host = self._lowered.host["main"]
        launches = launches_of("main", host, list(range(len(arrays))), {}, allocate)
        self.reports = []
        for launch in launches:
            given = [_given(one, memories[one.memory]) for one in launch.arguments if one.memory is not None]
            assert len(given) == len(launch.arguments)
            simulator = self._simulators[launch.kernel]
            report = simulator.launch(launch.kernel, given, launch.groups, launch.items, int(launch.shared), order)
            self.reports.append(report)
        assert not any(memory.any() for memory in given_zeros), "what was zeros is left otherwise"


def _given(argument: Argument, memory: Array) -> Any:
    """The memory, or how a kernel looks at it."""
    seen = argument.map
    if seen is None:
        return memory
    return MappedArray(memory, memory.itemsize, *(list(map(int, n)) for n in (seen.extents, seen.strides, seen.box)))


def shapes_and_types(func: Any) -> list[tuple[tuple[int, ...], str]]:
    """Of the parameters."""
    return [(tuple(int(e) for e in p.ty.shape), str(p.ty.dtype)) for p in func.params]


def inputs_of(func: Any, seed: int = 0) -> list[Array]:
    """An array for each parameter: normal numbers; the last one, the result, is :func:`unwritten`."""
    rng = np.random.default_rng(seed)
    *inputs, (shape, dtype) = shapes_and_types(func)
    made = [rng.standard_normal(extents).astype(numpy_type(kind)) for extents, kind in inputs]
    return [*made, np.full(shape, unwritten(numpy_type(dtype)), numpy_type(dtype))]


def result_of(kernels: Kernels, arrays: list[Array], order: int = 0) -> Array:
    """What is written into the last of the arrays."""
    arrays[-1][...] = unwritten(arrays[-1].dtype)
    kernels.run(*arrays, order=order)
    return arrays[-1].astype("float64")


def in_double_precision(twin: Any, arrays: list[Array]) -> Array:
    """The result of the same inputs by TVM's CPU code of ``twin``, the same function of float64."""
    (*_, (shape, _)) = shapes_and_types(twin)
    wide = [tvm.runtime.tensor(array.astype("float64")) for array in arrays[:-1]]
    result = tvm.runtime.tensor(np.zeros(shape))
    unscheduled_library({"twin": twin})["twin"](*wide, result)
    return result.numpy()


def check_case(case: Any, func: Any, kernels: Kernels, tolerance: float) -> None:
    """``func``, one of a case of :mod:`.cases`, is as near its twin of float64, in every order."""
    arrays = inputs_of(func)
    reference = in_double_precision(case("float64", "float64", "float64"), arrays)
    check_in_every_order(kernels, arrays, reference, tolerance)


def check_in_every_order(kernels: Kernels, arrays: list[Array], reference: Array, tolerance: float) -> None:
    """The result is as near the reference, and the same bits in three orders of threads."""
    first = result_of(kernels, arrays, 0)
    assert relative_error(first, reference) < tolerance
    for order in (1, 2):
        assert (result_of(kernels, arrays, order) == first).all(), "the result depends on the order of threads"


def relative_error(result: Array, reference: Array) -> float:
    """In the norm of both."""
    assert np.isfinite(result).all(), "an element was not written, or is no number"
    return float(np.linalg.norm(result - reference) / np.linalg.norm(reference))


def numpy_type(dtype: str) -> Any:
    return np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)


def unwritten(dtype: Any) -> Any:
    """An element that no kernel has written: NaN, or an odd number."""
    return np.iinfo(dtype).max - 2 if np.issubdtype(dtype, np.integer) else np.nan
