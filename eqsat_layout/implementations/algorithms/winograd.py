"""Winograd's minimal filtering, as a graph of ops (Lavin and Gray 2016, arXiv:1509.09308).

In: a :class:`Convolution`. Out: a Relax module. Along each axis with a window, F(m, w) needs m + w - 1 products for m
results where the direct way needs m w: for 3x3 windows 2.25 times less in all for m = 2, 4 times less for m = 4, at a
larger rounding error, hence ``approx``. The error relative to the largest result is about 1e-6 for F(2, 3) and 1e-5 for
F(4, 3), F(2, 5) and F(2, 7) in float32 (``tests/implementations/algorithms``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax, te

from eqsat_layout.implementations.algorithms.convolution import Convolution
from eqsat_layout.implementations.algorithms.graphs import operands, ordered_by, padded

Matrix = npt.NDArray[np.float32]

_POINTS = tuple(map(Fraction, ("0", "1", "-1", "2", "-2", "1/2", "-1/2")))


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
    return np.array([[float(x) for x in row] for row in rows], dtype="float32")


def why_not_winograd(conv: Convolution, tile: int, window: int) -> str | None:
    """Why there is no F(tile, window) of it; None where there is: float32, dense, windows along one axis or both."""
    if conv.is_transposed:
        return "it is transposed"
    if conv.strides != (1, 1) or conv.dilation != (1, 1):
        return f"its strides are {conv.strides} and its dilation {conv.dilation}, not 1"
    if set(conv.windows) - {1} != {window}:
        return f"its window is {conv.windows[0]}x{conv.windows[1]}"
    if conv.dtype != "float32":
        return f"it computes in {conv.dtype}"
    if min(conv.channels) < 4:
        return f"it has {min(conv.channels)} channels on one side"
    if any(w > 1 and size < tile for w, size in zip(conv.windows, conv.out_size, strict=True)):
        return f"its result of {conv.out_size[0]}x{conv.out_size[1]} is smaller than a tile"
    return None


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
    tiles = (tile if conv.windows[0] > 1 else 1, tile if conv.windows[1] > 1 else 1)
    builder = relax.BlockBuilder()
    data, kernel, params = operands(conv)
    back, weigh, forth = (relax.const(m) for m in matrices(tile, window))
    stages = _WinogradStages(conv, tiles)
    with builder.function("main", params):
        with builder.dataflow():
            u = builder.emit_te(stages.kernel, kernel, weigh, primfunc_name_hint="winograd_kernel")
            v: Any = data
            for function, name in stages.forth:
                v = builder.emit_te(function, v, forth, primfunc_name_hint=name)
            m = builder.emit_te(stages.product, v, u, primfunc_name_hint="winograd_product")
            for function, name in stages.back:
                m = builder.emit_te(function, m, back, primfunc_name_hint=name)
            result = builder.emit_output(m)
        builder.emit_func_output(result)
    return builder.get()


_Stage = Callable[[te.Tensor, te.Tensor], te.Tensor]


class _WinogradStages:
    """The stages as tensor expressions. Inside, channels come before the tiles' axes, as in NCHW."""

    def __init__(self, conv: Convolution, tile: tuple[int, int]):
        self._conv, self._tile = conv, tile
        self._points = tuple(t + w - 1 for t, w in zip(tile, conv.windows, strict=True))
        self._tiles = tuple(-(-size // t) for size, t in zip(conv.out_size, tile, strict=True))

    @property
    def forth(self) -> list[tuple[_Stage, str]]:
        """The passes over the data."""
        rows = (self._data_rows, "winograd_data_rows")
        if self._points[1] == 1:
            return [rows]
        return [rows, (self._data, "winograd_data")] if self._points[0] > 1 else [(self._data, "winograd_data")]

    @property
    def back(self) -> list[tuple[_Stage, str]]:
        """The passes over the products."""
        rows = (self._result_rows, "winograd_result_rows")
        if self._points[1] == 1:
            return [rows]
        return [rows, (self._result, "winograd_result")] if self._points[0] > 1 else [(self._result, "winograd_result")]

    def kernel(self, kernel: te.Tensor, weigh: te.Tensor) -> te.Tensor:
        """(a, b, o, i)."""
        r, q = (te.reduce_axis((0, w), name) for w, name in zip(self._conv.windows, "rq", strict=True))
        rows, columns = (p > 1 for p in self._points)

        def element(a: Any, b: Any, o: Any, i: Any) -> Any:
            value = kernel(*ordered_by(self._conv.kernel, (o, i, r, q)))
            value = value * weigh[a, r] if rows else value
            return te.sum(value * weigh[b, q] if columns else value, axis=[r, q])

        channels, outputs = self._conv.channels
        return te.compute((*self._points, outputs, channels), element, name="winograd_kernel")

    def _padded(self, data: te.Tensor) -> te.Tensor:
        """Zeros around the data, so that all tiles are whole."""
        conv = self._conv
        before = [low for low, _ in conv.padding]
        after = [
            max(0, tiles * tile + window - 1 - low - size)
            for tiles, tile, window, low, size in zip(
                self._tiles, self._tile, conv.windows, before, conv.size, strict=True
            )
        ]
        return padded(data, conv, before, after, "winograd_pad")

    def _data_rows(self, data: te.Tensor, forth: te.Tensor) -> te.Tensor:
        """(a, n, c, y, x) if columns follow, else (a, 1, n, c, y, x)."""
        conv, points, tile = self._conv, self._points[0], self._tile[0]
        around = self._padded(data)
        r = te.reduce_axis((0, points), "r")

        def element(a: Any, n: Any, c: Any, y: Any, x: Any) -> Any:
            return te.sum(around(*ordered_by(conv.data, (n, c, y * tile + r, x))) * forth[a, r], axis=r)

        width = self._tiles[1] * self._tile[1] + conv.windows[1] - 1
        shape = (conv.batch, conv.channels[0], self._tiles[0], width)
        if self._points[1] > 1:
            return te.compute((points, *shape), element, name="winograd_rows")
        return te.compute((points, 1, *shape), lambda a, b, *rest: element(a, *rest), name="winograd_rows")

    def _data(self, rows: te.Tensor, forth: te.Tensor) -> te.Tensor:
        """(a, b, n, c, y, x) of (a, n, c, y, x), or of the data itself."""
        conv, points, tile = self._conv, self._points[1], self._tile[1]
        q = te.reduce_axis((0, points), "q")
        around = None if self._points[0] > 1 else self._padded(rows)

        def element(a: Any, b: Any, n: Any, c: Any, y: Any, x: Any) -> Any:
            if around is None:
                return te.sum(rows[a, n, c, y, x * tile + q] * forth[b, q], axis=q)
            return te.sum(around(*ordered_by(conv.data, (n, c, y, x * tile + q))) * forth[b, q], axis=q)

        return te.compute((*self._points, conv.batch, conv.channels[0], *self._tiles), element, name="winograd_data")

    def product(self, v: te.Tensor, u: te.Tensor) -> te.Tensor:
        """(a, b, n, o, y, x)."""
        c = te.reduce_axis((0, self._conv.channels[0]), "c")
        shape = (*self._points, self._conv.batch, self._conv.channels[1], *self._tiles)

        def element(a: Any, b: Any, n: Any, o: Any, y: Any, x: Any) -> Any:
            return te.sum(v[a, b, n, c, y, x] * u[a, b, o, c], axis=c)

        return te.compute(shape, element, name="winograd_product")

    def _result_rows(self, m: te.Tensor, back: te.Tensor) -> te.Tensor:
        """(p, b, n, o, y, x) if columns follow, else the result."""
        conv, tile = self._conv, self._tile[0]
        a = te.reduce_axis((0, self._points[0]), "a")

        def element(p: Any, b: Any, n: Any, o: Any, y: Any, x: Any) -> Any:
            return te.sum(m[a, b, n, o, y, x] * back[p, a], axis=a)

        def whole(*indices: Any) -> Any:
            n, o, y, x = (indices[axis] for axis in conv.result)
            return te.sum(m[a, 0, n, o, y // tile, x] * back[y % tile, a], axis=a)

        if self._points[1] == 1:
            return te.compute(self._shape, whole, name="winograd_result_rows")
        shape = (tile, self._points[1], conv.batch, conv.channels[1], *self._tiles)
        return te.compute(shape, element, name="winograd_result_rows")

    def _result(self, rows: te.Tensor, back: te.Tensor) -> te.Tensor:
        conv, (height, width) = self._conv, self._tile
        b = te.reduce_axis((0, self._points[1]), "b")

        def element(*indices: Any) -> Any:
            n, o, y, x = (indices[axis] for axis in conv.result)
            return te.sum(rows[y % height, b, n, o, y // height, x // width] * back[x % width, b], axis=b)

        return te.compute(self._shape, element, name="winograd_result")

    @property
    def _shape(self) -> tuple[Any, ...]:
        return ordered_by(self._conv.result, (self._conv.batch, self._conv.channels[1], *self._conv.out_size))
