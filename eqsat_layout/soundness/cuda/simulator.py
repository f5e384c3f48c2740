"""Kernels of one source, launched: arrays in, arrays changed, or a fault that names the thread and the line.

In: CUDA C++ and arguments as a launch has them. Out: figures of the launch.
"""

from __future__ import annotations

import ctypes
import math
import tempfile
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from eqsat_layout.errors import InputError, did_you_mean
from eqsat_layout.soundness.cuda.build import built, line_at
from eqsat_layout.soundness.cuda.faults import KernelFault
from eqsat_layout.soundness.cuda.source import SourceKernel, Translation, translate
from eqsat_layout.soundness.cuda.tensor_maps import KIND, MappedArray

MOST_SHARED: Final = 227 << 10
"""Bytes of shared memory that a block may have (compute capability 9.0)."""

Compiled: TypeAlias = tuple[Translation, memoryview | bytes]
"""What was made of a source, and the library of it."""

_Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_NUMBERS: Final[dict[str, Any]] = {
    **dict.fromkeys(("int", "int32_t"), ctypes.c_int32),
    **dict.fromkeys(("uint", "unsigned", "unsigned int", "uint32_t"), ctypes.c_uint32),
    **dict.fromkeys(("int64_t", "long long"), ctypes.c_int64),
    **dict.fromkeys(("uint64_t", "unsigned long long"), ctypes.c_uint64),
    **dict.fromkeys(("int8_t", "signed char"), ctypes.c_int8),
    **dict.fromkeys(("uint8_t", "uchar"), ctypes.c_uint8),
    "bool": ctypes.c_bool,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}


@dataclass(frozen=True)
class LaunchReport:
    """``shared_accesses``: of warps to shared memory, in the first block; ``shared_cycles``: what they take, the same
    number where no two lanes meet in a bank. ``products``: matrix products of warps, in all blocks. ``written``: the
    arguments that were, by number."""

    shared_accesses: int
    shared_cycles: int
    barriers: int
    warp_instructions: int
    products: int
    written: frozenset[int] = frozenset()

    @property
    def bank_conflicts(self) -> int:
        return self.shared_cycles - self.shared_accesses


class _Index(ctypes.Structure):
    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint))


class _Report(ctypes.Structure):
    _fields_ = (
        ("faulted", ctypes.c_int),
        ("place", ctypes.c_size_t),
        ("line", ctypes.c_int),
        ("kind", ctypes.c_char * 32),
        ("text", ctypes.c_char * 512),
        *((name, ctypes.c_uint64) for name in ("accesses", "wavefronts", "barriers", "warp_instructions", "products")),
    )


