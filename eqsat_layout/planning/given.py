"""What ``optimize``, ``plan``, ``compile`` and ``tune`` are given, as an IRModule.

In: a source, and options that say more about it. Out: the module, and the options that are about planning. Files,
onnx and torch play no part, and cost nothing, where a module is given.
"""

from __future__ import annotations

from typing import Any

import tvm

from eqsat_layout.planning.options import Options, check_names


def as_module(source: Any, options: Options) -> tuple[Any, Options]:
    """The module of ``source`` (:mod:`eqsat_layout.sources`) with the ``shapes`` that are asked for."""
    if isinstance(source, tvm.IRModule) and options.get("shapes") is None and options.get("inputs") is None:
        return source, options
    check_names(options)
    from eqsat_layout.sources.source import source_of  # TVM's parser and frontends take long to import

    rest = options.copy()
    shapes = rest.pop("shapes", None)
    return source_of(source, rest.pop("inputs", None), shapes).module, rest
