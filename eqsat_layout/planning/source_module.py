"""What ``optimize``, ``plan``, ``compile`` and ``tune`` are given, as an IRModule.

In: a source, and options that say more about it. Out: the module, and the options that are about planning. Files,
onnx and torch play no part, and cost nothing, where a module is given.
"""

from __future__ import annotations

from typing import Any

import tvm

from eqsat_layout.planning.options import Options, check_options


def as_module(source: Any, options: Options) -> tuple[Any, Options]:
    """The module of ``source`` (:mod:`eqsat_layout.sources`), with the ``shapes`` and ``precision`` asked for."""
    rest = options.copy()
    shapes, inputs, precision = rest.pop("shapes", None), rest.pop("inputs", None), rest.pop("precision", None)
    mod = source
    if not isinstance(source, tvm.IRModule) or shapes is not None or inputs is not None:
        check_options(options)
        from eqsat_layout.sources.source import source_of  # TVM's parser and frontends take long to import

        mod = source_of(source, inputs, shapes).module
    if precision is not None:
        from eqsat_layout.passes.precision import in_precision
        from eqsat_layout.targets.lowering import prepared

        mod = in_precision(prepared(mod), precision)
    return mod, rest
