"""What runs in a process of ``workers``: TVM's loop, which reads a function and its arguments and writes the result."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pickle import UnpicklingError

from eqsat_layout.system.without_torch import without_torch


def command(reading: int, writing: int, scratch: str) -> list[str]:
    """Starts such a process with this one's path and level of logging, so that it imports what this one does; its
    temporary files lie in ``scratch``, which goes with it."""
    called = f"main({logging.getLogger().level}, {scratch!r})"
    code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; {called}"
    return [sys.executable, "-c", code, str(reading), str(writing)]


def main(level: int, scratch: str) -> None:
    """Until the other process closes its end."""
    tempfile.tempdir = os.environ["TMPDIR"] = scratch
    logging.basicConfig(level=level)
    with without_torch():
        from tvm.exec import popen_worker
    try:
        with suppress(BrokenPipeError, EOFError, UnpicklingError):  # it has ended: nobody waits, or a job was half sent
            popen_worker.main()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    os._exit(0)  # without a word of the writer, which tries once more
