"""Bytes that become floats do so where these are read, so that bytes lie between kernels.

In: a module whose PrimFuncs have TVM's patterns. Out: the same, in which a call that makes wider elements of narrow
ones is part of the only call that reads them, if that reads each a few times only. TVM's grouping would have made it
part of the kernel before: what is quantised there would be stored as floats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import tvm
from tvm import relax, tirx

from eqsat_layout.passes.call_windows import KernelCall, calls_of, one_function, window_arguments, with_calls
from eqsat_layout.targets.schedules.accesses import as_int, element_bytes
from eqsat_layout.targets.schedules.attempts import unless_refused
from eqsat_layout.targets.schedules.stages import new_schedule, stages_of

_ELEMENTWISE: Final = (0, 1)
_REDUCTIONS: Final = (3, 4)
"""TVM's numbers (``OpPatternKind``) for elementwise work with and without broadcasts, and for reductions."""
_MOST_READS: Final = 16
"""Of an element, for which it is made wider each time: those of windows of 3 x 3, of poolings and depthwise."""


def widened_late(mod: tvm.IRModule, kept_bytes: int) -> tvm.IRModule:
    """``mod`` itself where there is nothing of the kind.

    ``kept_bytes``: so many stay in a cache from one kernel to the next. Windows read what fits as floats, which are
    made once (measured on a Xeon: depthwise convolutions of 28 x 28 x 192 take 1.5 times as long from bytes).
    """
    builder = relax.BlockBuilder(mod)

    def joined(function: Any) -> Mapping[Any, Any]:
        found: dict[Any, Any] = {}
        for window in _windows(mod, *calls_of(function), kept_bytes):
            *wideners, reader = window
            made = one_function(mod, window)
            if made is not None:
                made = made.with_attr("op_pattern", _pattern(mod, reader))
                callee = builder.add_func(made, str(reader.callee.name_hint))
                found |= {call.var: None for call in wideners}
                found[reader.var] = relax.call_tir(callee, relax.Tuple(window_arguments(window)), reader.ty)
        return found

    return with_calls(mod, builder, joined)


def _windows(
    mod: tvm.IRModule, calls: Sequence[KernelCall], readers: Mapping[Any, list[Any]], kept_bytes: int
) -> list[list[KernelCall]]:
    """Wideners, and the only call that reads what they make."""
    by_var = {call.var: call for call in calls}
    found = []
    for reader in calls:
        given = [by_var[arg] for arg in dict.fromkeys(reader.args) if arg in by_var]
        own = [call for call in given if _is_widener(mod, call) and set(readers[call.var]) == {reader.var}]
        if own and not _is_widener(mod, reader) and all(_reads_seldom(mod, reader, call, kept_bytes) for call in own):
            found += [[*own, reader]]
    return found


def _is_widener(mod: tvm.IRModule, call: KernelCall) -> bool:
    """It works element by element, and makes more bytes than it reads of tensors with axes."""
    if _pattern(mod, call) not in _ELEMENTWISE or not isinstance(call.var, relax.DataflowVar):
        return False
    *operands, result = mod[call.callee].params
    tensors = [one for one in operands if isinstance(one.ty, tirx.BufferType) and len(one.ty.shape)]
    return bool(tensors) and sum(map(element_bytes, tensors)) < element_bytes(result)


def _reads_seldom(mod: tvm.IRModule, reader: KernelCall, call: KernelCall, kept_bytes: int) -> bool:
    """It works element by element, or on windows of what ``call`` makes, if that is more than stays in a cache."""
    pattern = _pattern(mod, reader)
    if pattern not in _REDUCTIONS:
        return pattern in _ELEMENTWISE
    sch = unless_refused(lambda: new_schedule(mod[reader.callee]))
    sums = [stage for stage in stages_of(sch) if stage.is_reduction] if sch is not None else []
    is_known = isinstance(call.ty.shape, relax.ShapeExpr)
    shape = [as_int(extent) for extent in call.ty.shape.values] if is_known else [None]
    if len(sums) != 1 or None in shape:
        return False
    made = math.prod(extent or 0 for extent in shape)
    is_large = made * element_bytes(mod[call.callee].params[-1]) > kept_bytes
    return is_large and sums[0].domain <= _MOST_READS * made


def _pattern(mod: tvm.IRModule, call: KernelCall) -> int | None:
    function = mod[call.callee]
    found = function.attrs.get("op_pattern") if isinstance(function, tirx.PrimFunc) and function.attrs else None
    return None if found is None else int(found)
