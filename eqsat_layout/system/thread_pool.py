"""The threads that parallel loops of kernels run in, one pool for all libraries of this process.

In: the path of a library that is loaded. Out: its kernels begin parallel loops by the pool of
``targets/thread_pool.c``, which the first such library holds, and not by TVM's.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Final

from eqsat_layout.system.machine import threads

_BEGINS: Final = "__TVMBackendParallelLaunch"
"""The variable in which TVM's loader says how, in every library with a parallel loop."""

_lock: Final = threading.Lock()
_pools: Final[list[Any]] = []


def use_pool_in(path: str) -> None:
    """Leaves a library as it is that has no parallel loop, or no pool, such as one that was made by TVM itself."""
    library = ctypes.CDLL(path)
    try:
        begins = ctypes.c_void_p.in_dll(library, _BEGINS)
    except ValueError:
        return
    with _lock:
        if not _pools:
            if not hasattr(library, "eqsat_layout_launch"):
                return
            library.eqsat_layout_set_threads(threads())
            _pools.append(library)
    begins.value = ctypes.cast(_pools[0].eqsat_layout_launch, ctypes.c_void_p).value
