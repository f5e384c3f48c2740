"""Blocks of PrimFuncs, taken out of their loops and put together again.

In: the statements of an unscheduled PrimFunc. Out: its blocks; loops around changed ones, and functions of these.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Var

from eqsat_layout.errors import Refused
from eqsat_layout.tir.structural import changed_block, nodes_of, structural_map, substitute


def block_of(statement: Any) -> Any:
    """The block inside of loops; refused where there is more than one, or something else."""
    while isinstance(statement, tirx.For):
        statement = statement.body
    if not isinstance(statement, s_tir.SBlockRealize):
        raise Refused(f"loops over a {type(statement).__name__}")
    return statement.block


def store_of(block: Any) -> Any:
    """The one store that a block consists of; refused where there is more to it."""
    if not isinstance(block.body, tirx.BufferStore):
        raise Refused(f"a block that is a {type(block.body).__name__}")
    return block.body


def is_load_of(value: Any, store: Any) -> bool:
    """It loads the element that a statement stores."""
    return (
        isinstance(value, tvm.ir.TensorLoad)
        and value.source.same_as(store.buffer)
        and all(map(tvm_ffi.structural_equal, value.indices, store.indices))
    )


def added_factors(store: Any) -> list[Any]:
    """What a statement adds to the element that it stores, or what it multiplies for that; nothing for another one."""
    value = store.value
    if not isinstance(value, tirx.Add) or not is_load_of(value.a, store):
        return []
    return [value.b.a, value.b.b] if isinstance(value.b, tirx.Mul) else [value.b]


def statements_of(func: Any) -> list[Any]:
    """The statements of the root block, in order."""
    body = func.body.block.body
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


def changes_what_it_reads(func: Any) -> bool:
    """A block stores an element of a buffer that it or one before it reads: what is done again there gives another.

    Sums that a block adds up are its own; loops inside of blocks are done as they are written.
    """
    blocks = [block for block in nodes_of(func.body, s_tir.SBlock) if isinstance(block.body, tirx.BufferStore)]
    read: set[Any] = set()
    for block in blocks:
        target = block.body.buffer
        loaded = {load.source for load in nodes_of(block.body, tvm.ir.TensorLoad)}
        read |= loaded - {target} if block.init is not None else loaded
        if target in read:
            return True
    return False


def accesses_of(block: Any) -> list[tuple[Any, list[Any]]]:
    """What a block stores and loads, also where it begins: buffers with indices, those of stores last."""
    parts = [block.body] if block.init is None else [block.body, block.init]
    loads = [load for part in parts for load in nodes_of(part, tvm.ir.TensorLoad)]
    stores = [store for part in parts for store in nodes_of(part, tirx.BufferStore)]
    return [(load.source, list(load.indices)) for load in loads] + [(s.buffer, list(s.indices)) for s in stores]


def under_loops(block: Any) -> Any:
    """The block under one loop for each of its axes."""
    loops = [Var(f"i{number}", axis.var.ty) for number, axis in enumerate(block.iter_vars)]
    statement: Any = s_tir.SBlockRealize(loops, True, block)
    for loop, axis in zip(reversed(loops), reversed(block.iter_vars), strict=True):
        statement = tirx.For(loop, axis.dom.min, axis.dom.extent, tirx.ForKind.SERIAL, statement)
    return statement


def storing_block(iters: Sequence[Any], name: str, body: Any, init: Any = None, annotations: Any = None) -> Any:
    """A block that stores one element, under one loop for each of its axes."""
    reads: list[Any] = []
    for load in nodes_of(body, tvm.ir.TensorLoad):
        point = _point(load.source, load.indices)
        same = (one for one in reads if one.source.same_as(load.source))  # TVM takes a buffer for any other like it
        if not load.source.same_as(body.buffer) and not any(tvm_ffi.structural_equal(point, one) for one in same):
            reads.append(point)
    writes = [_point(body.buffer, body.indices)]
    return under_loops(s_tir.SBlock(list(iters), reads, writes, name, body, init, annotations=annotations))


def with_accesses(statement: Any, place: Callable[[Any, list[Any]], tuple[Any, list[Any]]]) -> Any:
    """The statement with loads and stores elsewhere: ``place(buffer, indices)`` gives both."""

    def on_load(load: Any) -> Any:
        return tirx.BufferLoad(*place(load.source, list(load.indices)))

    def on_store(store: Any) -> Any:
        buffer, indices = place(store.buffer, list(store.indices))
        return tirx.BufferStore(buffer, store.value, indices)

    return structural_map(statement, (tvm.ir.TensorLoad, on_load), (tirx.BufferStore, on_store))


def stage_over(block: Any, place: Callable[[Any, list[Any]], tuple[Any, list[Any]]]) -> Any:
    """A block that stores one element, under its loops, with loads and stores elsewhere."""
    init = None if block.init is None else with_accesses(block.init, place)
    return storing_block(block.iter_vars, block.name_hint, with_accesses(block.body, place), init, block.annotations)


def statement_over(func: Any, place: Callable[[Any, list[Any]], tuple[Any, list[Any]]], params: Container[Any]) -> Any:
    """What ``func`` does as a statement of another function, which has its ``params`` elsewhere."""

    def placed(buffer: Any, indices: list[Any]) -> tuple[Any, list[Any]]:
        return place(buffer, indices) if buffer in params else (buffer, indices)

    def without_regions(block: Any) -> Any:
        """What blocks are said to read and write of parameters is of no use any more."""
        reads, writes = ([one for one in own if one.source not in params] for own in (block.reads, block.writes))
        return changed_block(block, reads=reads, writes=writes)

    return structural_map(with_accesses(func.body, placed), (s_tir.SBlock, without_regions))


def sequence(statements: Sequence[Any]) -> Any:
    """One statement of one or more, which are done one after the other."""
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))


def function_over(func: Any, statements: Sequence[Any], allocated: Sequence[Any], params: Sequence[Any]) -> Any:
    """``func`` with other statements in its root block, other buffers allocated there, and other parameters."""
    root = func.body.block
    block = s_tir.SBlock(
        [], [], [], root.name_hint, sequence(statements), alloc_buffers=list(allocated), annotations=root.annotations
    )
    whole = s_tir.SBlockRealize([], True, block)
    return tirx.PrimFunc(list(params), whole, ret_type=func.ret_type, attrs=func.attrs)


def function_of_parts(func: Any, parts: Sequence[tuple[Any, Any]], allocated: Sequence[Any] = ()) -> Any:
    """``func``, which does what ``parts`` do, one after the other: functions over its parameters and what it has
    ``allocated``, each with what was made of it."""
    own = [substitute(made.body, dict(zip(made.params, part.params, strict=True))) for part, made in parts]
    return function_over(func, own, allocated, func.params)


def over_params(func: Any, body: Any, params: Mapping[int, Any]) -> Any:
    """``func`` with another body, over other ``params``, by number. Refused where it still uses one of those before."""
    before = {func.params[number] for number in params}
    for var in nodes_of(body, Var):
        if var in before:
            raise Refused(f"{var.name} is used in other ways than by its elements")
    after = [params.get(number, param) for number, param in enumerate(func.params)]
    return tirx.PrimFunc(after, body, func.ret_type, func.attrs)


def _point(buffer: Any, indices: Sequence[Any]) -> Any:
    ranges = [tvm.ir.Range.from_min_extent(index, tirx.IntImm(str(index.ty.dtype), 1)) for index in indices]
    return tirx.BufferRegion(buffer, ranges)
