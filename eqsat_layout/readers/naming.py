"""Original names: what an op was called in the model that a module was read from.

In: a module, names by calls of ops or the variables that they are bound to. Out: the same module with variables of
these names, which plans, explanations and pages show.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax

from eqsat_layout.errors import EqsatError
from eqsat_layout.tir.structural import nodes_of, substitute


def with_names(mod: tvm.IRModule, names: Mapping[Any, str]) -> tvm.IRModule:
    """``mod`` where the variables of ``main`` that have ``names``, or stand for what has, are called so.

    What has none is a part of what reads it, of a convolution with a bias the convolution: it is called as that is. An
    empty name is a value that is none.
    """
    named = {var: name for var, name in names.items() if isinstance(var, relax.Var)}
    bindings = nodes_of(mod["main"], relax.VarBinding)
    for binding in bindings if len(named) < len(names) else ():
        if isinstance(binding.value, tvm.ir.Call) and binding.value in names:
            named.setdefault(binding.var, names[binding.value])
    for binding in reversed(bindings):
        if name := named.get(binding.var):
            for part in nodes_of(binding.value, relax.DataflowVar):
                named.setdefault(part, name)
    variables = {var: type(var)(name, var.ty) for var, name in named.items() if name not in ("", var.name)}
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
