"""What was being built when it failed.

In: its builder. Out: one that is empty: of blocks that are left when it goes, TVM warns on standard error.
"""

from __future__ import annotations

from typing import Any

import tvm


def end_blocks(builder: Any) -> None:
    """Ends all blocks that are being built, if there is a builder."""
    while builder is not None:
        try:
            builder._end_block()
        except tvm.error.InternalError:  # there are no more
            return
