"""Whether indices take every place of a tensor once.

In: indices over axes, and the extents of both. Out: yes or no. TVM's own answer is about how axes are put together: to
it, every other place of a row is all of them, and so is a row that begins elsewhere, as where zeros are put around.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm

from eqsat_layout.tir.negated_dividends import counting_up


def takes_all(indices: Sequence[Any], axes: Mapping[Any, Any], extents: Sequence[Any]) -> bool:
    """``axes``: the extents of variables; ``extents`` of the tensor."""
    ranges = {var: tvm.ir.Range(0, extent) for var, extent in axes.items()}
    level = tvm.sym.iter_affine_map.IterMapLevel.Bijective
    found = tvm.sym.detect_iter_map(list(map(counting_up, indices)), ranges, check_level=level).indices
    return len(found) == len(indices) and all(map(_is_whole, found, extents))


def _is_whole(index: Any, extent: Any) -> bool:
    """It counts all numbers below ``extent``, up or down."""
    equal = tvm.sym.Analyzer().can_prove_equal
    if not index.args:
        return bool(equal(extent, 1) and equal(index.base, 0))
    first, *others = index.args
    ends = [number for step, number in ((1, 0), (-1, extent - 1)) if equal(first.scale, step)]
    return bool(not others and ends and equal(first.extent, extent) and equal(index.base, ends[0]))
