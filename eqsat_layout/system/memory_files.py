"""Files that take no place on a disk, for what goes from process to process, or wants a path.

In: how many. Out: their paths. They are gone as soon as no process has them open, also where one is killed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path


@contextmanager
def files_in_memory(count: int) -> Iterator[Sequence[Path]]:
    """Other processes of the user find them too. On a disk where the system has none in memory."""
    own = Path(f"/proc/{os.getpid()}/fd")
    with ExitStack() as stack:
        if hasattr(os, "memfd_create") and own.is_dir():
            descriptors = []
            for _ in range(count):
                descriptors.append(os.memfd_create("eqsat_layout"))
                stack.callback(os.close, descriptors[-1])
            yield [own / str(descriptor) for descriptor in descriptors]
            return
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        paths = [folder / str(number) for number in range(count)]
        for path in paths:
            path.touch()
        yield paths
