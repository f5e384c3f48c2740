"""Long reductions with few results, in two: each part of the steps by itself, and then the parts.

In: a nest that reduces, and how parts of its results become one. Out: two nests, of which the first one has work for
the whole of a device where the reduction had some for a few of its units: the sum of an image, the moments of a group
of channels, the largest of many scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.gpu.kernels.nests import Axis, Nest
from eqsat_layout.targets.gpu.kernels.shared_sums import combining
from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.tir.structural import structural_map, substitute

_GROUPS: Final = 512
"""Groups of work items that keep a device busy (assumed)."""
_FEW: Final = 128
"""Results, a group for each of which leaves units idle (assumed)."""
_LONG: Final = 4096
"""Steps that a group takes longer for than another launch takes (assumed)."""
_STEPS: Final = 256
"""Of a part, at least."""


def in_parts(nest: Nest) -> tuple[Nest, Nest]:
    """The nest of the parts, and the one that puts them together. Refused where that gains nothing or is not known."""
    extents = [as_int(axis.extent) for axis in nest.reduced]
    results = math.prod(as_int(axis.extent) or _GROUPS for axis in nest.spatial)
    steps = math.prod(extent or 0 for extent in extents)
    count = min(_GROUPS // max(results, 1), steps // _STEPS)
    if not nest.reduced or results > _FEW or steps < _LONG or count < 2:
        raise Refused("its results keep all work items busy, or are soon made")
    if any(not nest.is_at_axes(store.indices) for store in nest.stores):
        raise Refused("its results are not stored where its axes are")
    combined = combining(nest)
    cut = _cut(nest.reduced, [extent or 0 for extent in extents], count)
    own = {buffer: _parts_of(buffer, nest.spatial, cut.parts) for buffer in nest.buffers}
    at = [axis.var for axis in (*nest.spatial, *cut.parts)]

    def to_part(store: Any) -> Any:
        def on_load(load: Any) -> Any:
            return tirx.BufferLoad(own[load.source], at) if load.source in own else load

        value = structural_map(substitute(store.value, cut.places), (tvm.ir.TensorLoad, on_load))
        return tirx.BufferStore(own[store.buffer], value, at)

    name = f"{nest.name}_parts"
    inits, stores = (tuple(map(to_part, some)) for some in (nest.inits, nest.stores))
    parts = Nest(name, (*nest.spatial, *cut.parts), cut.steps, inits, stores)
    kept = [tirx.BufferLoad(store.buffer, list(store.indices)) for store in nest.stores]
    given = [tirx.BufferLoad(own[store.buffer], at) for store in nest.stores]
    whole = [
        tirx.BufferStore(store.buffer, value, list(store.indices))
        for store, value in zip(nest.stores, combined(kept, given), strict=True)
    ]
    return parts, replace(nest, reduced=cut.parts, stores=tuple(whole))


@dataclass(frozen=True)
class _Cut:
    """``parts``: axes that count them; ``steps``: those of one; ``places``: the old axes by both."""

    parts: tuple[Axis, ...]
    steps: tuple[Axis, ...]
    places: dict[Any, Any]


def _cut(axes: Sequence[Axis], extents: Sequence[int], count: int) -> _Cut:
    """Into so many parts at most, each of steps that follow one another: outer axes are parts, one is in blocks."""
    parts: list[Axis] = []
    steps: list[Axis] = []
    places: dict[Any, Any] = {}
    for axis, extent in zip(axes, extents, strict=True):
        blocks = max(n for n in range(1, min(extent, count) + 1) if extent % n == 0) if not steps else 1
        count //= blocks
        if blocks == extent:
            parts.append(axis)
        elif blocks == 1:
            steps.append(axis)
        else:
            dtype, size = axis.var.ty.dtype, extent // blocks
            block, step = (tirx.Var(f"{axis.var.name}_{name}", dtype) for name in ("part", "step"))
            parts.append(Axis(block, tirx.IntImm(dtype, blocks)))
            steps.append(Axis(step, tirx.IntImm(dtype, size)))
            places[axis.var] = block * size + step
    if not parts or not steps:
        raise Refused("its steps are not to be cut into parts of one size")
    return _Cut(tuple(parts), tuple(steps), places)


def _parts_of(buffer: Any, spatial: Sequence[Axis], parts: Sequence[Axis]) -> Any:
    shape = [axis.extent for axis in (*spatial, *parts)]
    return tirx.decl_buffer(shape, buffer.ty.dtype, f"{buffer.name}_parts", layout=None)
