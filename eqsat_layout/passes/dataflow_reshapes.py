"""TVM's pass that makes views of what reshapes, where its analysis takes all functions.

In: a Relax module. Out: the same, with views.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.relax import transform

from eqsat_layout.tir.reshape_pattern import reshape_pattern


def rewrite_dataflow_reshape() -> Any:
    """``RewriteDataflowReshape``; functions that end its analysis in an error are no reshapes, and out of its sight."""

    def changed(mod: tvm.IRModule, _: Any) -> tvm.IRModule:
        try:
            return transform.RewriteDataflowReshape()(mod)
        except tvm.error.InternalError:
            odd = {var: function for var, function in mod.functions_items() if _is_odd(function)}
            if not odd:
                raise
        hidden = {var: function.with_body(tirx.Evaluate(tirx.const(0, "int32"))) for var, function in odd.items()}
        functions = {**dict(mod.functions_items()), **hidden}
        made = transform.RewriteDataflowReshape()(tvm.IRModule(functions, mod.attrs, mod.global_infos))
        kept = {var: odd.get(var, function) for var, function in made.functions_items()}
        return tvm.IRModule(kept, made.attrs, made.global_infos)

    return tvm.transform.module_pass(changed, opt_level=0, name="eqsat_layout.RewriteDataflowReshape")


def _is_odd(function: Any) -> bool:
    is_of_blocks = isinstance(function, tirx.PrimFunc) and isinstance(function.body, s_tir.SBlockRealize)
    return is_of_blocks and reshape_pattern(function) is None
