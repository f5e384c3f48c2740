"""egglog's engine without the language for Python around it.

In: the wheel. Out: its extension module. ``import egglog.bindings`` imports that language first, with a formatter of
source code: 0.14 s of the time in which a network is compiled. A program that imports egglog itself gets it whole.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any, Final

_PACKAGE: Final = "egglog"
_EXTENSION: Final = f"{_PACKAGE}.bindings"


def _extension() -> Any:
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


_LOADED: Final = _extension()
EGraph: Final = _LOADED.EGraph
EggSmolError: Final = _LOADED.EggSmolError
