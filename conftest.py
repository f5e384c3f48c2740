"""What holds for every test: the workers of pytest-xdist share the cores, so TVM gets one thread in each; what was
measured or built on this machine before plays no part; faults are raised, not worked around; and what hypothesis draws
is the same every time."""

from __future__ import annotations

import atexit
import fcntl
import gc
import os
import shutil
import sys
import tempfile
from pathlib import Path

from hypothesis import settings

CACHES = "eqsat_layout_tests_"


def claim(folder: str | Path) -> bool:
    """Makes ``folder`` this process's, as long as it lives; false where it is another's."""
    lock = os.open(Path(folder, "lock"), os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return False
    return True


def empty_cache() -> str:
    """A folder of this run's own, which goes with it; those of runs that were killed go now (a gigabyte each)."""
    for left in Path(tempfile.gettempdir()).glob(f"{CACHES}*"):
        if os.access(left, os.W_OK) and claim(left):
            shutil.rmtree(left, ignore_errors=True)
    made = Path(tempfile.mkdtemp(prefix="eqsat_layout_"))
    claim(made)
    own = made.rename(made.with_name(CACHES + made.name))  # which no other run finds unclaimed
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return str(own)


os.environ.setdefault("TVM_NUM_THREADS", "1")
if "PYTEST_XDIST_WORKER" not in os.environ:  # one empty cache for all workers, which inherit the environment
    os.environ["EQSAT_LAYOUT_CACHE"] = empty_cache()

os.environ["EQSAT_LAYOUT_STRICT"] = "1"

if sys.dont_write_bytecode:  # not beside the files then, but children and later runs need not parse all of them again
    sys.dont_write_bytecode = False
    _BYTECODE = os.path.join(os.path.dirname(os.path.abspath(__file__)), ".pytest_cache", "bytecode")
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = _BYTECODE
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("new", deadline=None)  # pytest --hypothesis-profile=new
settings.load_profile("same")


def pytest_collection_finish() -> None:
    """What was collected stays: without it Python's collector has little to look through, again and again; and it
    looks more seldom, as nearly all that tests make goes by counts of references."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)
