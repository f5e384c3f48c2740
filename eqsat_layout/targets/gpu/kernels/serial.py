"""Kernels for PrimFuncs that no family understands, statement by statement.

In: any PrimFunc of statements. Out: one without blocks that launches each statement: independent loops as work items,
or as groups of them that share loops inside; all else as a single one. Buffers that it allocates become allocations of
the host.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final

import tvm
from tvm import s_tir, tirx

from eqsat_layout.passes.reduction_inits import init_empty_loops
from eqsat_layout.targets.gpu.kernels.counted_places import PARTS, counted_in_parts, counted_places
from eqsat_layout.targets.gpu.kernels.independent_loops import IndependentLoops, independent_loops
from eqsat_layout.targets.gpu.kernels.owners import owned
from eqsat_layout.targets.gpu.kernels.private_buffers import (
    with_local_buffers,
    with_parts_of_iterations,
    with_private_buffers,
)
from eqsat_layout.targets.gpu.kernels.separate_loops import separate_loops
from eqsat_layout.targets.gpu.kernels.shared_loops import SharedLoops, iterations_of_loops, shared_loops
from eqsat_layout.targets.gpu.kernels.work_groups import USUAL, WorkGroups
from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.targets.schedules.attempts import unless_refused
from eqsat_layout.tir.blocks import sequence
from eqsat_layout.tir.computation import SYMBOL_SIZE
from eqsat_layout.tir.structural import changed_loop, nodes_of, substitute

_NAMED: Final = (tirx.AllocBuffer, tirx.DeclBuffer, tirx.Bind)
_LOWERED: Final = (
    init_empty_loops,
    s_tir.transform.LowerInitBlock,
    s_tir.transform.ConvertBlocksToOpaque,
    s_tir.transform.LowerMatchBuffer,  # parts of buffers with names of their own
    s_tir.transform.LowerOpaqueBlock,
)


def as_it_stands(func: Any) -> tuple[Any, bool]:
    """``func`` as launches, and whether some loop of it, longer than :data:`PARTS`, is left to one work item."""
    name, plain = _without_blocks(_with_compact_buffers(func))
    statements = _statements(plain.body)
    allocations = [one for one in statements if isinstance(one, tirx.AllocBuffer)]
    rest = [one for one in statements if not isinstance(one, tirx.AllocBuffer)]
    allocations, rest = with_private_buffers(allocations, rest)
    made: list[Any] = []
    for statement in rest:
        parts, apart = with_parts_of_iterations(statement)
        made += [*parts, *_at_once(apart)]
    allocations += [one for one in made if isinstance(one, tirx.AllocBuffer)]
    launches = [(one, *_launch_of(one)) for one in made if not isinstance(one, tirx.AllocBuffer)]
    body = [*allocations]
    for is_alone, some in itertools.groupby(launches, key=lambda one: one[2]):
        together = list(some)
        body += (
            [launched_loops([], sequence([one for one, *_ in together]))] if is_alone else [one[1] for one in together]
        )
    is_slow = any(is_alone and _is_slow(one) for one, _, is_alone in launches)
    return _named(plain.with_body(sequence(body)), name), is_slow


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
        parts, apart = with_parts_of_iterations(one)
        launch, is_alone = _launch_of(apart)
        if is_alone and _is_slow(apart):
            alone.append(apart)
        return sequence([*parts, launch])

    return _named(plain.with_body(done(plain.body)), name), bool(alone)


def _launch_of(statement: Any) -> tuple[Any, bool]:
    """And whether it is one work item."""
    statement = with_local_buffers(statement)
    part = _by_owners(independent_loops(statement))
    if _items(part.loops) < USUAL.busy:
        shared = unless_refused(lambda: shared_loops(part.body))
        if shared is not None:
            return _launched_in_groups(part.loops, shared), False
    return launched_loops(part.loops, part.body), not part.loops


def _is_slow(statement: Any) -> bool:
    """It has more iterations than one work item should do, or nobody knows how many."""
    counts = [as_int(loop.extent) for loop in nodes_of(statement, tirx.For)]
    known = [count for count in counts if count is not None]
    return len(known) < len(counts) or math.prod(known) > PARTS or bool(nodes_of(statement, tirx.While))


def _at_once(statement: Any) -> list[Any]:
    """As statements one after the other of which each has more iterations that are independent."""
    part = independent_loops(statement)
    if _items(part.loops) >= USUAL.busy:
        return [statement]
    before = _items(_by_owners(part).loops)
    is_apart = isinstance(part.body, tirx.SeqStmt) and not any(isinstance(one, _NAMED) for one in part.body.seq)
    if part.loops and is_apart:
        found = [made for one in part.body.seq for made in _at_once(_inside(part.loops, one))]
        if _most_items(found) > before:
            return found
    separate = separate_loops(statement)
    if len(separate) > 1 and _most_items(separate) > before:
        return separate
    counted = unless_refused(lambda: counted_places(part.body))
    if not counted:
        return [statement]
    if part.loops:
        return [_inside(part.loops, one) for one in counted]
    at_once, in_order = counted
    return [at_once, *counted_in_parts(in_order)]


def _inside(loops: Sequence[Any], body: Any) -> Any:
    """``body`` in loops around it that are copies of ``loops``."""
    for loop in reversed(loops):
        own = tirx.Var(loop.loop_var.name, loop.loop_var.ty.dtype)
        body = changed_loop(loop, loop_var=own, body=substitute(body, {loop.loop_var: own}))
    return body


def _items(loops: Sequence[Any]) -> int:
    """Iterations of all of them."""
    return math.prod(as_int(loop.extent) or SYMBOL_SIZE for loop in loops)


def _most_items(statements: Sequence[Any]) -> int:
    """That one of them has at once."""
    return max(_items(_by_owners(independent_loops(one)).loops) for one in statements)


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


def launched_loops(loops: Sequence[Any], body: Any, groups: WorkGroups = USUAL) -> Any:
    """A work item for each iteration of all loops, the last one's side by side."""
    group, item = (tirx.Var(tag, "int32") for tag in _TAGS)
    total = iterations_of_loops(loops) if loops else None
    known = 1 if total is None else as_int(tvm.sym.Analyzer().simplify(total))
    size = groups.size(known) if known != 0 else 1
    flat = group.astype("int64") * size + item.astype("int64")
    body = _placed(loops, body, flat)
    count: Any = tirx.IntImm("int32", 1)
    if total is not None:
        body = tirx.IfThenElse(flat < total, body, None)
        count = tirx.ceildiv(total, size)
    return _in_threads(group, count, item, size, body)


def _launched_in_groups(loops: Sequence[Any], shared: SharedLoops) -> Any:
    """A group for each iteration of all loops."""
    group = tirx.Var(_TAGS[0], "int32")
    body = _placed(loops, shared.body, group.astype("int64"))
    return _in_threads(group, iterations_of_loops(loops), shared.item, shared.items, body)


def _placed(loops: Sequence[Any], body: Any, flat: Any) -> Any:
    """``body`` in the iteration of that number."""
    places = dict[Any, Any]()
    for loop in reversed(loops):
        places[loop.loop_var] = (loop.min + tirx.floormod(flat, loop.extent)).astype(str(loop.loop_var.ty.dtype))
        flat = tirx.floordiv(flat, loop.extent)
    return substitute(body, places)


def _in_threads(group: Any, groups: Any, item: Any, items: int, body: Any) -> Any:
    for var, tag, extent in (
        (item, _TAGS[1], tirx.IntImm("int32", items)),
        (group, _TAGS[0], tvm.sym.Analyzer().simplify(groups)),
    ):
        axis = tirx.IterVar(None, var, tirx.IterVar.ThreadIndex, tag)
        body = tirx.AttrStmt(axis, "thread_extent", extent, body)
    return body


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
