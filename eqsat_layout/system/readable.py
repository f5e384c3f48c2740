"""Files that are read as a whole.

In: a path. Out: its bytes, or :class:`OSError` for a file that is larger than it can be: one with holes in it takes no
place on disk, and who reads it runs out of memory.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

_GIB: Final = 1 << 30


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """The contents, after :func:`check_size`."""
    check_size(path, most)
    return path.read_bytes()


def check_size(path: Path, most: int | None = None) -> None:
    """``most``: bytes; by default as many as this machine has memory for."""
    size = path.stat().st_size
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if most is not None and size > most:
        raise OSError(errno.EFBIG, f"{_said(size)}, and such a file has {_said(most)} at most")
    if size > memory:
        raise OSError(errno.EFBIG, f"{_said(size)}, and this machine has {_said(memory)} of memory")


def _said(size: int) -> str:
    return f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{size >> 20} MiB"
