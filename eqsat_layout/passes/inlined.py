"""Calls of Relax functions in the place of functions that call them.

In: a function, and functions that it calls. Out: the function with the bindings of these. TVM's ``inline_functions``
gives sizes that no operand has, which are operands themselves (``R.Shape([n])``), new names that nothing says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tvm
from tvm import relax

from eqsat_layout.tir.structural import structural_map, substitute


def inlined(function: Any, known: Mapping[Any, Any]) -> Any:
    """``known``: functions by the variables that they are called by, whose bodies are one dataflow block each."""

    def spliced(block: Any) -> Any:
        return type(block)([one for binding in block.bindings for one in _bindings(binding, known)])

    return structural_map(function, (relax.DataflowBlock, spliced))


def _bindings(binding: Any, known: Mapping[Any, Any]) -> Iterator[Any]:
    """Of a call those of the function, with its operands in the place of the parameters."""
    call = binding.value
    callee = known.get(call.op) if isinstance(binding, relax.VarBinding) and isinstance(call, tvm.ir.Call) else None
    if callee is None:
        yield binding
        return
    values = dict(pair for both in zip(callee.params, call.args, strict=True) for pair in _said(*both))
    for block in callee.body.blocks:
        for own in block.bindings:
            made = substitute(own.value, values)
            new = relax.DataflowVar(own.var.name, substitute(own.var.ty, values))
            values[own.var] = new
            is_cast = isinstance(own, relax.MatchCast)
            yield relax.MatchCast(new, made, substitute(own.ty, values)) if is_cast else relax.VarBinding(new, made)
    yield relax.VarBinding(binding.var, substitute(callee.body.body, values))


def _said(param: Any, operand: Any) -> Iterator[tuple[Any, Any]]:
    """What a parameter is, and what its sizes are."""
    yield param, operand
    for own, given in zip(_sizes(param.ty), _sizes(operand.ty), strict=True):
        if isinstance(own, tvm.ir.Var):
            yield own, given


def _sizes(ty: Any) -> list[Any]:
    """The extents of a tensor or a shape; for a tuple those of all fields."""
    if isinstance(ty, tvm.ir.TupleType):
        return [size for field in ty.fields for size in _sizes(field)]
    if isinstance(ty, relax.TensorType):
        return list(ty.shape.values) if isinstance(ty.shape, relax.ShapeExpr) else []
    return list(ty.values or []) if isinstance(ty, relax.ShapeType) else []
