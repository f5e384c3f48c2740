"""A transposed convolution without its zeros: one convolution of the data for every place between its elements.

In: a :class:`Convolution` whose data is stretched. Out: a Relax module. Of a window over stretched data all but one in
``stretch`` elements meet a zero; the result at places of one remainder needs the same elements of the window (sub-pixel
convolution, Shi et al. 2016, arXiv:1609.05158). The same products are added up in the same order.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import tvm
from tvm import relax, te, tirx, topi

from eqsat_layout.implementations.algorithms.convolution import Convolution
from eqsat_layout.implementations.algorithms.graphs import GraphBuilder, module_of, multiplied, ordered_by
from eqsat_layout.implementations.algorithms.groups import places_of_groups, split_channels

_FEW_CHANNELS: Final = 7
"""Of the result, that fill no vector."""


def transposed(conv: Convolution) -> tvm.IRModule | None:
    """``main(data, kernel)`` in the op's own operand order and layouts; ``None`` for data that is not stretched."""
    if why_not_transposed(conv) is not None:
        return None
    return _module(conv, _TransposedStages(conv, _skipped(conv)))


def transposed_in_planes(conv: Convolution) -> tvm.IRModule | None:
    """The same with a plane for each place between elements, in which neighbours are neighbours in the data too.

    For results of few channels, whose vectors run along a row: the last layer of what makes images.
    """
    return _module(conv, _Planes(conv)) if why_not_in_planes(conv) is None else None


def transposed_in_groups(conv: Convolution) -> tvm.IRModule | None:
    """The same of a convolution in groups, with the group as an axis of its own.

    All places of an element begin with the same element of the data: of others, no layouts are known beside groups.
    """
    if why_not_transposed(conv) is not None:
        return None
    groups, stages = conv.groups, _TransposedStages(conv, _until_aligned(conv))

    def compute(builder: GraphBuilder, data: Any, kernel: Any) -> Any:
        x = builder.emit(relax.op.reshape(data, split_channels(data.ty.shape, conv.data[1], groups)))
        k = builder.emit(relax.op.reshape(kernel, split_channels(kernel.ty.shape, conv.kernel[0], groups)))
        taps = builder.emit_kernel(stages.taps, k, name="transposed_kernel")
        places = builder.emit_kernel(stages.places, x, taps, name="transposed_product")
        result = builder.emit_kernel(stages.result, places, name="transposed_result")
        shape = ordered_by(conv.result, (conv.batch, conv.channels[1], *conv.out_size))
        return relax.op.reshape(result, shape)

    return module_of(conv, compute)


def _module(conv: Convolution, stages: _TransposedStages) -> tvm.IRModule:
    def compute(builder: GraphBuilder, data: Any, kernel: Any) -> Any:
        taps = builder.emit_kernel(stages.taps, kernel, name="transposed_kernel")
        places = builder.emit_kernel(stages.places, data, taps, name="transposed_product")
        return builder.emit_kernel(stages.result, places, name="transposed_result")

    return module_of(conv, compute)


def why_not_transposed(conv: Convolution) -> str | None:
    """Why it has none; None where it has."""
    if not conv.is_stretched:
        return "it is not a transposed convolution with strides"
    if {*conv.strides, *conv.dilation} != {1}:
        return f"its strides are {conv.strides} and its dilation {conv.dilation}, not 1"
    return None


def why_not_in_planes(conv: Convolution) -> str | None:
    """Why it has no planes; None where it has."""
    if conv.channels[1] > _FEW_CHANNELS and why_not_transposed(conv) is None:
        return f"its {conv.channels[1]} output channels fill vectors: it is for at most {_FEW_CHANNELS}"
    return why_not_transposed(conv)