class Simulator:
    """``source``: CUDA C++ of one or more kernels. Compiles it, or finds it compiled."""

    def __init__(self, source: str, compiled: Compiled | None = None) -> None:
        translation, library = compiled or _compiled([source])[0]
        self.kernels = {kernel.name: kernel for kernel in translation.kernels}
        self.source_lines = source.splitlines()
        self._built = library
        with _as_file(self._built) as path:  # loaded, it needs no name: who is killed leaves nothing behind
            self._library = ctypes.CDLL(str(path))
        self._turn = threading.Lock()

    @classmethod
    def of_each(cls, sources: Sequence[str]) -> list[Simulator]:
        """One for each source; what has to be compiled is compiled together."""
        return [cls(source, compiled) for source, compiled in zip(sources, _compiled(sources), strict=True)]

    def launch(
        self,
        name: str,
        arguments: Sequence[Any],
        grid: Sequence[int],
        block: Sequence[int],
        shared_bytes: int = 0,
        order: int = 0,
        settled: Collection[int] | None = None,
    ) -> LaunchReport:
        """Runs a kernel; ``order``: of blocks and threads, 0 the natural one, 1 the reverse, others shuffled.
        ``settled``: of a launch that overlaps with those before it, the arguments that none of them writes: until a
        thread has waited for them (``griddepcontrol.wait``), it may read these only.

        Arrays are what a pointer points to, C-contiguous and of its element's size, or bytes; of one without elements
        nothing may be read. Numbers are numbers; for a tensor map there is a :class:`MappedArray`.
        Arrays may be the same, but not overlap in part. Raises :class:`KernelFault`, and :class:`InputError` for
        arguments that don't fit.
        """
        kernel = self._kernel(name)
        grid_index, block_index = _extents(kernel, "grid", grid), _extents(kernel, "block", block)
        _check_limits(kernel, math.prod(block), shared_bytes)
        values, sizes, granules, kept = self._values(kernel, arguments)
        maps = [one.words() if isinstance(one, MappedArray) else None for one in arguments]
        if settled is not None and (early := sorted(kernel.restricted.difference(settled))):
            text = f"argument {early[0]} is __restrict__: the compiler may load it before it waits for other launches"
            raise KernelFault("race", 0, f"kernel {name}: {text}")
        report = _Report()
        count = len(values)
        written = (ctypes.c_int * count)()
        with self._turn:
            self._library.sim_launch(
                ctypes.cast(getattr(self._library, f"sim_call_{name}"), ctypes.c_void_p),
                (ctypes.c_void_p * count)(*values),
                (ctypes.c_size_t * count)(*sizes),
                (ctypes.c_int * count)(*granules),
                None if settled is None else (ctypes.c_int * count)(*(i in settled for i in range(count))),
                written,
                (ctypes.c_void_p * count)(*(None if one is None else ctypes.addressof(one) for one in maps)),
                ctypes.c_int(count),
                grid_index,
                block_index,
                ctypes.c_size_t(shared_bytes),
                ctypes.c_uint64(order),
                ctypes.byref(report),
            )
        del kept
        if report.faulted:
            raise self._fault(name, report)
        return LaunchReport(
            report.accesses,
            report.wavefronts,
            report.barriers,
            report.warp_instructions,
            report.products,
            frozenset(i for i in range(count) if written[i]),
        )

    def _kernel(self, name: str) -> SourceKernel:
        if name not in self.kernels:
            hint = did_you_mean(name, self.kernels)
            raise InputError(f"no kernel is called {name!r}; {hint}there are {', '.join(sorted(self.kernels))}")
        return self.kernels[name]

    def _values(
        self, kernel: SourceKernel, arguments: Sequence[Any]
    ) -> tuple[list[int], list[int], list[int], list[Any]]:
        if len(arguments) != len(kernel.parameters):
            raise InputError(f"kernel {kernel.name} takes {len(kernel.parameters)} arguments, not {len(arguments)}")
        elements = (ctypes.c_int * max(1, len(arguments))).in_dll(self._library, f"sim_sizes_{kernel.name}")
        values, sizes, granules, kept = [], [], [], []
        for i, (kind, argument) in enumerate(zip(kernel.parameters, arguments, strict=True)):
            what = f"kernel {kernel.name}, argument {i} ({kind})"
            if kind.endswith("*") or kind == KIND:
                size = elements[i] if kind.endswith("*") else _mapped_size(what, argument)
                array = _checked_array(what, argument if kind.endswith("*") else argument.array, size)
                values.append(array.ctypes.data)
                sizes.append(array.nbytes)
                granules.append(size.bit_length() - 1)
            elif kind.removeprefix("const ") in _NUMBERS:
                number = _NUMBERS[kind.removeprefix("const ")](argument)
                kept.append(number)
                values.append(ctypes.addressof(number))
                sizes.append(0)
                granules.append(-1)
            else:
                raise InputError(f"{what}: the simulator passes pointers, tensor maps and numbers only")
        return values, sizes, granules, kept

    def _fault(self, name: str, report: _Report) -> KernelFault:
        line = report.line
        if not line:
            with _as_file(self._built) as path:
                line = line_at(path, report.place)
        text = self.source_lines[line - 1].strip() if 0 < line <= len(self.source_lines) else ""
        shown = f"\n    {text}" if text else ""
        at = f", line {line}" if line else ""
        return KernelFault(report.kind.decode(), line, f"kernel {name}{at}: {report.text.decode()}{shown}")


def _compiled(sources: Sequence[str]) -> list[Compiled]:
    translations = [translate(source) for source in sources]
    return list(zip(translations, built([one.text for one in translations]), strict=True))


@contextmanager
def _as_file(library: memoryview | bytes) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="eqsat_layout_sim_") as folder:
        path = Path(folder) / "kernels.so"
        path.write_bytes(library)
        yield path


def _check_limits(kernel: SourceKernel, threads: int, shared_bytes: int) -> None:
    """:class:`InputError` for blocks that no device launches."""
    if threads > kernel.most_threads:
        raise InputError(f"kernel {kernel.name}: a block of {threads} threads, of at most {kernel.most_threads}")
    if not 0 <= shared_bytes <= MOST_SHARED:
        raise InputError(f"kernel {kernel.name}: {shared_bytes} bytes of shared memory, of at most {MOST_SHARED}")


def _extents(kernel: SourceKernel, what: str, extents: Sequence[int]) -> _Index:
    if len(extents) > 3 or any(extent < 1 for extent in extents):
        raise InputError(f"kernel {kernel.name}: a {what} of {tuple(extents)}")
    return _Index(*(int(extent) for extent in extents), *[1] * (3 - len(extents)))


def _mapped_size(what: str, argument: Any) -> int:
    """Bytes of an element; :class:`InputError` for what is no tensor map, or none that a driver makes."""
    if not isinstance(argument, MappedArray):
        raise InputError(f"{what}: not a tensor map of an array")
    if argument.wrong:
        raise InputError(f"{what}: {argument.wrong}")
    return argument.size


def _checked_array(what: str, argument: Any, size: int) -> _Array:
    if not isinstance(argument, np.ndarray) or not argument.flags.c_contiguous or not argument.flags.writeable:
        raise InputError(f"{what}: not a NumPy array in C order that can be written")
    if argument.dtype == np.uint8 and argument.ndim == 1:  # memory that other elements were in, too
        return argument[: argument.nbytes // size * size]
    if argument.itemsize != size:
        raise InputError(f"{what}: elements of {argument.dtype} have {argument.itemsize} bytes, not {size}")
    return argument
