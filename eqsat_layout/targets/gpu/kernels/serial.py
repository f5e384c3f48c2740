"""A PrimFunc that is not understood, as one work item that does all of it.

In: any PrimFunc of statements. Out: one without blocks that launches a single work item; buffers that it allocates are
those of the host.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, tirx

from eqsat_layout.tir.structural import substitute


def in_one_work_item(func: Any) -> Any:
    """``func`` launched once."""
    func = _with_compact_buffers(func)
    name = func.attrs.get("global_symbol") if func.attrs else None
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    for one in (
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.LowerOpaqueBlock(),
    ):
        mod = one(mod)
    plain = mod["main"]
    statements = list(plain.body.seq) if isinstance(plain.body, tirx.SeqStmt) else [plain.body]
    allocations = [s for s in statements if isinstance(s, tirx.AllocBuffer)]
    rest = [s for s in statements if not isinstance(s, tirx.AllocBuffer)]
    body = rest[0] if len(rest) == 1 else tirx.SeqStmt(rest)
    for tag in ("threadIdx.x", "blockIdx.x"):
        thread = tirx.IterVar(None, tirx.Var(tag, "int32"), tirx.IterVar.ThreadIndex, tag)
        body = tirx.AttrStmt(thread, "thread_extent", tirx.IntImm("int32", 1), body)
    whole = plain.with_body(tirx.SeqStmt([*allocations, body]) if allocations else body)
    return whole.with_attr("global_symbol", name) if name else whole.without_attr("global_symbol")


def _with_compact_buffers(func: Any) -> Any:
    """Parameters that may start anywhere and have any strides start at their memory's start and have none."""
    new: dict[Any, Any] = {}
    for param in func.params:
        if type(param.ty) is tirx.BufferType:
            new[param] = tirx.decl_buffer(
                param.ty.shape, param.ty.dtype, param.name, scope=str(param.ty.storage_scope), layout=None
            )
    body = substitute(func.body, new)
    return tirx.PrimFunc([new.get(p, p) for p in func.params], body, ret_type=func.ret_type, attrs=func.attrs)
