"""egglog's engine without the language for Python around it.

In: the wheel. Out: its extension module, loaded when something is first asked of it: it starts a thread then, which a
fork does not have, and for which it waits there for ever. ``import egglog.bindings`` imports that language first, with
a formatter of source code: 0.14 s of the time in which a network is compiled. A program that imports egglog itself gets
it whole.
"""

from __future__ import annotations

import logging
import os
import sys
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any, Final

_PACKAGE: Final = "egglog"
_EXTENSION: Final = f"{_PACKAGE}.bindings"
_forks: Final[set[int]] = set()
"""Processes that are forks of one that had loaded it."""


@cache
def extension() -> Any:
    """The module. Not to be used where :func:`is_left_behind` says so."""
    log = logging.getLogger(_PACKAGE)
    if log.level == logging.NOTSET:  # it says every command at INFO: thousands of lines for who listens to all packages
        log.setLevel(logging.WARNING)
    if _PACKAGE in sys.modules:
        from egglog import bindings

        return bindings
    package = find_spec(_PACKAGE)
    spec = package and PathFinder.find_spec(_EXTENSION, package.submodule_search_locations)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {_EXTENSION!r}", name=_EXTENSION)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules.pop(_EXTENSION, None)  # it is no part of a package that is not imported
    return module


def is_left_behind() -> bool:
    """Whether its threads are those of a process that this one is a fork of."""
    return os.getpid() in _forks


def _in_a_fork() -> None:
    if extension.cache_info().currsize or _EXTENSION in sys.modules:
        _forks.add(os.getpid())


os.register_at_fork(after_in_child=_in_a_fork)
