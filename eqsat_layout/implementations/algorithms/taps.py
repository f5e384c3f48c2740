"""A convolution whose window mostly meets padding: a product of matrices for each element that meets data.

In: a :class:`Convolution`. Out: a Relax module. A window that is dilated about as far as the data is wide (atrous
pyramids of segmentation networks) has few elements inside the data at any place, and some nowhere. Each one that does
meet data, a tap, meets it in a rectangle of places, for which its products are computed; the sums are added up place by
place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Final

import tvm
from tvm import te, tirx

from eqsat_layout.implementations.algorithms.convolution import STRETCHED, Convolution
from eqsat_layout.implementations.algorithms.graphs import GraphBuilder, module_of, ordered_by

_MOST_OF_DATA: Final = 0.5
"""Share of the products that meet data above which products with padding are cheaper than many small kernels."""
_MOST_OF_ROWS: Final = 0.75
"""The same, of those in rows that meet data, where there are many rows: kernels leave the others out anyway."""
_MOST_TAPS: Final = 9
"""As every one is a kernel, and the search for layouts has to choose some for each."""


@dataclass(frozen=True)
class _Tap:
    """Element ``window`` of the window; it meets data at the places from ``first`` up to ``end``, by axis."""

    window: tuple[int, ...]
    first: tuple[int, ...]
    end: tuple[int, ...]

    @property
    def size(self) -> tuple[int, ...]:
        return tuple(end - first for first, end in zip(self.first, self.end, strict=True))


def taps_apart(conv: Convolution) -> tvm.IRModule | None:
    """``main(data, kernel)`` in the op's own operand order and layouts; ``None`` where too much of it meets data.

    Products with the zeros of the padding are left out: in the op, those of infinite weights are NaN.
    """
    if why_not_taps_apart(conv) is not None:
        return None
    taps = list(_taps(conv))

    def compute(builder: GraphBuilder, data: Any, kernel: Any) -> Any:
        sums = []
        for tap in taps:
            own = builder.emit_kernel(partial(_weights, tap=tap, conv=conv), kernel, name="tap_kernel")
            sums.append(builder.emit_kernel(partial(_product, tap=tap, conv=conv), data, own, name="tap_product"))
        is_whole = len(taps) == 1 and taps[0].size == conv.out_size
        if not is_whole:
            add = partial(_total, taps=taps, conv=conv)
            sums = [builder.emit_kernel(add, *sums, name="taps_total")]
        return sums[0]

    return module_of(conv, compute)


def why_not_taps_apart(conv: Convolution) -> str | None:
    """Why its taps stay together; None where they don't."""
    if conv.is_stretched:
        return STRETCHED
    taps = list(_taps(conv))
    if not 0 < len(taps) <= _MOST_TAPS:
        return f"{len(taps)} elements of its window read data and not only padding; it is for 1 to {_MOST_TAPS}"
    met = sum(math.prod(tap.size) for tap in taps)
    in_rows = sum(math.prod((*tap.size[:-1], conv.out_size[-1])) for tap in taps)
    most = _MOST_OF_DATA * math.prod(conv.windows) * math.prod(conv.out_size)
    is_for_rows = len(conv.windows) > 1 and met <= _MOST_OF_ROWS * in_rows
    return None if met <= most or is_for_rows else "most of its window reads data and not padding"


def _taps(conv: Convolution) -> Iterator[_Tap]:
    """Those that meet data anywhere, in the order of the window."""
    for window in product(*map(range, conv.windows)):
        first, end = zip(*(_places(conv, axis, element) for axis, element in enumerate(window)), strict=True)
        tap = _Tap(window, first, end)
        if min(tap.size) > 0:
            yield tap


def _places(conv: Convolution, axis: int, element: int) -> tuple[int, int]:
    """The first place whose window has this element inside the data, and the first after these."""
    offset, stride = _offset(conv, axis, element), conv.strides[axis]
    return max(0, -(offset // stride)), min(conv.out_size[axis], (conv.size[axis] - 1 - offset) // stride + 1)


def _offset(conv: Convolution, axis: int, element: int) -> int:
    """Which element of the data this one of the window meets at place 0; negative before the data."""
    return element * conv.dilation[axis] - conv.padding[axis][0]


def _weights(kernel: te.Tensor, *, tap: _Tap, conv: Convolution) -> te.Tensor:
    """The kernel with windows of this one element."""
    shape = ordered_by(conv.kernel, (conv.channels[1], conv.channels[0], *(1 for _ in tap.window)))

    def element(*indices: Any) -> Any:
        o, i, *_ = (indices[axis] for axis in conv.kernel)
        return kernel(*ordered_by(conv.kernel, (o, i, *tap.window)))

    return te.compute(shape, element, name="tap_kernel")


def _product(data: te.Tensor, kernel: te.Tensor, *, tap: _Tap, conv: Convolution) -> te.Tensor:
    """The tap's sums over channels, at its places, in the order of the op's result."""
    c = te.reduce_axis((0, conv.channels[0]), "c")
    offsets = [_offset(conv, axis, element) for axis, element in enumerate(tap.window)]
    starts = [first * stride + by for first, stride, by in zip(tap.first, conv.strides, offsets, strict=True)]

    def element(*indices: Any) -> Any:
        n, o, *places = (indices[axis] for axis in conv.result)
        own = [place * stride + start for place, stride, start in zip(places, conv.strides, starts, strict=True)]
        weight = kernel(*ordered_by(conv.kernel, (o, c, *(0 for _ in own))))
        return te.sum(data(*ordered_by(conv.data, (n, c, *own))) * weight, c)

    return te.compute(ordered_by(conv.result, (conv.batch, conv.channels[1], *tap.size)), element, name="tap_product")


def _total(*sums: te.Tensor, taps: Sequence[_Tap], conv: Convolution) -> te.Tensor:
    """At every place what the taps that meet data there give."""
    zero = tirx.const(0, conv.dtype)

    def element(*indices: Any) -> Any:
        n, o, *place = (indices[axis] for axis in conv.result)
        total: Any = zero
        for own, tap in zip(sums, taps, strict=True):
            axes = list(zip(place, tap.first, tap.end, conv.out_size, strict=True))
            value: Any = own(*ordered_by(conv.result, (n, o, *(at - first for at, first, _, _ in axes))))
            inside = [at >= first for at, first, _, _ in axes if first]
            inside += [at < end for at, _, end, size in axes if end < size]
            value = tirx.if_then_else(tirx.all(*inside), value, zero) if inside else value
            total = value if total is zero else total + value
        return total

    return te.compute(
        ordered_by(conv.result, (conv.batch, conv.channels[1], *conv.out_size)), element, name="taps_total"
    )
