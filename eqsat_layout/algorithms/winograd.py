"""Winograd's minimal filtering for 3x3 convolutions, as a graph of ops (Lavin and Gray 2016, arXiv:1509.09308).

In: a :class:`Convolution`. Out: a Relax module. F(m, 3) needs (m + 2)^2 products for m x m results where the direct way
needs 9 m^2: 2.25 times less for m = 2, 4 times less for m = 4, at a larger rounding error, hence ``approx``. The error
relative to the largest result is about 1e-6 for m = 2 and 1e-5 for m = 4 in float32 (``tests/algorithms``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax, te, topi

from eqsat_layout.algorithms.convolution import Convolution

Matrix = npt.NDArray[np.float32]

_POINTS = (Fraction(0), Fraction(1), Fraction(-1), Fraction(2), Fraction(-2))
_WINDOW = 3


def matrices(tile: int, window: int = _WINDOW) -> tuple[Matrix, Matrix, Matrix]:
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


def applies(conv: Convolution) -> bool:
    """3x3, dense, float32."""
    plain = conv.windows == (3, 3) and conv.strides == (1, 1) and conv.dilation == (1, 1) and not conv.is_transposed
    return plain and conv.dtype == "float32" and min(conv.channels) >= 4


def winograd(conv: Convolution, tile: int) -> tvm.IRModule | None:
    """``main(data, kernel)`` in the op's own operand order and layouts; ``None`` where it does not apply.

    Six ops: the kernel's transform (folded where the kernel is a constant), two one-dimensional passes over the data,
    a product of matrices per point, and two passes back. Every pass is a contraction with a small constant matrix, so
    that layouts of channels go through it and its schedule is that of any contraction.
    """
    if not applies(conv) or min(conv.out_size) < tile:
        return None
    builder = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType(placed(conv.data, (conv.batch, conv.channels[0], *conv.size)), "float32"))
    shape = placed(conv.kernel, (conv.channels[1], conv.channels[0], 3, 3))
    kernel = relax.Var("kernel", relax.TensorType(shape, "float32"))
    params = [data, kernel] if conv.data_operand == 0 else [kernel, data]
    back, weigh, forth = (relax.const(m) for m in matrices(tile))
    stages = _Stages(conv, tile)
    with builder.function("main", params):
        with builder.dataflow():
            u = builder.emit_te(stages.kernel, kernel, weigh, primfunc_name_hint="winograd_kernel")
            rows = builder.emit_te(stages.data_rows, data, forth, primfunc_name_hint="winograd_data_rows")
            v = builder.emit_te(stages.data, rows, forth, primfunc_name_hint="winograd_data")
            m = builder.emit_te(stages.product, v, u, primfunc_name_hint="winograd_product")
            columns = builder.emit_te(stages.result_rows, m, back, primfunc_name_hint="winograd_result_rows")
            out = builder.emit_te(stages.result, columns, back, primfunc_name_hint="winograd_result")
            result = builder.emit_output(out)
        builder.emit_func_output(result)
    return builder.get()


class _Stages:
    """The stages as tensor expressions. Inside, channels come before the tiles' axes, as in NCHW."""

    def __init__(self, conv: Convolution, tile: int):
        self._conv, self._tile, self._points = conv, tile, tile + _WINDOW - 1
        self._tiles = tuple(-(-size // tile) for size in conv.out_size)

    def kernel(self, kernel: te.Tensor, weigh: te.Tensor) -> te.Tensor:
        r, q = (te.reduce_axis((0, _WINDOW), name) for name in "rq")

        def element(a: Any, b: Any, o: Any, i: Any) -> Any:
            return te.sum(kernel(*placed(self._conv.kernel, (o, i, r, q))) * weigh[a, r] * weigh[b, q], axis=[r, q])

        channels, outputs = self._conv.channels
        return te.compute((self._points, self._points, outputs, channels), element, name="winograd_kernel")

    def data_rows(self, data: te.Tensor, forth: te.Tensor) -> te.Tensor:
        conv, (rows, _) = self._conv, self._tiles
        height, width = (tiles * self._tile + _WINDOW - 1 for tiles in self._tiles)
        (top, _), (left, _) = conv.padding
        before, after = [0] * 4, [0] * 4
        for axis, low, size, wanted in ((2, top, conv.size[0], height), (3, left, conv.size[1], width)):
            before[conv.data[axis]], after[conv.data[axis]] = low, wanted - low - size
        padded = topi.nn.pad(data, before, [max(0, x) for x in after], name="winograd_pad")
        r = te.reduce_axis((0, self._points), "r")

        def element(a: Any, n: Any, c: Any, y: Any, x: Any) -> Any:
            return te.sum(padded(*placed(conv.data, (n, c, y * self._tile + r, x))) * forth[a, r], axis=r)

        return te.compute((self._points, conv.batch, conv.channels[0], rows, width), element, name="winograd_rows")

    def data(self, rows: te.Tensor, forth: te.Tensor) -> te.Tensor:
        q = te.reduce_axis((0, self._points), "q")
        shape = (self._points, self._points, self._conv.batch, self._conv.channels[0], *self._tiles)

        def element(a: Any, b: Any, n: Any, c: Any, y: Any, x: Any) -> Any:
            return te.sum(rows[a, n, c, y, x * self._tile + q] * forth[b, q], axis=q)

        return te.compute(shape, element, name="winograd_data")

    def product(self, v: te.Tensor, u: te.Tensor) -> te.Tensor:
        c = te.reduce_axis((0, self._conv.channels[0]), "c")
        shape = (self._points, self._points, self._conv.batch, self._conv.channels[1], *self._tiles)

        def element(a: Any, b: Any, n: Any, o: Any, y: Any, x: Any) -> Any:
            return te.sum(v[a, b, n, c, y, x] * u[a, b, o, c], axis=c)

        return te.compute(shape, element, name="winograd_product")

    def result_rows(self, m: te.Tensor, back: te.Tensor) -> te.Tensor:
        a = te.reduce_axis((0, self._points), "a")
        shape = (self._tile, self._points, self._conv.batch, self._conv.channels[1], *self._tiles)

        def element(p: Any, b: Any, n: Any, o: Any, y: Any, x: Any) -> Any:
            return te.sum(m[a, b, n, o, y, x] * back[p, a], axis=a)

        return te.compute(shape, element, name="winograd_result_rows")

    def result(self, rows: te.Tensor, back: te.Tensor) -> te.Tensor:
        conv, tile = self._conv, self._tile
        b = te.reduce_axis((0, self._points), "b")

        def element(*indices: Any) -> Any:
            n, o, y, x = (indices[axis] for axis in conv.result)
            return te.sum(rows[y % tile, b, n, o, y // tile, x // tile] * back[x % tile, b], axis=b)

        shape = placed(conv.result, (conv.batch, conv.channels[1], *conv.out_size))
        return te.compute(shape, element, name="winograd_result")


def placed(axes: Sequence[int], values: Sequence[Any]) -> tuple[Any, ...]:
    """``values`` at the positions ``axes``."""
    found: list[Any] = [None] * len(axes)
    for axis, value in zip(axes, values, strict=True):
        found[axis] = value
    return tuple(found)
