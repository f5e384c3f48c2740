"""Symbols that no buffer of a PrimFunc tells the value of, as ``n`` where all are of ``n * 8`` elements.

In: a PrimFunc. Out: the same with these symbols as parameters behind its operands, as TVM's own legalisation has it,
and which they are; a call passes their values.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx


def with_loose_symbols(func: Any, operands: int) -> tuple[Any, list[Any]]:
    """``func`` itself where there are none; so many ``operands`` are the first of its parameters."""
    buffers = [param.ty for param in func.params if type(param.ty) is tirx.BufferType]
    extents = [extent for ty in buffers for extent in ty.shape]
    used = [var for extent in extents for var in tirx.analysis.undefined_vars(extent)]
    given = {extent for extent in extents if type(extent) is ir.Var} | set(func.params)
    loose = [var for var in dict.fromkeys(used) if var not in given]
    if not loose:
        return func, []
    params = [*func.params[:operands], *loose, *func.params[operands:]]
    return tirx.PrimFunc(params, func.body, ret_type=func.ret_type, attrs=func.attrs), loose
