"""Results too small for a normal number are 0 while a kernel runs.

In: PrimFuncs for an x86 CPU, just before they become packed functions. Out: the same, which set the flush-to-zero bit
of the thread's MXCSR and put back what was there. Arithmetic with denormal numbers takes a hundred cycles and more, and
networks whose values fade layer by layer are full of them. Operands are read as they are (denormals-are-zero stays
off): what a caller passes is not 0 before it is computed with. Our thread pool runs pieces of a loop with the MXCSR of
the thread that begins it. A kernel that may end in its middle, by an assertion, a return or an error of what it calls,
is left alone.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, 10.2.3.
"""

from __future__ import annotations

from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.targets.cpu.host import features
from eqsat_layout.targets.cpu.machine import EXACT
from eqsat_layout.targets.cpu.stack import is_on_stack
from eqsat_layout.tir.structural import nodes_of, primfunc_pass, structural_map

_FLUSH: Final = 1 << 15
_FAILING: Final = ("call_packed", "call_cpacked", "throw")
"""In names of calls that may raise an error, which ends a kernel there."""

_ARITHMETIC: Final = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tvm.ir.Call)


def flush_denormals() -> Any:
    """A pass: kernels that compute with floats, unless results are to be exact."""
    return primfunc_pass("FlushDenormals", _flushing)


def _flushing(func: Any) -> Any:
    target = func.attrs.get("target")
    if target is None or EXACT in map(str, target.keys) or "sse" not in features(target) or not _may_flush(func.body):
        return func
    found, own = (tirx.decl_buffer((1,), "int32", name, scope="local") for name in ("found_mxcsr", "own_mxcsr"))
    begin = [
        tirx.AllocBuffer(found),
        tirx.AllocBuffer(own),
        _mxcsr("stmxcsr", found),
        tirx.BufferStore(own, tirx.bitwise_or(found[0], tirx.IntImm("int32", _FLUSH)), [0]),
        _mxcsr("ldmxcsr", own),
    ]

    def as_before(statements: Any) -> Any:  # in one sequence: an allocation holds to the end of its own
        parts = [part for one in statements.seq for part in ([restore, one, flush] if _may_be_refused(one) else [one])]
        return statements if len(parts) == len(statements.seq) else tirx.SeqStmt(parts)

    restore, flush = _mxcsr("ldmxcsr", found), _mxcsr("ldmxcsr", own)
    body = structural_map(func.body, (tirx.SeqStmt, as_before))
    return func.with_body(tirx.SeqStmt([*begin, body, restore]))


def _may_flush(body: Any) -> bool:
    """Whether it has arithmetic with floats and ends at its end only."""
    nodes = nodes_of(body, *_ARITHMETIC)
    computes = any(str(getattr(node.ty, "dtype", "")).startswith("float") for node in nodes)
    return computes and not nodes_of(body, tirx.AssertStmt, tirx.Return) and not any(map(_may_fail, nodes))


def _may_be_refused(statement: Any) -> bool:
    return isinstance(statement, tirx.AllocBuffer) and not is_on_stack(statement.buffer)


def _may_fail(node: Any) -> bool:
    name = str(getattr(node.op, "name", "")) if isinstance(node, tvm.ir.Call) else ""
    return any(word in name for word in _FAILING)


def _mxcsr(instruction: str, buffer: Any) -> Any:
    return tirx.Evaluate(tirx.call_llvm_intrin("void", f"llvm.x86.sse.{instruction}", tirx.address_of(buffer[0])))
