"""Recognises concats, in any layout.

In: a PrimFunc. Out: the box of its result that each operand fills, if it only copies its operands there. Only the
accesses are read and no conditions: an element that lies in none of the operands can't be read from one of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import tvm
from tvm import ir, s_tir, tirx

from eqsat_layout.targets.cpu.places.box import Box
from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.tir.intrinsics import is_choice
from eqsat_layout.tir.structural import nodes_of


def boxes_in_concat(func: Any) -> dict[int, Box] | None:
    """By number of a parameter where it lies in the result, the last parameter; ``None`` for any other kernel."""
    blocks = [block for block in nodes_of(func.body, s_tir.SBlock) if block.iter_vars]
    stores = nodes_of(func.body, tirx.BufferStore)
    if len(blocks) != 1 or len(stores) != 1 or len(func.params) < 3:
        return None
    (block,), (store,) = blocks, stores
    outer = _shape(store.buffer)
    axes = [axis.var for axis in block.iter_vars]
    if outer is None or not store.buffer.same_as(func.params[-1]) or not _are(store.indices, axes):
        return None
    boxes: dict[int, Box] = {}
    numbers = {param: number for number, param in enumerate(func.params)}
    for leaf in _leaves(store.value):
        number = numbers.get(leaf.source) if isinstance(leaf, ir.TensorLoad) else None
        box = None if number is None or number in boxes else _box(leaf, axes, outer)
        if number is None or box is None:
            return None
        boxes[number] = box
    is_whole = sum(math.prod(box.extents) for box in boxes.values()) == math.prod(outer)
    is_apart = not any(one.overlaps(other) for one, other in combinations(boxes.values(), 2))
    return boxes if len(boxes) > 1 and is_whole and is_apart else None


def _leaves(value: Any) -> Iterator[Any]:
    """What a choice is made of."""
    if is_choice(value):
        for choice in value.args[1:]:
            yield from _leaves(choice)
    else:
        yield value


def _box(load: Any, axes: Sequence[Any], outer: Sequence[int]) -> Box | None:
    """Where an operand lies that is read at this place for the element at ``axes``."""
    shape = _shape(load.source)
    if shape is None:
        return None
    starts = [0] * len(outer)
    found: dict[int, int] = {}
    for dim, index in enumerate(load.indices):
        step = _axis_and_start(index, axes)
        if step is not None and step[0] not in found:
            found[step[0]] = dim
            starts[step[0]] = step[1]
        elif shape[dim] != 1:
            return None
    own = [found.get(axis) for axis in range(len(outer))]
    box = Box(shape, tuple(outer), tuple(own), tuple(starts))
    in_order = [dim for dim in own if dim is not None and shape[dim] != 1]
    sides = zip(box.starts, box.extents, outer, strict=True)
    fits = all(start >= 0 and start + extent <= size for start, extent, size in sides)
    return box if fits and in_order == sorted(in_order) else None


def _axis_and_start(index: Any, axes: Sequence[Any]) -> tuple[int, int] | None:
    """The axis that an index is, and the place on it where the index is 0."""
    for number, axis in enumerate(axes):
        start = as_int(tvm.sym.Analyzer().simplify(axis - index))
        if start is not None:
            return number, start
    return None


def _are(indices: Sequence[Any], axes: Sequence[Any]) -> bool:
    return len(indices) == len(axes) and all(i.same_as(axis) for i, axis in zip(indices, axes, strict=True))


def _shape(buffer: Any) -> tuple[int, ...] | None:
    extents = list(map(as_int, buffer.ty.shape))
    return None if None in extents else tuple(extents)  # type: ignore[arg-type]
