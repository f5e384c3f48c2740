"""Keeps the warnings that TVM's C++ writes about its own work out of what a person reads.

In: a command that runs. Out: all that it writes to standard error, but for those lines; they say nothing that the
command's user could do something about, and there are hundreds where ops are drawn at random.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_WARNING: Final = re.compile(rb"\[\d\d:\d\d:\d\d\] \S+:\d+: Warning: ")
"""How TVM begins a line."""

_PATIENCE: Final = 1.0
"""Seconds to wait for the last lines: a process that goes on holds the pipe open."""


@contextmanager
def without_tvm_warnings() -> Iterator[None]:
    """Standard error, also that of processes that are started, without TVM's warnings."""
    try:
        own = os.dup(2)
    except OSError:  # there is no standard error
        yield
        return
    out, end = os.pipe()
    sys.stderr.flush()
    os.dup2(end, 2)
    os.close(end)
    reader = threading.Thread(target=_pass_on, args=(out, own), daemon=True)
    reader.start()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"tvm\.")
            yield
    finally:
        sys.stderr.flush()
        os.dup2(own, 2)
        reader.join(_PATIENCE)


def _pass_on(source: int, target: int) -> None:
    with open(source, "rb", closefd=True) as lines, suppress(OSError):
        for line in lines:
            if not _WARNING.match(line):
                os.write(target, line)
