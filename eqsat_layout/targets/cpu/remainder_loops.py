"""Splits a loop over several periods of ``v % m`` into a loop of periods and a loop of ``m`` steps.

In: a PrimFunc of loops. Out: the same, without ``v % m`` of a loop variable where both a condition and the index of a
load have it. LLVM 22 takes such a load for a contiguous one, without a check that the remainder does not wrap around:
the halves of a rotary embedding (``4 <= v % 8``) were multiplied by cosines from beyond the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.targets.schedules.accesses import as_int, depends_on
from eqsat_layout.targets.schedules.conditions import COMPARISONS
from eqsat_layout.tir.structural import nodes_of, primfunc_pass, structural_map, substitute

_CONDITIONS: Final = (*COMPARISONS, tirx.EQ, tirx.NE)
_REMAINDERS: Final = (tirx.FloorMod, tirx.Mod)
_KINDS: Final = (tirx.ForKind.SERIAL, tirx.ForKind.UNROLLED)


def split_remainder_loops() -> Any:
    """A pass."""
    return primfunc_pass("SplitCycles", lambda func: func.with_body(_changed(func.body)))


def _changed(body: Any) -> Any:
    """``body`` itself where no condition has a remainder, as in most kernels: it is looked through once only."""
    has_any = any(nodes_of(condition, *_REMAINDERS) for condition in nodes_of(body, *_CONDITIONS))
    return structural_map(body, (tirx.For, _split)) if has_any else body


def _split(loop: Any) -> Any:
    extent = as_int(loop.extent)
    if extent is None or as_int(loop.min) != 0 or loop.kind not in _KINDS or loop.annotations:
        return loop
    cycle = next(_cycles(loop.body, loop.loop_var, extent), None)
    if cycle is None:
        return loop
    size, phase = cycle
    first = min(-phase % size, extent)  # iterations before a cycle begins
    whole = (extent - first) // size
    rest = extent - first - whole * size
    parts = [_part(loop, 0, first), _around(loop, first, whole, size), _part(loop, extent - rest, rest)]
    parts = [part for part in parts if part is not None]
    return parts[0] if len(parts) == 1 else tirx.SeqStmt(parts)


def _cycles(body: Any, var: Any, extent: int) -> Iterator[tuple[int, int]]:
    """Moduli, the largest first, and what is added to the variable, that conditions and places of loads have."""
    loads = nodes_of(body, tvm.ir.TensorLoad)
    if not loads:
        return
    known = {found for load in loads for found in _remainders(load.indices, var)}
    asked = {found for condition in nodes_of(body, *_CONDITIONS) for found in _remainders(condition, var)}
    sizes = {size for size, _ in known}
    yield from sorted((one for one in asked if one[0] in sizes and one[0] < extent), reverse=True)


def _remainders(node: Any, var: Any) -> Iterator[tuple[int, int]]:
    """The modulus of each remainder of ``var + n``, and n."""
    for one in nodes_of(node, *_REMAINDERS):
        size = as_int(one.b)
        if size is None or size < 2 or not depends_on(one.a, var):
            continue
        linear = tvm.sym.detect_linear_equation(tvm.sym.Analyzer().simplify(one.a), [var])
        factor, rest = (as_int(part) for part in linear) if linear else (None, None)
        if factor == 1 and rest is not None:
            yield size, rest % size


def _around(loop: Any, first: int, whole: int, size: int) -> Any:
    """``whole`` cycles of ``size`` from iteration ``first`` on; nothing where there are none."""
    if not whole:
        return None
    dtype = loop.loop_var.ty.dtype
    cycle = tirx.Var(f"{loop.loop_var.name}_cycle", dtype)
    inner = _part(loop, cycle * tirx.IntImm(dtype, size) + tirx.IntImm(dtype, first), size)
    return tirx.For(cycle, tirx.IntImm(dtype, 0), tirx.IntImm(dtype, whole), loop.kind, inner)


def _part(loop: Any, first: Any, count: int) -> Any:
    """``count`` iterations from ``first`` on, with what is known of their remainders; nothing where there are none."""
    if not count:
        return None
    dtype = loop.loop_var.ty.dtype
    own = tirx.Var(loop.loop_var.name, dtype)
    analyzer = tvm.sym.Analyzer()
    analyzer.bind(own, tvm.ir.Range(0, count))
    body = substitute(loop.body, {loop.loop_var: own + first})
    divisions = (*_REMAINDERS, tirx.FloorDiv, tirx.Div)
    simpler = structural_map(body, *((kind, analyzer.simplify) for kind in divisions))
    return tirx.For(own, tirx.IntImm(dtype, 0), tirx.IntImm(dtype, count), loop.kind, simpler)
