"""Kernels of sizes that are known at run time only count in 32 bits: a device divides by such sizes many times as long
in 64.

In: a PrimFunc before it is scheduled. Out: the same with indices of 32 bits, where the tensors it has been given bound
them all: the host refuses tensors of 2**31 elements and more. Others are left as they are.
"""

from __future__ import annotations

from typing import Any, Final

import tvm
from tvm import s_tir, tirx

from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.tir.structural import is_one_of, nodes_of

_WIDE: Final = "int64"
_MOST: Final = 1 << 31


def in_32_bits(func: Any) -> Any:
    """``func`` itself where its sizes are known, or where some index may need more."""
    tensors = [param for param in func.params if type(param.ty) is tirx.BufferType]
    sizes = [var for tensor in tensors for extent in tensor.ty.shape for var in nodes_of(extent, tirx.Var)]
    own = [buffer for block in nodes_of(func.body, s_tir.SBlock) for buffer in block.alloc_buffers]
    if not sizes or any(not is_one_of(param, [*tensors, *sizes]) for param in func.params):
        return func
    if any(str(buffer.ty.dtype) == _WIDE for buffer in (*tensors, *own)) or _has_wide_values(func):
        return func  # TVM's pass makes elements narrow too
    known = [as_int(_elements(tensor)) for tensor in tensors]
    if any(count is not None and count >= _MOST for count in known):
        return func
    analyzer = tvm.sym.Analyzer()
    for var in dict.fromkeys(sizes):
        analyzer.bind(var, tvm.ir.Range(tirx.const(1, var.ty.dtype), tirx.const(_MOST, var.ty.dtype)))
    for buffer in own:
        if not any(analyzer.can_prove(_elements(buffer) <= _elements(tensor)) for tensor in tensors):
            return func
    var = tvm.ir.GlobalVar("main")
    return tirx.transform.ForceNarrowIndexToInt32()(tvm.IRModule({var: func}))[var]


def _elements(buffer: Any) -> Any:
    count: Any = tirx.const(1, _WIDE)
    for extent in buffer.ty.shape:
        count = count * extent.astype(_WIDE)
    return tvm.sym.Analyzer().simplify(count)


def _has_wide_values(func: Any) -> bool:
    """Numbers of 64 bits are made of others."""
    return any(str(cast.ty.dtype) == _WIDE for cast in nodes_of(func.body, tirx.Cast))
