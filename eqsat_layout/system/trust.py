"""Whether somebody else could put files into a folder whose files are run.

In: a folder, which need not exist, or an open file. Out: why not to trust what is there. Only this user and root are
trusted, as ssh and git do it: whoever may write to a folder, or to one that it is in, may plant a library there.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


def distrust(folder: Path) -> str:
    """Why what lies in ``folder`` may be another user's; empty if it is this user's."""
    own = folder.absolute()
    for path in dict.fromkeys((own, *own.parents, *(real := own.resolve()).parents, real)):
        try:
            state = path.lstat()
        except OSError:  # it is not there yet, or its folder can't be looked into: nothing is read from it then
            continue
        if not _is_trusted(state):
            return f"{path} belongs to another user"
        is_shared = bool(state.st_mode & stat.S_ISVTX) and path not in (own, real)  # there each has only what he made
        if stat.S_ISDIR(state.st_mode) and not is_shared and _others_write(state):
            return f"other users may write to {path}"
    return ""


def is_own_file(descriptor: int) -> bool:
    """Whether an open file is one that this user or root made."""
    state = os.fstat(descriptor)
    return stat.S_ISREG(state.st_mode) and _is_trusted(state) and not _others_write(state)


def _is_trusted(state: os.stat_result) -> bool:
    return state.st_uid in (0, os.geteuid())


def _others_write(state: os.stat_result) -> bool:
    """Others than the user's own group, in which most systems have nobody else, and root's."""
    by_group = state.st_mode & stat.S_IWGRP and state.st_gid not in (0, os.getegid())
    return bool(by_group or state.st_mode & stat.S_IWOTH)
