"""Products whose data is an image of which windows are read.

In: a product whose rows are the places of a window. Out: the same product with a row for every pixel of an image.
"""

from __future__ import annotations

from dataclasses import replace

import tvm
import tvm_ffi

from eqsat_layout.targets.cpu.amx.axes import LANES, OverlappingAxes
from eqsat_layout.targets.cpu.amx.image import Image
from eqsat_layout.targets.cpu.amx.products import MatrixProduct
from eqsat_layout.targets.schedules.accesses import StageAxis
from eqsat_layout.tir.structural import substitute


def over_image(product: MatrixProduct) -> MatrixProduct | None:
    """The product over such an image; ``None`` where nothing is read more than once, or the image has no such rows."""
    rows, steps, numbers = product.rows.axes, product.steps, product.numbers
    windows: dict[int, tuple[StageAxis, int]] = {}
    channels = []
    for axis in steps.axes:
        near = [number for number, row in enumerate(rows) if product.data.load.moves_along_both(axis.var, row.var)]
        if not near:
            channels.append(axis)
            continue
        distance = _distance(product, axis, rows[near[0]])
        if len(near) > 1 or near[0] in windows or not distance:
            return None
        windows[near[0]] = (axis, distance)
    image = Image(rows, windows, OverlappingAxes(tuple(channels)))
    count = image.channels.vectors if channels else 0
    is_whole = steps.lanes == LANES and channels and not (channels[-1].extent or 0) % LANES
    is_in_order = steps.axes == (*(axis for axis in steps.axes if axis not in channels), *channels)
    if not windows or not is_whole or not is_in_order or count % numbers.vectors:
        return None
    extended = [
        StageAxis(axis.var, extent if number else axis.extent, axis.reduce)
        for number, (axis, extent) in enumerate(zip(rows, image.extents, strict=True))
    ]
    return replace(product, rows=OverlappingAxes(tuple(extended)), image=image)


def _distance(product: MatrixProduct, step: StageAxis, row: StageAxis) -> int:
    """How many rows further what is read at one step is read at the step before; 0 where it isn't, or before it."""
    load, value = product.data.load, product.data.value
    by_step, by_row = load.stride(step.var), load.stride(row.var)
    if not by_step or not by_row or by_step % by_row:
        return 0
    distance, analyzer = by_step // by_row, tvm.sym.Analyzer()
    moved = substitute(value, {step.var: step.var - 1, row.var: row.var + distance})
    is_same = tvm_ffi.structural_equal(analyzer.simplify(moved), analyzer.simplify(value))
    return distance if is_same and 0 < distance <= (row.extent or 0) else 0