class _TransposedStages:
    """The stages as tensor expressions, over any number of axes. Groups, if there are more than one, have an axis of
    operands and results of their own, before those of the channels.

    Place ``h`` of the result is place ``h % stretch`` of element ``h // stretch``.

    Window element ``u`` meets an element of the data where ``(h + u - before) % stretch`` is 0. So for place ``a`` the
    first is ``(before - a) % stretch``, and the others follow at steps of ``stretch``.
    """

    def __init__(self, conv: Convolution, skipped: Sequence[int] = ()):
        """``skipped``: places before the first of the result, which count as the first of element 0."""
        self._conv, self._rank = conv, len(conv.size)
        self._groups = (conv.groups,) if conv.groups > 1 else ()
        self._inputs, self._outputs = (channels // conv.groups for channels in conv.channels)
        axes = ((conv.data, 1), (conv.kernel, 0), (conv.result, 1))
        own = (places_of_groups(*one) if self._groups else one[0] for one in axes)
        self._data, self._kernel, self._result = own
        self._skipped = skipped = tuple(skipped) or (0,) * self._rank
        self._before = tuple(before + by for (before, _), by in zip(conv.padding, skipped, strict=True))
        self._count = tuple(-(-w // s) for w, s in zip(conv.windows, conv.stretches, strict=True))
        sizes = zip(conv.out_size, skipped, conv.stretches, strict=True)
        self._elements = tuple(-(-(size + by) // s) for size, by, s in sizes)

    @property
    def order(self) -> tuple[int, ...]:
        """Axes of the product that are n, the group, o, and of every axis the element and the place: as they come to
        lie."""
        return tuple(range(2 + len(self._groups) + 2 * self._rank))

    def taps(self, kernel: te.Tensor) -> te.Tensor:
        """(a..., r..., g, i, o): element r of the window's elements that place a needs; 0 where it needs fewer."""
        conv, rank = self._conv, self._rank

        def element(*indices: Any) -> Any:
            *group, i, o = indices[2 * rank :]
            pairs = zip(indices[:rank], indices[rank : 2 * rank], strict=True)
            window_index = [
                self._first(axis, place) + step * conv.stretches[axis] for axis, (place, step) in enumerate(pairs)
            ]
            inside = [n < w for n, w in zip(window_index, conv.windows, strict=True)]
            value = kernel(*ordered_by(self._kernel, (*group, o, i, *window_index)))
            return tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, conv.factors[1]))

        shape = (*conv.stretches, *self._count, *self._groups, self._inputs, self._outputs)
        return te.compute(shape, element, name="transposed_kernel")

    def _first(self, axis: int, place: Any) -> Any:
        return tirx.floormod(self._before[axis] - place, self._conv.stretches[axis])

    def places(self, data: te.Tensor, taps: te.Tensor) -> te.Tensor:
        """The result at every place of every element."""
        conv = self._conv
        before = [max(0, -min(offsets)) for offsets in self._offsets]
        after = [
            max(0, elements + max(offsets) + count - 1 - size)
            for elements, offsets, count, size in zip(
                self._elements, self._offsets, self._count, conv.size, strict=True
            )
        ]
        if any((*before, *after)):
            none = [0] * (2 + len(self._groups))
            ends = (ordered_by(self._data, (*none, *own)) for own in (before, after))
            data = topi.nn.pad(data, *ends, name="transposed_pad")
        c = te.reduce_axis((0, self._inputs), "c")
        steps = [te.reduce_axis((0, count), f"r{axis}") for axis, count in enumerate(self._count)]

        def element(*indices: Any) -> Any:
            n, *rest = (indices[axis] for axis in self.order)
            *group, o = rest[: 1 + len(self._groups)]
            at, places = (rest[first::2] for first in (1 + len(self._groups), 2 + len(self._groups)))
            starts = [self._start(axis, place) + before[axis] for axis, place in enumerate(places)]
            moved = [h + start + r for h, start, r in zip(at, starts, steps, strict=True)]
            index = ordered_by(self._data, (n, *group, c, *moved))
            return te.sum(multiplied(conv, data(*index), taps[(*places, *steps, *group, c, o)]), axis=[c, *steps])

        pairs = itertools.chain(*zip(self._elements, conv.stretches, strict=True))
        shape = ordered_by(self.order, (conv.batch, *self._groups, self._outputs, *pairs))
        return te.compute(shape, element, name="transposed_product")

    @property
    def _offsets(self) -> list[list[int]]:
        """By axis and place: the element of the data that the first tap of this place of element 0 meets."""
        return [_offsets(*pair) for pair in zip(self._before, self._conv.stretches, strict=True)]

    def _start(self, axis: int, place: Any) -> Any:
        """The same as an expression, which is linear: no other one is an index that layouts are known for."""
        before, stretch = self._before[axis], self._conv.stretches[axis]
        return _offsets(before, stretch)[0] + place * max(_steps(before, stretch), default=0)

    def result(self, places: te.Tensor) -> te.Tensor:
        conv = self._conv

        def element(*indices: Any) -> Any:
            n, *rest = (indices[axis] for axis in self._result)
            own, at = rest[: 1 + len(self._groups)], rest[1 + len(self._groups) :]
            moved = [y + by for y, by in zip(at, self._skipped, strict=True)]
            pairs = [digit for y, s in zip(moved, conv.stretches, strict=True) for digit in (y // s, y % s)]
            return places(*ordered_by(self.order, (n, *own, *pairs)))

        shape = ordered_by(self._result, (conv.batch, *self._groups, self._outputs, *conv.out_size))
        return te.compute(shape, element, name="places")


def _skipped(conv: Convolution) -> list[int]:
    steps = [set(_steps(before, stretch)) for (before, _), stretch in zip(conv.padding, conv.stretches, strict=True)]
    return [by if len(own) > 1 else 0 for by, own in zip(_until_aligned(conv), steps, strict=True)]


def _offsets(before: int, stretch: int) -> list[int]:
    return [-((before - place) // stretch) for place in range(stretch)]


def _steps(before: int, stretch: int) -> list[int]:
    return [after - at for at, after in pairwise(_offsets(before, stretch))]


def _until_aligned(conv: Convolution) -> list[int]:
    """Places to skip by axis, so that all places of an element begin with the same element of the data."""
    borders = zip(conv.padding, conv.stretches, strict=True)
    return [(stretch - 1 - before) % stretch for (before, _), stretch in borders]


class _Planes(_TransposedStages):
    """The product as (n, places, o, elements). All places of an element begin with the same element of the data."""

    def __init__(self, conv: Convolution):
        super().__init__(conv, _until_aligned(conv))

    @property
    def order(self) -> tuple[int, ...]:
        rank = self._rank
        return 0, 1 + rank, *(at for axis in range(rank) for at in (2 + rank + axis, 1 + axis))
