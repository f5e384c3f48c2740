"""Kernels whose operand or result is a box (a contiguous slice along every axis) of a larger tensor.

In: a PrimFunc, a parameter and a box. Out: the PrimFunc over the larger tensor, and the way back: schedules are made
for the box alone, as if it were a tensor of its own, and moved into the larger tensor afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm
from tvm import ir, tirx

from eqsat_layout.errors import Refused
from eqsat_layout.tir.blocks import over_params
from eqsat_layout.tir.structural import structural_map

_BOXES: Final = "eqsat_layout.boxes"
_RUNNING_ON: Final = "eqsat_layout.running_on"
_NO_AXIS: Final = -1

Indices = Callable[[Sequence[Any]], list[Any]]


@dataclass(frozen=True)
class Box:
    """Where a tensor of ``shape`` lies in one of shape ``outer``.

    ``axes``: by axis of ``outer`` the tensor's own, in ascending order; ``None`` and all axes that are missing have one
    element. ``starts``: by axis of ``outer`` the index of the first element.
    """

    shape: tuple[int, ...]
    outer: tuple[int, ...]
    axes: tuple[int | None, ...]
    starts: tuple[int, ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """Its size along every axis of ``outer``."""
        return tuple(1 if axis is None else self.shape[axis] for axis in self.axes)

    @property
    def has_whole_rows(self) -> bool:
        """Its rows lie one after another, as those of ``outer`` do."""
        return self.axes[-1] == len(self.shape) - 1 and self.shape[-1] == self.outer[-1]

    def in_pieces(self, size: int) -> Box:
        """The same of pieces of so many elements along the last axis; refused where it has parts of such."""
        if self.axes[-1] != len(self.shape) - 1 or any(
            n % size for n in (self.shape[-1], self.outer[-1], self.starts[-1])
        ):
            raise Refused("a box that begins or ends within a piece")
        shape, outer, starts = ((*own[:-1], own[-1] // size) for own in (self.shape, self.outer, self.starts))
        return Box(shape, outer, self.axes, starts)

    def overlaps(self, other: Box) -> bool:
        """Whether they have an element of ``outer`` in common."""
        sides = zip(self.starts, self.extents, other.starts, other.extents, strict=True)
        return all(max(a, b) < min(a + m, b + n) for a, m, b, n in sides)

    def inside(self, indices: Sequence[Any]) -> list[Any]:
        """Indices of the tensor as those of the larger one."""
        pairs = zip(self.axes, self.starts, strict=True)
        return [_plus(0 if axis is None else indices[axis], start) for axis, start in pairs]

    def own(self, indices: Sequence[Any]) -> list[Any]:
        """The other way round."""
        place = {axis: number for number, axis in enumerate(self.axes)}
        return [
            _plus(indices[place[axis]], -self.starts[place[axis]]) if axis in place else tirx.IntImm("int64", 0)
            for axis in range(len(self.shape))
        ]


def in_boxes(func: Any, boxes: Mapping[int, Box]) -> Any:
    """``func`` over larger tensors: ``boxes`` by the number of a parameter. Refused where these are used in other ways
    than by their elements."""
    if func.attrs is not None and any(int(number) in boxes for number in func.attrs.get(_RUNNING_ON, [])):
        raise Refused("rows that run on into the next ones")
    moved = func
    for number, box in boxes.items():
        moved = _moved(moved, number, box.outer, box.inside)
    return with_boxes(moved, {**boxes_of(func), **boxes})


def with_running_on(func: Any, params: Iterable[int]) -> Any:
    """``func``, which reaches elements of these ``params`` as if they were in another row: in no box these would be."""
    return func.with_attr(_RUNNING_ON, sorted(params))


def with_boxes(func: Any, boxes: Mapping[int, Box]) -> Any:
    """``func``, which is over larger tensors, with the boxes that it is in: what :func:`boxes_of` gives."""
    return func.with_attr(_BOXES, {str(number): _numbers(box) for number, box in boxes.items()})


def out_of_boxes(func: Any) -> Any:
    """``func`` over what it was over before :func:`in_boxes`."""
    for number, box in boxes_of(func).items():
        func = _moved(func, number, box.shape, box.own)
    return func.without_attr(_BOXES)


def boxes_of(func: Any) -> dict[int, Box]:
    """What :func:`in_boxes` has done to ``func``, by number of a parameter."""
    found = func.attrs.get(_BOXES, {}) if func.attrs is not None else {}
    return {int(str(number)): _box([list(map(int, part)) for part in numbers]) for number, numbers in found.items()}


def _numbers(box: Box) -> list[list[int]]:
    axes = [_NO_AXIS if axis is None else axis for axis in box.axes]
    return [list(box.shape), list(box.outer), axes, list(box.starts)]


def _box(numbers: Sequence[Sequence[int]]) -> Box:
    shape, outer, axes, starts = map(tuple, numbers)
    return Box(shape, outer, tuple(None if axis == _NO_AXIS else axis for axis in axes), starts)


def _moved(func: Any, number: int, shape: Sequence[int], indices: Indices) -> Any:
    """``func`` whose parameter has this ``shape``, with other ``indices``."""
    old = func.params[number]
    ty = old.ty
    new = tirx.decl_buffer([tirx.IntImm("int64", extent) for extent in shape], str(ty.dtype), old.name, layout=None)

    def on_load(load: Any) -> Any:
        return tirx.BufferLoad(new, indices(load.indices)) if load.source.same_as(old) else load

    def on_store(store: Any) -> Any:
        is_own = store.buffer.same_as(old)
        return tirx.BufferStore(new, store.value, indices(store.indices)) if is_own else store

    def on_region(region: Any) -> Any:
        if not region.source.same_as(old):
            return region
        firsts = indices([part.min for part in region.region])
        lasts = indices([part.min + part.extent - 1 for part in region.region])
        analyzer = tvm.sym.Analyzer()
        pairs = zip(firsts, lasts, strict=True)
        ranges = [ir.Range.from_min_extent(a, analyzer.simplify(b - a + 1)) for a, b in pairs]
        return tirx.BufferRegion(new, ranges)

    body = structural_map(
        func.body, (ir.TensorLoad, on_load), (tirx.BufferStore, on_store), (ir.TensorRegion, on_region)
    )
    return over_params(func, body, {number: new})


def _plus(index: Any, number: int) -> Any:
    if isinstance(index, int):
        return tirx.IntImm("int64", index + number)
    if number == 0:
        return index
    return tvm.sym.Analyzer().simplify(index + number)
