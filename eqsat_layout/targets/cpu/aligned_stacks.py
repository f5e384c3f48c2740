"""Stacks that begin at a whole cache line, so that no spilled vector lies in two.

In: PrimFuncs for an x86 CPU with vectors longer than its ABI aligns stacks to, just before they become packed
functions. Out: the same, each function that LLVM will make with a local of a cache line that it can't remove. LLVM
decides before it allocates registers whether a function aligns its stack, by what is declared then; vectors that are
spilled later lie where the caller's stack happens to end. A convolution that spills four accumulators took 314 or
645 us (Zen 4), by process.

Source: System V ABI, AMD64 supplement, 3.2.2.
"""

from __future__ import annotations

from typing import Any, Final

from tvm import tirx

from eqsat_layout.targets.cpu.host import features
from eqsat_layout.tir.structural import changed_loop, primfunc_pass, structural_map

_LANES: Final = 16
"""Floats of a cache line."""
_VOLATILE: Final = "tirx.volatile"
"""TVM's name for memory whose stores its code generator keeps."""


def align_stacks() -> Any:
    """A pass: the body of a function, and of its parallel loops, which become functions."""
    return primfunc_pass("AlignStacks", _aligned)


def _aligned(func: Any) -> Any:
    target = func.attrs.get("target")
    if target is None or "avx" not in features(target):
        return func
    return func.with_body(_after_anchor(structural_map(func.body, (tirx.For, _in_loop))))


def _in_loop(loop: Any) -> Any:
    return changed_loop(loop, body=_after_anchor(loop.body)) if loop.kind == tirx.ForKind.PARALLEL else loop


def _after_anchor(body: Any) -> Any:
    anchor = tirx.decl_buffer((_LANES,), "float32", "anchor", scope="local")
    zeros = tirx.Broadcast(tirx.FloatImm("float32", 0.0), _LANES)  # as wide as it is: its alignment is that of stores
    index = tirx.Ramp(tirx.IntImm("int32", 0), tirx.IntImm("int32", 1), _LANES)
    volatile = tirx.AllocBuffer(anchor, {_VOLATILE: tirx.IntImm("int32", 1)})
    return tirx.SeqStmt([volatile, tirx.BufferStore(anchor, zeros, [index]), body])
