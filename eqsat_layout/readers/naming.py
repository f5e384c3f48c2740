"""Original names: what an op was called in the model that a module was read from.

In: a module, names by the variables that ops are bound to. Out: the same module with variables of these names, which
plans, explanations and pages show.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax

from eqsat_layout.errors import EqsatError
from eqsat_layout.tir.structural import substitute


def with_names(mod: tvm.IRModule, names: Mapping[Any, str]) -> tvm.IRModule:
    """``mod`` where the variables of ``main`` that have ``names`` are called so."""
    variables = {var: type(var)(name, var.ty) for var, name in names.items() if name != var.name}
    changed = mod.clone()
    changed["main"] = substitute(mod["main"], variables)
    try:
        relax.analysis.well_formed(changed)
    except ValueError:
        if (name := _of_unknown_shape(changed["main"])) is None:
            raise
        raise EqsatError(f"the shape of {name!r} is made of values that are known at run time only: not done") from None
    return changed


def _of_unknown_shape(function: relax.Function) -> str | None:
    """The first variable whose shape is itself a variable."""
    for block in function.body.blocks:
        for binding in block.bindings:
            if isinstance(getattr(binding.var.ty, "shape", None), relax.Var):
                return str(binding.var.name)
    return None
