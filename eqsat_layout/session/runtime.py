"""TVM's runtime without its compiler, which takes a second and a hundred megabytes to load: all that a library needs.

In: a library's file, a module that holds a program. Out: a virtual machine that runs it. Where ``tvm`` is imported
already, or later, this is the same runtime.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import tvm_ffi
from tvm_ffi.libinfo import load_lib_ctypes

from eqsat_layout.errors import EqsatError
from eqsat_layout.system.thread_pool import use_pool_in

CPU: Final = (1, 0)
"""DLPack's kind and number of the device."""

_POOLED: Final = 2
"""Memory that is free is kept for the next run."""

_SPINS: Final = ("TVM_THREAD_POOL_SPIN_COUNT", "10000")
"""How often idle threads yield before they sleep: a few milliseconds. TVM's 300000 take the time of ten runs of a small
network after each, from whoever else could use it."""

_modules: dict[tuple[int, ...], Any] = {}
"""By file, never to be unloaded."""
_opening: Final = threading.Lock()


def virtual_machine(module: Any, device: tuple[int, int] = CPU) -> Any:
    """A machine of its own for the program of ``module``: a library, or what TVM compiled."""
    _load()
    loaded = module.jit() if hasattr(module, "jit") else module
    devices = [device] if device == CPU else [device, CPU]  # sizes are computed on the CPU
    try:
        return _started(loaded, devices)
    except RuntimeError:  # some of what programs call is Python, and there once TVM is imported: what counts non-zeros
        if "tvm.relax" in sys.modules:
            raise
        import tvm.relax  # noqa: F401

        return _started(loaded, devices)


def _started(library: Any, devices: Sequence[tuple[int, int]]) -> Any:
    machine = library["vm_load_executable"]()
    machine["vm_initialization"](*(number for one in devices for number in (*one, _POOLED)))
    return machine


def opened_library(path: str) -> Any:
    """The module in a library's file. A file is loaded once: TVM's loader gives a library its own memory and threads
    again each time, also while kernels of it hold memory of ours."""
    _load()
    status = os.stat(path)
    file = status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
    with _opening:
        if file not in _modules:
            module = tvm_ffi.load_module(path)
            use_pool_in(path)
            _modules[file] = module
        return _modules[file]


@cache
def _load() -> None:
    """As ``import tvm`` loads it, which does not load it again."""
    os.environ.setdefault(*_SPINS)  # read when the first parallel kernel runs
    if "tvm" in sys.modules:
        return
    package = find_spec("tvm")
    if package is None or not package.submodule_search_locations:
        raise EqsatError("TVM is not installed: pip install apache-tvm")
    folders = [Path(folder) / "lib" for folder in package.submodule_search_locations]
    try:
        load_lib_ctypes("tvm", "tvm_runtime", "RTLD_GLOBAL", extra_lib_paths=folders)
    except (OSError, RuntimeError):  # of a build that lies elsewhere, which TVM finds
        import tvm  # noqa: F401
    else:
        with suppress(OSError, RuntimeError):  # not every wheel has it: what sorts, for one; who calls it is told so
            load_lib_ctypes("tvm", "tvm_runtime_extra", "RTLD_LOCAL", extra_lib_paths=folders)
