"""Winograd's minimal filtering, as a graph of ops (Lavin and Gray 2016, arXiv:1509.09308).

In: a :class:`Convolution`. Out: a Relax module. Along an axis with a window, F(m, w) needs m + w - 1 products for m
results where the direct way needs m w: for 3x3 windows 2.25 times less in all for m = 2, 4 times less for m = 4, at a
larger rounding error, hence ``approx``. The error relative to the largest result is about 1e-6 for F(2, 3) and 1e-5 for
F(4, 3), F(2, 5) and F(2, 7) in float32 (``tests/implementations/algorithms``). Of three axes with windows the last two
are transformed, and the products add up the window of the first: with more, transforms outweigh what they save.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax, te

from eqsat_layout.implementations.algorithms.convolution import STRETCHED, Convolution
from eqsat_layout.implementations.algorithms.graphs import GraphBuilder, module_of, ordered_by, zero_padded
from eqsat_layout.implementations.algorithms.work import Work

Matrix = npt.NDArray[np.float32]

_POINTS = tuple(map(Fraction, ("0", "1", "-1", "2", "-2", "1/2", "-1/2")))


@cache
def matrices(tile: int, window: int) -> tuple[Matrix, Matrix, Matrix]:
    """``A^T`` (tile x n), ``G`` (n x window), ``B^T`` (n x n): ``y = A^T [(G g) * (B^T d)]``, n = tile + window - 1.

    By the Toom-Cook construction over exact fractions: all but the last of the n points are numbers, the last is
    infinity.
    """
    count = tile + window - 1
    points = _POINTS[: count - 1]
    scale = [math.prod((p - q for q in points if q != p), start=Fraction(1)) for p in points]
    evaluate = [[p**j for p in points] + [Fraction(j == tile - 1)] for j in range(tile)]
    kernel = [[p**k / f for k in range(window)] for p, f in zip(points, scale, strict=True)]
    kernel.append([Fraction(k == window - 1) for k in range(window)])
    data = [_product([q for q in points if q != p], count) for p in points] + [_product(points, count)]
    return _array(evaluate), _array(kernel), _array(data)


def _product(roots: Sequence[Fraction], length: int) -> list[Fraction]:
    """Coefficients of the product of (x - root), lowest first, filled up with zeros."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *coefficients]
        coefficients = [a - root * b for a, b in zip(shifted, [*coefficients, Fraction(0)], strict=True)]
    return coefficients + [Fraction(0)] * (length - len(coefficients))


def _array(rows: Sequence[Sequence[Fraction]]) -> Matrix:
    made = np.array([[float(x) for x in row] for row in rows], dtype="float32")
    made.flags.writeable = False
    return made


def why_not_winograd(conv: Convolution, tile: int, window: int) -> str | None:
    """Why there is no F(tile, window) of it; None where there is: for float32 and a few channels, with windows of this
    length along :func:`transformed_axes`, and neither strides nor dilation there."""
    axes = transformed_axes(conv)
    if conv.is_stretched:
        return STRETCHED
    if any(conv.strides[axis] != 1 or conv.dilation[axis] != 1 for axis in axes):
        return f"its strides are {conv.strides} and its dilation {conv.dilation}, not 1"
    if {conv.windows[axis] for axis in axes} - {1} != {window}:
        return f"its kernel is {'x'.join(map(str, conv.windows))}"
    if conv.dtype != "float32":
        return f"it computes in {conv.dtype}"
    if min(conv.channels) < 4:
        return f"it has only {min(conv.channels)} {'input' if conv.channels[0] < 4 else 'output'} channels"
    if any(conv.windows[axis] > 1 and conv.out_size[axis] < tile for axis in axes):
        return f"its result of {'x'.join(map(str, conv.out_size))} is smaller than a tile"
    return None


def transformed_axes(conv: Convolution) -> tuple[int, ...]:
    """The last two axes with a window, or as many as there are."""
    long = [axis for axis, size in enumerate(conv.windows) if size > 1][-2:]
    others = [axis for axis in reversed(range(len(conv.windows))) if axis not in long]
    return tuple(sorted([*long, *others[: min(2, len(conv.windows)) - len(long)]]))


