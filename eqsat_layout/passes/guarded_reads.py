"""Reads at indices that come from memory happen within their buffer.

In: a module. Out: the same, in which such an index is brought to the nearest one that there is, as TVM's own mode
"clip" of ``take`` does: elsewhere TVM reads what lies there, or the process ends. Indices that are in range give what
they gave. Of a buffer without elements, zeros are read.
"""

from __future__ import annotations

from typing import Any, Final

import tvm
from tvm import ir, tirx
from tvm_ffi import StructuralKey

from eqsat_layout.passes.guarded_writes import is_read, read_variables
from eqsat_layout.tir.structural import mapped_body, nodes_of, with_primfuncs

_WIDE: Final = "int64"


def guard_reads(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` itself is not changed."""
    return with_primfuncs(mod, lambda _, func: _guarded(_with_defined_extents(func)))


def _with_defined_extents(func: Any) -> Any:
    """Loops whose ends are cast from floats run so often as the processor says, also where the float is NaN or too
    large and LLVM knows that: it takes the cast for anything then, and what follows for a loop without an end."""
    ends = [end for loop in nodes_of(func.body, tirx.For) for end in (loop.min, loop.extent)]
    casts = {StructuralKey(cast) for end in ends for cast in nodes_of(end, tirx.Cast) if _is_cut(cast)}
    if not casts:
        return func

    def defined(cast: Any) -> Any:
        return _defined(cast) if _is_cut(cast) and StructuralKey(cast) in casts else cast

    return mapped_body(func, (tirx.Cast, defined))


def _is_cut(cast: Any) -> bool:
    """Whether a float becomes a signed integer."""
    return str(cast.ty.dtype).startswith("int") and "float" in str(cast.value.ty.dtype)


def _defined(cast: Any) -> Any:
    """The cast; of what does not fit the least number, as processors have it."""
    kind, value = str(cast.ty.dtype), cast.value.astype("float64")
    end = 2.0 ** (int(tvm.DataType(kind).bits) - 1)
    fits = tirx.And(value >= tirx.const(-end, "float64"), value < tirx.const(end, "float64"))
    return tirx.Select(fits, cast, tirx.min_value(kind))


def _guarded(func: Any) -> Any:
    read = read_variables(func.body)

    def place(index: Any, extent: Any) -> Any:
        return clipped(index, extent) if is_read(index, read) else index

    def load(node: Any) -> Any:
        return guarded_load(node, [is_read(index, read) for index in node.indices])

    def region(node: Any) -> Any:
        """What a block says that it reads is what it reads."""
        ranges, shape = list(node.region), list(node.source.ty.shape)
        if not any(is_read(one.min, read) for one in ranges):
            return node
        made = [
            ir.Range.from_min_extent(place(one.min, extent), one.extent) if _is_number(one.extent, 1) else one
            for one, extent in zip(ranges, shape, strict=True)
        ]
        return ir.TensorRegion(node.source, made, node.ty)

    if not any(is_read(index, read) for one in nodes_of(func.body, ir.TensorLoad) for index in one.indices):
        return func
    return mapped_body(func, (ir.TensorLoad, load), (ir.TensorRegion, region))


def guarded_load(load: Any, unknown: list[bool]) -> Any:
    """The load with those of its indices clipped that are ``unknown``."""
    indices, shape = list(load.indices), list(load.source.ty.shape)
    if len(indices) != len(shape) or not any(unknown):
        return load
    places = [clipped(*one) if is_open else one[0] for *one, is_open in zip(indices, shape, unknown, strict=True)]
    made = load.source[*places]
    open_extents = [extent for extent, is_open in zip(shape, unknown, strict=True) if is_open]
    for extent in open_extents:
        if isinstance(extent, tirx.IntImm) and int(extent) > 0:
            continue
        nothing = tirx.const(0, str(load.ty.dtype))
        made = nothing if _is_number(extent, 0) else tirx.if_then_else(extent > 0, made, nothing)
    return made


def clipped(index: Any, extent: Any) -> Any:
    """The nearest index below ``extent`` that is not below 0; ``index`` stands there once.

    The larger end comes first: where a sum overflows, what LLVM makes of it may be anything, but not below 0 then.
    """
    if _lanes(index) > 1:
        return index
    kind = str(index.ty.dtype)
    if not isinstance(extent, tirx.IntImm) or not kind.startswith(
        ("int", "uint")
    ):  # TVM takes floats and booleans, too
        index, kind = index.astype(_WIDE), _WIDE
    is_signed = kind.startswith("int")
    if not isinstance(extent, tirx.IntImm):
        index = tirx.Min(index, extent.astype(_WIDE) - tirx.const(1, _WIDE))
    else:
        last = max(int(extent) - 1, 0)
        largest = (1 << (int(tvm.DataType(kind).bits) - is_signed)) - 1
        index = index if last >= largest else tirx.Min(index, tirx.const(last, kind))
    return tirx.Max(index, tirx.const(0, kind)) if is_signed else index


def _is_number(value: Any, number: int) -> bool:
    return isinstance(value, tirx.IntImm) and int(value) == number


def _lanes(value: Any) -> int:
    return int(tvm.DataType(str(value.ty.dtype)).lanes)
