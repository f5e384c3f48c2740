"""The threads that parallel loops of kernels run in, one pool for all libraries of this process, and their memory.

In: the path of a library that is loaded. Out: its kernels begin parallel loops by the pool of
``targets/thread_pool.c``, which the first such library holds, and not by TVM's, and ask it for memory. What is seen of
the pool by a thread that begins loops.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Final

from eqsat_layout.system.machine import threads

_VARIABLES: Final = (
    ("__TVMBackendParallelLaunch", "eqsat_layout_launch"),
    ("__TVMBackendAllocWorkspace", "eqsat_layout_allocate"),
    ("__TVMBackendFreeWorkspace", "eqsat_layout_free"),
)
"""Those in which TVM's loader says how, in every library that needs it, and the pool's own functions."""


class Caller(ctypes.Structure):
    """What the pool knows of a thread: how many threads its loops take at most (0: all), and how many it began."""

    most: int
    loops: int
    _fields_ = (("most", ctypes.c_int32), ("loops", ctypes.c_uint32))


_lock: Final = threading.Lock()
_pools: Final[list[Any]] = []


def use_pool_in(path: str) -> None:
    """Leaves a library as it is that needs none, or has no pool, such as one that was made by TVM itself."""
    library = ctypes.CDLL(path)
    found = {own: variable for name, own in _VARIABLES if (variable := _variable(library, name)) is not None}
    if not found:
        return
    with _lock:
        if not _pools:
            if not all(hasattr(library, own) for _, own in _VARIABLES):
                return
            library.eqsat_layout_set_threads(threads())
            _pools.append(library)
    for own, variable in found.items():
        variable.value = ctypes.cast(getattr(_pools[0], own), ctypes.c_void_p).value


def caller_of_pool() -> Caller | None:
    """Of this thread, which must not hand it on; None where no library has a pool that can be told."""
    if not _pools or not hasattr(_pools[0], "eqsat_layout_caller"):
        return None
    ask = _pools[0].eqsat_layout_caller
    ask.restype = ctypes.POINTER(Caller)
    found: Caller = ask().contents
    return found


def _variable(library: Any, name: str) -> Any:
    try:
        return ctypes.c_void_p.in_dll(library, name)
    except ValueError:
        return None
