"""The kernels of an executable, loaded so that memory that they ask for themselves is guarded as well.

In: an executable's library. Out: a :class:`GuardedLibrary`: its kernels by name. Their parallel loops run here as a few
pieces one after the other, so that each piece has ends, and no thread of a pool is needed (there is none after a fork).
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import tvm

from eqsat_layout.soundness.memory.pages import GuardedMemory, PagePlace

PIECES: Final = 3
"""Of a parallel loop."""
_ALIGNMENT: Final = 64
"""What TVM's generated code takes memory that it allocates to be aligned to."""


class _Environment(ctypes.Structure):
    """What TVM calls ``TVMParallelGroupEnv``."""

    _fields_ = (("sync_handle", ctypes.c_void_p), ("num_task", ctypes.c_int32))


_PIECE: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(_Environment), ctypes.c_void_p)
_LAUNCH: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
_ALLOCATE: Final = ctypes.CFUNCTYPE(
    ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_uint64, ctypes.c_int, ctypes.c_int
)
_FREE: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)


class GuardedLibrary:
    """``place``: where in their pages allocations lie from now on. ``found``: called with what was written outside."""

    def __init__(self, library: bytes, found: Callable[[str], None]):
        self.place = PagePlace.END
        self._found = found
        self._allocated: dict[int, GuardedMemory] = {}
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "kernels.so")
            Path(path).write_bytes(library)
            self._module = tvm.runtime.load_module(path)
            loaded = ctypes.CDLL(path)
        self._callbacks = {
            "__TVMBackendParallelLaunch": _LAUNCH(_in_pieces),
            "__TVMBackendAllocWorkspace": _ALLOCATE(self._allocate),
            "__TVMBackendFreeWorkspace": _FREE(self._free),
        }
        for variable, callback in self._callbacks.items():
            try:
                pointer = ctypes.c_void_p.in_dll(loaded, variable)
            except ValueError:  # no kernel needs it
                continue
            pointer.value = ctypes.cast(callback, ctypes.c_void_p).value

    def kernel(self, name: str) -> Any:
        """The one of that name; None if there is none."""
        return self._module.get_function(name) if self._module.implements_function(name) else None

    def _allocate(self, _device: int, _id: int, size: int, _code: int, _bits: int) -> int:
        memory = GuardedMemory(size, self.place, alignment=_ALIGNMENT)
        self._allocated[memory.address] = memory
        return memory.address

    def _free(self, _device: int, _id: int, address: int) -> int:
        memory = self._allocated.pop(address)
        damage = memory.damage()
        if damage:
            self._found(f"of {len(memory.bytes)} bytes that it allocates, {damage}")
        memory.free()
        return 0


def _in_pieces(piece: int, data: int, _wanted: int) -> int:
    environment = _Environment(None, PIECES)
    run = _PIECE(piece)
    return max((abs(run(number, ctypes.byref(environment), data)) for number in range(PIECES)), default=0)
