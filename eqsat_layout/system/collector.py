"""Python's collector of cycles, while much is made that all stays alive.

In: a block of work. Out: the same without the collector, which looks at every object again and again for little.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Importing, planning and building make millions of small objects; looking for cycles among them doubles the time
    of a plan."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
