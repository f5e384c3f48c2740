"""Applies a mutator to the functions that contain certain calls.

In: a Relax module, which calls are concerned, and a mutator. Out: the module after the mutator has visited the
functions of such calls; the others are as they were.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax

from eqsat_layout.tir.structural import nodes_of


def with_changed_calls(
    mod: tvm.IRModule, is_concerned: Callable[[Any], object], mutator: Callable[[tvm.IRModule], Any]
) -> tvm.IRModule:
    """``mod`` itself where no call is concerned."""
    functions = {var: func for var, func in mod.functions_items() if isinstance(func, relax.Function)}
    found = {var: func for var, func in functions.items() if any(map(is_concerned, nodes_of(func, tvm.ir.Call)))}
    if not found:
        return mod
    own = mutator(mod)
    for var, function in found.items():
        own.builder_.update_func(var, own.visit_expr(function))
    changed: tvm.IRModule = own.builder_.get()
    return changed