def winograd_work(conv: Convolution, tile: int, window: int) -> Work:
    """A product of matrices for each point, whose operand and result lie in memory."""
    axes = transformed_axes(conv)
    longer = [axis for axis in axes if conv.windows[axis] > 1]
    points = math.prod(tile + window - 1 for _ in longer)
    others = [axis for axis in range(len(conv.windows)) if axis not in axes]
    tiles = conv.batch * math.prod(-(-conv.out_size[axis] // (tile if axis in longer else 1)) for axis in axes)
    places = tiles * math.prod(conv.out_size[axis] for axis in others)
    taps = math.prod(conv.windows[axis] for axis in others)
    channels, outputs = conv.channels
    flops = 2.0 * points * places * channels * outputs * taps
    return Work(flops, points * places * (channels + outputs), points * channels * outputs * taps)


def winograd_growth(tile: int, window: int) -> float:
    """How many times as many elements the transformed weights have, along both axes, and a little more; 2 at least."""
    return max(2.0, ((tile + window - 1) / window) ** 2 * 1.125)


def winograd(conv: Convolution, tile: int, window: int) -> tvm.IRModule | None:
    """``main(data, kernel)`` in the op's own operand order and layouts; ``None`` where it does not apply.

    The kernel's transform (folded where the kernel is a constant), one pass over the data per axis that has a window, a
    product of matrices per point, and as many passes back. Every pass is a contraction with a small constant matrix, so
    that layouts of channels go through it and its schedule is that of any contraction.
    """
    if why_not_winograd(conv, tile, window) is not None:
        return None
    axes = transformed_axes(conv)
    tiles = tuple(tile if conv.windows[axis] > 1 else 1 for axis in axes)
    back, weigh, forth = (relax.const(m) for m in matrices(tile, window))
    stages = _WinogradStages(conv, axes, tiles)

    def compute(builder: GraphBuilder, data: Any, kernel: Any) -> Any:
        u = builder.emit_kernel(stages.kernel, kernel, weigh, name="winograd_kernel")
        v: Any = data
        for function, name in stages.forth:
            v = builder.emit_kernel(function, v, forth, name=name)
        m = builder.emit_kernel(stages.product, v, u, name="winograd_product")
        for function, name in stages.back:
            m = builder.emit_kernel(function, m, back, name=name)
        return m

    return module_of(conv, compute)


_Stage = Callable[[te.Tensor, te.Tensor], te.Tensor]


class _WinogradStages:
    """The stages as tensor expressions. Inside, points of ``axes`` come first, and channels before all places, as in
    NCHW: along ``axes`` these are tiles, and along others what the result has, in the data with its padding."""

    def __init__(self, conv: Convolution, axes: tuple[int, ...], tile: tuple[int, ...]):
        self._conv, self._axes, self._tile = conv, axes, tile
        self._points = tuple(t + conv.windows[axis] - 1 for axis, t in zip(axes, tile, strict=True))
        self._tiles = tuple(-(-conv.out_size[axis] // t) for axis, t in zip(axes, tile, strict=True))
        self._direct = tuple(axis for axis in range(len(conv.windows)) if axis not in axes)

    @property
    def forth(self) -> list[tuple[_Stage, str]]:
        """The passes over the data, one for each axis with a window."""
        rows = (self._data_rows, "winograd_data_rows")
        if not self._has_columns:
            return [rows]
        return [rows, (self._data, "winograd_data")] if self._points[0] > 1 else [(self._data, "winograd_data")]

    @property
    def back(self) -> list[tuple[_Stage, str]]:
        """The passes over the products."""
        rows = (self._result_rows, "winograd_result_rows")
        if not self._has_columns:
            return [rows]
        return [rows, (self._result, "winograd_result")] if self._points[0] > 1 else [(self._result, "winograd_result")]

    @property
    def _has_columns(self) -> bool:
        return self._points[1:] not in ((), (1,))

    def kernel(self, kernel: te.Tensor, weigh: te.Tensor) -> te.Tensor:
        """(a, b, o, i, window along other axes)."""
        conv, count = self._conv, len(self._axes)
        taps = [te.reduce_axis((0, conv.windows[axis]), name) for axis, name in zip(self._axes, "rq", strict=False)]

        def element(*indices: Any) -> Any:
            points, (o, i), others = indices[:count], indices[count : count + 2], indices[count + 2 :]
            value = kernel(*ordered_by(conv.kernel, (o, i, *self._merged(taps, others))))
            for point, tap, number in zip(points, taps, self._points, strict=True):
                value = value * weigh[point, tap] if number > 1 else value
            return te.sum(value, axis=taps)

        channels, outputs = conv.channels
        windows = (conv.windows[axis] for axis in self._direct)
        return te.compute((*self._points, outputs, channels, *windows), element, name="winograd_kernel")

    def _merged(self, own: Sequence[Any], others: Sequence[Any]) -> list[Any]:
        """Along all axes: ``own`` along the transformed ones, ``others`` along the rest."""
        known = dict(zip((*self._axes, *self._direct), (*own, *others), strict=True))
        return [known[axis] for axis in range(len(known))]

    def _apart(self, places: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Along transformed axes, and along the rest."""
        return [places[axis] for axis in self._axes], [places[axis] for axis in self._direct]

    def _padded(self, data: te.Tensor) -> te.Tensor:
        """Zeros around the data, so that all tiles are whole."""
        conv = self._conv
        before, after = map(list, zip(*conv.padding, strict=True))
        for axis, tiles, tile in zip(self._axes, self._tiles, self._tile, strict=True):
            after[axis] = max(0, tiles * tile + conv.windows[axis] - 1 - before[axis] - conv.size[axis])
        return zero_padded(data, conv, before, after, "winograd_pad")

    def _around(self, axis: int) -> int:
        """The size of padded data along an axis that is not transformed."""
        return self._conv.size[axis] + sum(self._conv.padding[axis])

    def _places(self, own: Sequence[Any]) -> list[Any]:
        """The sizes of data on its way, as :meth:`_merged`."""
        return self._merged(own, [self._around(axis) for axis in self._direct])

    def _data_rows(self, data: te.Tensor, forth: te.Tensor) -> te.Tensor:
        """(a, n, c, y, x) if columns follow, else (a, 1, n, c, y, x)."""
        conv, points, tile = self._conv, self._points[0], self._tile[0]
        around = self._padded(data)
        r = te.reduce_axis((0, points), "r")

        def element(a: Any, n: Any, c: Any, *places: Any) -> Any:
            (y, *x), others = self._apart(places)
            at = self._merged([y * tile + r, *x], others)
            return te.sum(around(*ordered_by(conv.data, (n, c, *at))) * forth[a, r], axis=r)

        widths = [
            t * own + conv.windows[axis] - 1 for axis, t, own in zip(self._axes, self._tiles, self._tile, strict=True)
        ]
        shape = (conv.batch, conv.channels[0], *self._places([self._tiles[0], *widths[1:]]))
        if self._has_columns:
            return te.compute((points, *shape), element, name="winograd_rows")
        units = len(self._points) - 1
        return te.compute((*self._points, *shape), lambda a, *rest: element(a, *rest[units:]), name="winograd_rows")

    def _data(self, rows: te.Tensor, forth: te.Tensor) -> te.Tensor:
        """(a, b, n, c, y, x) of (a, n, c, y, x), or of the data itself."""
        conv, points, tile = self._conv, self._points[1], self._tile[1]
        q = te.reduce_axis((0, points), "q")
        around = None if self._points[0] > 1 else self._padded(rows)

        def element(a: Any, b: Any, n: Any, c: Any, *places: Any) -> Any:
            (y, x), others = self._apart(places)
            at = self._merged([y, x * tile + q], others)
            if around is None:
                return te.sum(rows(a, n, c, *at) * forth[b, q], axis=q)
            return te.sum(around(*ordered_by(conv.data, (n, c, *at))) * forth[b, q], axis=q)

        shape = (*self._points, conv.batch, conv.channels[0], *self._places(self._tiles))
        return te.compute(shape, element, name="winograd_data")

    def product(self, v: te.Tensor, u: te.Tensor) -> te.Tensor:
        """(a, b, n, o, y, x)."""
        conv, count = self._conv, len(self._axes)
        c = te.reduce_axis((0, conv.channels[0]), "c")
        taps = [te.reduce_axis((0, conv.windows[axis]), "t") for axis in self._direct]
        shape = (*self._points, conv.batch, conv.channels[1], *self._merged(self._tiles, self._sizes))

        def element(*indices: Any) -> Any:
            points, (n, o), places = indices[:count], indices[count : count + 2], indices[count + 2 :]
            own, others = self._apart(places)
            met = [
                place * conv.strides[axis] + tap * conv.dilation[axis]
                for axis, place, tap in zip(self._direct, others, taps, strict=True)
            ]
            return te.sum(v(*points, n, c, *self._merged(own, met)) * u(*points, o, c, *taps), axis=[c, *taps])

        return te.compute(shape, element, name="winograd_product")

    @property
    def _sizes(self) -> list[int]:
        """The extents of the result along axes that are not transformed."""
        return [self._conv.out_size[axis] for axis in self._direct]

    def _result_rows(self, m: te.Tensor, back: te.Tensor) -> te.Tensor:
        """(p, b, n, o, y, x) if columns follow, else the result."""
        conv, tile = self._conv, self._tile[0]
        a = te.reduce_axis((0, self._points[0]), "a")
        units = [0 for _ in self._points[1:]]

        def element(p: Any, *rest: Any) -> Any:
            return te.sum(m(a, *rest) * back[p, a], axis=a)

        def whole(*indices: Any) -> Any:
            n, o, *places = (indices[axis] for axis in conv.result)
            (y, *x), others = self._apart(places)
            at = self._merged([y // tile, *x], others)
            return te.sum(m(a, *units, n, o, *at) * back[y % tile, a], axis=a)

        if not self._has_columns:
            return te.compute(self._shape, whole, name="winograd_result_rows")
        places = self._merged(self._tiles, self._sizes)
        shape = (tile, self._points[1], conv.batch, conv.channels[1], *places)
        return te.compute(shape, element, name="winograd_result_rows")

    def _result(self, rows: te.Tensor, back: te.Tensor) -> te.Tensor:
        conv, (height, width) = self._conv, self._tile
        b = te.reduce_axis((0, self._points[1]), "b")

        def element(*indices: Any) -> Any:
            n, o, *places = (indices[axis] for axis in conv.result)
            (y, x), others = self._apart(places)
            at = self._merged([y // height, x // width], others)
            return te.sum(rows(y % height, b, n, o, *at) * back[x % width, b], axis=b)

        return te.compute(self._shape, element, name="winograd_result")

    @property
    def _shape(self) -> tuple[Any, ...]:
        return ordered_by(self._conv.result, (self._conv.batch, self._conv.channels[1], *self._conv.out_size))
