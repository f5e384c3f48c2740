"""The environment of commands of this folder that others start. In: a number of threads. Out: variables."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]


def environment(threads: int) -> dict[str, str]:
    """This process's, in which packages are found wherever a command runs, and libraries may have so many threads."""
    search = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    counts = dict.fromkeys(("TVM_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    return {**os.environ, **counts, "PYTHONPATH": search}
