"""Python's collector of cycles, while much is made that all stays alive.

In: a block of work. Out: the same without the collector, which looks at every object again and again for little.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused(*, all_stays: bool = False) -> Iterator[None]:
    """Importing, planning and building make millions of small objects; looking for cycles among them doubles the time
    of a plan. ``all_stays``: what is made inside is there for good, as modules are, and is not looked at afterwards
    either."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if all_stays and not gc.get_freeze_count():  # else unfreezing would undo what others froze
                gc.freeze()
                gc.unfreeze()  # to the oldest generation
            gc.enable()
