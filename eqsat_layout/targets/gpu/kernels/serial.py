"""Kernels for PrimFuncs that no family understands, statement by statement.

In: any PrimFunc of statements. Out: one without blocks that launches each statement: independent loops as work items,
all else as a single one. Buffers that it allocates become allocations of the host.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import tvm
from tvm import s_tir, tirx

from eqsat_layout.passes.reduction_inits import init_empty_loops
from eqsat_layout.targets.gpu.kernels.independent_loops import IndependentLoops, independent_loops
from eqsat_layout.targets.gpu.kernels.owners import owned
from eqsat_layout.targets.gpu.kernels.work_groups import USUAL
from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.targets.schedules.attempts import unless_refused
from eqsat_layout.tir.structural import changed_loop, nodes_of, substitute

_LOWERED: Final = (
    init_empty_loops,
    s_tir.transform.LowerInitBlock,
    s_tir.transform.ConvertBlocksToOpaque,
    s_tir.transform.LowerOpaqueBlock,
)


def as_it_stands(func: Any) -> tuple[Any, bool]:
    """``func`` as launches, and whether some of it is done by one work item."""
    name, plain = _without_blocks(_with_compact_buffers(func))
    statements = _statements(plain.body)
    allocations = [one for one in statements if isinstance(one, tirx.AllocBuffer)]
    rest = [one for one in statements if not isinstance(one, tirx.AllocBuffer)]
    parts = [_by_owners(independent_loops(one)) for one in rest]
    is_apart = [bool(part.loops) for part in parts]
    if not any(is_apart):
        launches = [_launched([], tirx.SeqStmt(rest) if rest[1:] else rest[0])]
    else:
        launches = [_launched(part.loops, part.body) for part in parts]
    body = [*allocations, *launches]
    whole = plain.with_body(tirx.SeqStmt(body) if body[1:] else body[0])
    return _named(whole, name), not all(is_apart)


def rest_as_it_stands(func: Any) -> tuple[Any, bool]:
    """The same for a function of which some statements, in blocks and loops of the host, are launches already."""
    name, plain = _without_blocks(func)
    alone: list[Any] = []

    def done(one: Any) -> Any:
        if isinstance(one, tirx.SeqStmt):
            return tirx.SeqStmt([done(each) for each in one.seq])
        if isinstance(one, tirx.AllocBuffer | tirx.DeclBuffer) or _is_launch(one):
            return one
        if isinstance(one, tirx.For) and any(map(_is_launch, nodes_of(one.body, tirx.AttrStmt))):
            return changed_loop(one, body=done(one.body))
        part = _by_owners(independent_loops(one))
        if not part.loops:
            alone.append(one)
        return _launched(part.loops, part.body)

    return _named(plain.with_body(done(plain.body)), name), bool(alone)


def _by_owners(part: IndependentLoops) -> IndependentLoops:
    return unless_refused(lambda: owned(part)) or part


def _is_launch(statement: Any) -> bool:
    return isinstance(statement, tirx.AttrStmt) and str(statement.attr_key) == "thread_extent"


def _without_blocks(func: Any) -> tuple[Any, Any]:
    """Its name, and the function without one."""
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    for lowered in _LOWERED:
        mod = lowered()(mod)
    return (func.attrs.get("global_symbol") if func.attrs else None), mod["main"]


def _named(func: Any, name: Any) -> Any:
    return func.with_attr("global_symbol", name) if name else func.without_attr("global_symbol")


def _statements(body: Any) -> list[Any]:
    """One after the other, out of groups and of hints for compilers."""
    if isinstance(body, tirx.SeqStmt):
        return [one for statement in body.seq for one in _statements(statement)]
    if isinstance(body, tirx.AttrStmt) and str(body.attr_key).startswith("pragma"):
        return _statements(body.body)
    return [body]


def _launched(loops: Sequence[Any], body: Any) -> Any:
    """A work item for each iteration of all loops, the last one's side by side."""
    group, item = (tirx.IterVar(None, tirx.Var(tag, "int32"), tirx.IterVar.ThreadIndex, tag) for tag in _TAGS)
    total = math.prod((loop.extent for loop in loops), start=tirx.IntImm("int64", 1)) if loops else None
    known = 1 if total is None else as_int(tvm.sym.Analyzer().simplify(total))
    size = USUAL.size(known) if known != 0 else 1
    flat = group.var.astype("int64") * size + item.var.astype("int64")
    left, places = flat, dict[Any, Any]()
    for loop in reversed(loops):
        places[loop.loop_var] = (loop.min + tirx.floormod(left, loop.extent)).astype(str(loop.loop_var.ty.dtype))
        left = tirx.floordiv(left, loop.extent)
    body = substitute(body, places)
    groups: Any = tirx.IntImm("int32", 1)
    if total is not None:
        body = tirx.IfThenElse(flat < total, body, None)
        groups = tvm.sym.Analyzer().simplify(tirx.ceildiv(total, size))
    body = tirx.AttrStmt(item, "thread_extent", tirx.IntImm("int32", size), body)
    return tirx.AttrStmt(group, "thread_extent", groups, body)


_TAGS: Final = ("blockIdx.x", "threadIdx.x")


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
