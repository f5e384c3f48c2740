"""What was being built when it failed.

In: its builder. Out: one that is empty: of blocks that are left when it goes, TVM warns on standard error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tvm


@contextmanager
def blocks_ended(builder_of: Callable[[], Any]) -> Iterator[None]:
    """Where what is inside fails, all blocks that are being built are ended, if there is a builder by then."""
    try:
        yield
    except Exception:
        _end_blocks(builder_of())
        raise


def _end_blocks(builder: Any) -> None:
    while builder is not None:
        try:
            builder._end_block()
        except tvm.error.InternalError:  # there are no more
            return
