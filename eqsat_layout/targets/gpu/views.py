"""Which PrimFuncs of a module are launched as kernels, and which are views that cost nothing.

In: a module whose PrimFuncs are not scheduled. Out: PrimFuncs by name.
"""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import s_tir, tirx

from eqsat_layout.graph.vdevices import buffer_scopes
from eqsat_layout.maps import GLOBAL
from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.tir.reshape_pattern import reshape_pattern


def launched_and_views(mod: tvm.IRModule) -> tuple[dict[str, Any], set[str]]:
    """The PrimFuncs that are launched, and the names of the others, whose results are what they were given."""
    found = {str(v.name_hint): f for v, f in mod.functions_items() if isinstance(f, tirx.PrimFunc)}
    views = {name for name, func in found.items() if _is_view(func)}
    return {name: func for name, func in found.items() if name not in views}, views


def _is_view(func: Any) -> bool:
    """The result is what it was given, byte for byte, in ordinary memory."""
    return (
        isinstance(func.body, s_tir.SBlockRealize)
        and set(buffer_scopes(func)) == {GLOBAL}
        and len(list(func.params)) == 2
        and bool(reshape_pattern(func))
        and not _is_part(*func.params)
    )


def _is_part(source: Any, result: Any) -> bool:
    """A copy into something larger, as far as is known: TVM's pattern is of indices only."""
    sizes = [[as_int(extent) for extent in one.ty.shape] for one in (source, result)]
    if any(extent is None for shape in sizes for extent in shape):
        return False
    given, made = (math.prod(extent or 0 for extent in shape) for shape in sizes)
    return made > given
