"""TVM without torch, which it imports wherever that is installed, for helpers that convert tensors.

That takes a process seconds and some 180 MB. This package gives torch tensors to TVM by DLPack, which needs no helper;
who uses the helpers themselves imports torch first, and then they are there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from types import FrameType
from typing import Any, Final

_HELPERS: Final = re.compile(r"tvm_ffi\b|tvm\.relax\.base_py_module$")
"""Modules that import it when they are imported."""


@contextmanager
def without_torch() -> Iterator[None]:
    """TVM finds no torch here unless it is imported already; anybody else does."""
    finder = _NoneForTvm()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _NoneForTvm(MetaPathFinder):
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> None:
        """Raises ``ModuleNotFoundError``, or lets others find it."""
        if fullname == "torch" and _HELPERS.match(_importer(sys._getframe(1))):
            raise ModuleNotFoundError("left out: see eqsat_layout.system.without_torch", name=fullname)


def _importer(frame: FrameType | None) -> str:
    """The module that asked the import system, whose own frames come first."""
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("importlib."):
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals.get("__name__"))
