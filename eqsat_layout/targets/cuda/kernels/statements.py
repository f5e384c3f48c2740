"""Small statements and expressions of TIR that kernels are put together from.

In: numbers, buffers, bodies as functions. Out: nodes; indices have 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import tvm
from tvm import tirx
from tvm.backend.cuda.ptx import PTXNamespace

PTX: Final = PTXNamespace()
"""PTX instructions by their text: ``PTX["cp.async.commit_group"]()``."""
LANES: Final = 32
"""Threads of a warp."""


def number(value: Any) -> Any:
    """As an expression, which it may be already."""
    return tirx.IntImm("int32", value) if isinstance(value, int) else value


def sequence_of(statements: Iterable[Any]) -> Any:
    """One statement of many; those that do nothing are left out."""
    kept = [statement for statement in statements if statement is not None]
    if not kept:
        return tirx.Evaluate(number(0))
    return kept[0] if len(kept) == 1 else tirx.SeqStmt(kept)


def loop(extent: Any, body: Callable[[Any], Any], kind: Any = tirx.ForKind.SERIAL) -> Any:
    """``body`` of a variable; of zero where there is one step only."""
    if isinstance(extent, int) and extent == 1:
        return body(number(0))
    var = tirx.Var("i", "int32")
    return tirx.For(var, number(0), number(extent), kind, body(var))


def unrolled(extent: int, body: Callable[[Any], Any]) -> Any:
    """A loop that the device's compiler writes out: the text stays short for all who read it before."""
    written = loop(extent, body, tirx.ForKind.UNROLLED)
    return written if extent == 1 else tirx.AttrStmt(number(0), "pragma_unroll_explicit", number(0), written)


def vectorized(lanes: int, body: Callable[[Any], Any]) -> Any:
    return loop(lanes, body, tirx.ForKind.VECTORIZED)


def guarded(condition: Any, body: Any) -> Any:
    """``body`` under a condition, which may be ``None`` for none."""
    return body if condition is None else tirx.IfThenElse(condition, body, None)


def all_of(conditions: Sequence[Any]) -> Any:
    """``None`` where there is none."""
    found: Any = None
    for condition in conditions:
        if condition is not None and not (isinstance(condition, tirx.IntImm) and int(condition)):
            found = condition if found is None else tirx.And(found, condition)
    return found


def issued(instruction: str, *operands: Any) -> Any:
    """A statement that is one PTX instruction."""
    return tirx.Evaluate(PTX[instruction](*operands))


def local(size: int, dtype: str, name: str) -> Any:
    """Registers of a thread."""
    return tirx.decl_buffer([number(size)], dtype, name, scope="local", layout=None)


def at(buffer: Any, *indices: Any) -> Any:
    return tirx.BufferLoad(buffer, list(map(number, indices)))


def kept(buffer: Any, value: Any, *indices: Any) -> Any:
    return tirx.BufferStore(buffer, value, list(map(number, indices)))


def address(buffer: Any, *indices: Any) -> Any:
    return tirx.address_of(at(buffer, *indices))


def launched(grid: Sequence[Any], threads: int, body: Callable[[Sequence[Any], Any], Any]) -> Any:
    """A kernel: ``body`` of the block's places in the grid, and of the thread's number."""
    names = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
    blocks = [_thread(name) for name, _ in zip(names, grid, strict=False)]
    thread = _thread("threadIdx.x")
    statement = tirx.AttrStmt(thread, "thread_extent", number(threads), body([one.var for one in blocks], thread.var))
    for one, extent in zip(reversed(blocks), reversed(grid), strict=True):
        statement = tirx.AttrStmt(one, "thread_extent", number(extent), statement)
    return statement


def _thread(tag: str) -> Any:
    return tirx.IterVar(None, tirx.Var(tag, "int32"), tirx.IterVar.ThreadIndex, tag)


def block_barrier() -> Any:
    """All threads of the block have come here."""
    return tirx.Evaluate(tirx.op.tvm_storage_sync("shared.dyn"))


def device_fence() -> Any:
    """What was stored before is seen by those on the device that see what is done after it."""
    return issued("fence.acq_rel.gpu")


def counted_arrival(before: Any, counts: Any, *indices: Any) -> Any:
    """One more in memory that other blocks count in, too; ``before``: the number that was there."""
    return kept(before, tirx.call_extern("int32", "atomicAdd", address(counts, *indices), number(1)), 0)


def warp_barrier() -> Any:
    return issued("bar.warp.sync", tirx.IntImm("uint32", 0xFFFFFFFF))


def simplified(expression: Any, analyzer: Any = None) -> Any:
    return (analyzer or tvm.sym.Analyzer()).simplify(expression)
