"""Modules that can be planned: well formed, and in TVM's normal form.

In: what a user gives. Out: an IRModule, or an error that says what is wrong with it.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from eqsat_layout.errors import ILL_TYPED, MalformedModuleError


def well_formed(mod: Any) -> tvm.IRModule:
    """``mod``, in normal form if it is not: TVM's own builds begin with that.

    Structure only: types are checked once per distinct op when the module is read. Raises
    :class:`~eqsat_layout.errors.MalformedModuleError`.
    """
    if not isinstance(mod, tvm.IRModule):
        raise MalformedModuleError(f"expected a tvm.IRModule, got {type(mod).__name__}")
    try:
        _check_structure(mod)
    except MalformedModuleError:
        try:
            normalised: tvm.IRModule = relax.transform.Normalize()(_with_own_variables(mod))
            _check_structure(normalised)
        except (MalformedModuleError, *ILL_TYPED):
            pass  # what is wrong with the module as it was given is said
        else:
            return normalised
        raise
    return mod


def _check_structure(mod: tvm.IRModule) -> None:
    try:
        relax.analysis.well_formed(mod, check_ty=False)
    except ILL_TYPED as error:
        raise MalformedModuleError(f"the module is not well formed: {str(error).strip()}") from error
    for var, function in mod.functions_items():
        try:
            relax.analysis.free_symbolic_vars(function) if isinstance(function, relax.Function) else ()
        except ILL_TYPED as error:
            raise MalformedModuleError(
                f"{var.name_hint}: an expression has no type, and relax.transform.Normalize() finds none"
            ) from error


def _with_own_variables(mod: tvm.IRModule) -> tvm.IRModule:
    """Each function with variables of its own, and so a copy of all that reads them: the pass writes types into it."""
    functions = {
        var: relax.utils.copy_with_new_vars(function) if isinstance(function, relax.Function) else function
        for var, function in mod.functions_items()
    }
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
