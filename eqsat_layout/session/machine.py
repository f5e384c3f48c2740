"""TVM's virtual machine over its runtime alone, which is 5 MB where the compiler is 260.

In: a program, a device. Out: a machine whose functions take and give tensors. ``tvm`` itself, Python and compiler, is
not imported here: a process that only runs a library needs a third of the memory without it and starts at once.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import tvm_ffi

_LIBRARIES: Final = ("libtvm_runtime.so", "libtvm_runtime_extra.so")
_POOLED: Final = 2
"""TVM's number for memory that is given back to a pool."""
_CPU: Final = 1
"""DLPack's number for the CPU."""


class Machine:
    """``machine[name]`` is a function of the program. One thread at a time may run it."""

    def __init__(self, program: Any, device: Any = None) -> None:
        library = program if isinstance(program, tvm_ffi.Module) else program.jit()
        self.module = library["vm_load_executable"]()
        kind, index = (_CPU, 0) if device is None else (int(device.dlpack_device_type()), int(device.index))
        devices = (kind, index, _POOLED) if kind == _CPU else (kind, index, _POOLED, _CPU, 0, _POOLED)
        self.module["vm_initialization"](*devices)

    def __getitem__(self, name: str) -> Any:
        return self.module[name]


@cache
def load_runtime() -> None:
    """What a library of TVM's needs to be opened: its runtime, or all of TVM where that is not found by itself."""
    if "tvm" in sys.modules:
        return
    folder = next((folder for folder in _folders() if (folder / _LIBRARIES[0]).is_file()), None)
    if folder is None:
        import tvm  # noqa: F401

        return
    for name in _LIBRARIES:
        if (folder / name).is_file():
            ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL)


def _folders() -> list[Path]:
    """Where TVM looks for its libraries, as its module ``libinfo`` has them."""
    spec = find_spec("tvm")
    own = [Path(place) for place in (spec.submodule_search_locations if spec else None) or ()]
    given = os.environ.get("TVM_LIBRARY_PATH")
    built = [folder for place in own for folder in (place.parents[1] / "build" / "lib", place.parents[1] / "lib")]
    return [*([Path(given)] if given else []), *(place / "lib" for place in own), *built]
