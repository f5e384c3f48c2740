"""Files that are written as a whole or not at all.

In: a path. Out: a file to write to, which takes the path's place when all is written; whoever stops in between leaves
what was there.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def whole_file(path: Path, *, is_text: bool) -> Iterator[IO[Any]]:
    """:class:`OSError` where it can't be written. A device, a pipe, and a file in a folder that takes no new ones are
    written to as they are."""
    mode, encoding = ("w", "utf-8") if is_text else ("wb", None)
    place = path.resolve()
    if not _can_be_replaced(place):
        with place.open(mode, encoding=encoding) as file:
            yield file
        return
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}."[:100])
    try:
        with os.fdopen(handle, mode, encoding=encoding) as file:
            yield file
        os.chmod(name, place.stat().st_mode & 0o777 if place.exists() else 0o666 & ~_umask())
        os.replace(name, place)
    except BaseException:
        os.unlink(name)
        raise


def _can_be_replaced(place: Path) -> bool:
    is_new_or_plain = place.is_file() or not place.exists()
    return is_new_or_plain and (os.access(place.parent, os.W_OK) or not place.exists())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
