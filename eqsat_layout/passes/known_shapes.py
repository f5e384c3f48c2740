"""Shapes that are known, as the numbers that they are.

In: a Relax module. Out: the same, in which tensors made of such shapes are constants: what importers compute with them
(an index that may be negative, a size for ``reshape``) can be done ahead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from eqsat_layout.tir.structural import with_relax_functions


def write_known_shapes(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` itself where no tensor is made of a known shape."""
    writer = _Writer(mod)
    written = with_relax_functions(mod, writer.visit_expr)
    return relax.transform.DeadCodeElimination()(written) if writer.has_written else mod


@relax.expr_functor.mutator
class _Writer(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.has_written = False

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if not isinstance(call.op, tvm.ir.Op) or call.op.name != "relax.shape_to_tensor":
            return call
        extents = call.args[0].ty.values
        if extents is None or not all(isinstance(extent, tirx.IntImm) for extent in extents):
            return call
        self.has_written = True
        return relax.const(np.array([int(extent) for extent in extents], "int64"), "int64")
