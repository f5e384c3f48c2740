"""Reshapes of open sizes hold all elements of what they read, which TVM does not check: it gives others or leaves some out.

In: a Relax module. Out: the same, whose functions fail where a reshape would not hold as many elements as it reads.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import ir, relax, sym, tirx

from eqsat_layout.tir.structural import nodes_of, with_relax_functions

_ONE: Final = tirx.IntImm("int64", 1)
_KEEP_ELEMENTS: Final = ("relax.reshape", "relax.squeeze")
"""What gives as many elements as it reads, by what it says."""


def check_reshapes(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` itself where each reshape is known to fit."""
    return with_relax_functions(mod, _checked)


def _checked(function: Any) -> Any:
    known = {var for param in function.params for var in nodes_of(param.ty, ir.Var)}
    blocks = list(function.body.blocks) if isinstance(function.body, relax.SeqExpr) else []
    bindings = [binding for block in blocks for binding in block.bindings]  # those of branches may not be run
    found = [claim for claim in (_unproven(binding, known) for binding in bindings) if claim is not None]
    if not found:
        return function
    claims = {tvm_ffi.StructuralKey(relax.ShapeExpr(claim)): claim for claim in found}
    checks = [binding for claim in claims.values() for binding in _check(*claim)]
    body = relax.SeqExpr(
        [relax.BindingBlock(checks), *blocks], function.body.body
    )  # in front, where they end no region
    return relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)


def _unproven(binding: Any, known: Collection[Any]) -> tuple[Any, Any] | None:
    """The elements that are read and those that there are then, unless they are known to be as many; of sizes that are
    ``known`` where the function begins."""
    call = binding.value
    if isinstance(binding, relax.MatchCast) or not isinstance(call, relax.Call):
        return None
    if getattr(call.op, "name", "") not in _KEEP_ELEMENTS:
        return None
    shapes = [getattr(one.ty, "shape", None) for one in (call.args[0], binding.var)]
    if not all(isinstance(shape, relax.ShapeExpr) for shape in shapes):
        return None
    analyzer = sym.Analyzer()
    read, made = (analyzer.simplify(reduce(lambda a, b: a * b, shape.values, _ONE)) for shape in shapes)
    is_told = all(var in known for one in (read, made) for var in tirx.analysis.undefined_vars(one))
    return None if not is_told or analyzer.can_prove_equal(read, made) else (read, made)


def _check(read: Any, made: Any) -> list[Any]:
    """TVM's machine compares variables with numbers."""
    none = relax.ShapeType([tirx.IntImm("int64", 0)])
    more = relax.ShapeExpr([sym.Analyzer().simplify(read - made)])
    var = relax.Var("more", relax.ShapeType(more.values))
    return [relax.VarBinding(var, more), relax.MatchCast(relax.Var("fits", none), var, none)]
