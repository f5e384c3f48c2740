"""Products as TE makes them of ops: matrices, windows, batches; in any dtype."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx

Case = Callable[[str, str, str], Any]
"""From the dtypes of operands, sums and results to a PrimFunc. With float64 for all, it is the reference."""


def matmul(rows: int, columns: int, steps: int, *, batch: int = 0, left: str = "mk", right: str = "kn") -> Case:
    """``left`` and ``right``: the order of the axes in memory. Bias over the columns, and a floor at -0.5."""
    extents = {"m": rows, "n": columns, "k": steps}
    batches = [batch] if batch else []

    def make(dtype: str, sums: str, result: str) -> Any:
        a, b = (
            te.placeholder([*batches, *(extents[axis] for axis in order)], dtype, name=name)
            for name, order in (("a", left), ("b", right))
        )
        bias = te.placeholder((columns,), result, name="bias")
        step = te.reduce_axis((0, steps), "k")

        def total(*at: Any) -> Any:
            *outer, m, n = at
            places = {"m": m, "n": n, "k": step}
            values = (one(*outer, *(places[axis] for axis in order)) for one, order in ((a, left), (b, right)))
            return te.sum(_product([value.astype(sums) for value in values]), axis=step)

        c = te.compute((*batches, rows, columns), total, name="c")
        floor = tirx.const(-0.5, result)
        d = te.compute(c.shape, lambda *at: te_max(c(*at).astype(result) + bias(at[-1]), floor), name="d")
        return te.create_prim_func([a, b, bias, d])

    return make


def conv(
    size: Sequence[int],
    channels: int,
    out: int,
    window: Sequence[int],
    *,
    stride: int = 1,
    dilation: int = 1,
    pad: int = 0,
    groups: int = 1,
    batch: int = 1,
    layout: str = "NHWC",
) -> Case:
    """Any rank; weights are OHWI (OIHW for NCHW). A residual is added, and what is below zero is zero."""
    reach = [dilation * (extent - 1) for extent in window]
    result_size = [(extent + 2 * pad - r - 1) // stride + 1 for extent, r in zip(size, reach, strict=True)]
    is_last = layout == "NHWC"
    inner, each = channels // groups, out // groups

    def make(dtype: str, sums: str, result: str) -> Any:
        x = te.placeholder((batch, *size, channels) if is_last else (batch, channels, *size), dtype, name="x")
        w = te.placeholder((out, *window, inner) if is_last else (out, inner, *window), dtype, name="w")
        steps = [te.reduce_axis((0, extent), "r") for extent in window]
        ci = te.reduce_axis((0, inner), "ci")

        def total(n: Any, *at: Any) -> Any:
            places, o = (at[:-1], at[-1]) if is_last else (at[1:], at[0])
            here = [p * stride + r * dilation - pad for p, r in zip(places, steps, strict=True)]
            channel = o // each * inner + ci if groups > 1 else ci
            value = x(n, *here, channel) if is_last else x(n, channel, *here)
            if pad:
                inside = [c for h, extent in zip(here, size, strict=True) for c in (h >= 0, h < extent)]
                value = tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, dtype))
            weight = w(o, *steps, ci) if is_last else w(o, ci, *steps)
            return te.sum(value.astype(sums) * weight.astype(sums), axis=[*steps, ci])

        shape = (batch, *result_size, out) if is_last else (batch, out, *result_size)
        c = te.compute(shape, total, name="c")
        residual = te.placeholder(shape, result, name="residual")
        zero = tirx.const(0, result)
        d = te.compute(shape, lambda *at: te_max(c(*at).astype(result) + residual(*at), zero), name="d")
        return te.create_prim_func([x, w, residual, d])

    return make


def te_max(a: Any, b: Any) -> Any:
    return tirx.max(a, b)


def _product(values: Sequence[Any]) -> Any:
    a, b = values
    return a * b


def heads(rows: int, count: int, size: int, steps: int) -> Case:
    """A product whose columns are heads, which come first in the result: ``d[h, m, e] = c[m, h * size + e]``."""

    def make(dtype: str, sums: str, result: str) -> Any:
        a = te.placeholder((rows, steps), dtype, name="a")
        b = te.placeholder((steps, count * size), dtype, name="b")
        k = te.reduce_axis((0, steps), "k")
        c = te.compute(
            (rows, count * size), lambda m, n: te.sum(a[m, k].astype(sums) * b[k, n].astype(sums), axis=k), name="c"
        )
        d = te.compute((count, rows, size), lambda h, m, e: c[m, h * size + e].astype(result), name="d")
        return te.create_prim_func([a, b, d])

    return make


def of_two_types(rows: int, columns: int, steps: int) -> Case:
    """Halves by floats, whatever the dtypes are but for float64."""

    def make(dtype: str, sums: str, result: str) -> Any:
        a = te.placeholder((rows, steps), dtype if dtype == "float64" else "float16", name="a")
        b = te.placeholder((steps, columns), dtype, name="b")
        k = te.reduce_axis((0, steps), "k")
        c = te.compute((rows, columns), lambda m, n: te.sum(a[m, k].astype(sums) * b[k, n], axis=k), name="c")
        return te.create_prim_func([a, b, c])

    return make


def sums_read_twice(extent: int) -> Case:
    """``d[m, n] = c[m, m]``: not all sums are read, and some more than once."""

    def make(dtype: str, sums: str, result: str) -> Any:
        a, b = (te.placeholder((extent, extent), dtype, name=name) for name in "ab")
        k = te.reduce_axis((0, extent), "k")
        c = te.compute(
            (extent, extent), lambda m, n: te.sum(a[m, k].astype(sums) * b[k, n].astype(sums), axis=k), name="c"
        )
        d = te.compute((extent, extent), lambda m, n: (c[m, m] * 2.0).astype(result), name="d")
        return te.create_prim_func([a, b, d])

    return make


def sums_moved(extent: int, step: int, first: int) -> Case:
    """``d[m, n] = c[step * m + first, n]``, and 0 where there is no such sum."""

    def make(dtype: str, sums: str, result: str) -> Any:
        a, b = (te.placeholder((extent, extent), dtype, name=name) for name in "ab")
        k = te.reduce_axis((0, extent), "k")
        c = te.compute(
            (extent, extent), lambda m, n: te.sum(a[m, k].astype(sums) * b[k, n].astype(sums), axis=k), name="c"
        )

        def element(m: Any, n: Any) -> Any:
            place = m * step + first
            inside = tirx.all(place >= 0, place < extent)
            return tirx.if_then_else(inside, c[place, n].astype(result), tirx.const(0, result))

        return te.create_prim_func([a, b, te.compute((extent, extent), element, name="d")])

    return make


def requantised(rows: int, columns: int, steps: int) -> Case:
    """Sums of bytes, scaled, rounded and cut to bytes again; the last dtype is that of the scale."""

    def make(dtype: str, sums: str, result: str) -> Any:
        a, b = te.placeholder((rows, steps), dtype, name="a"), te.placeholder((columns, steps), dtype, name="b")
        scale = te.placeholder((columns,), result, name="scale")
        k = te.reduce_axis((0, steps), "k")
        c = te.compute(
            (rows, columns), lambda m, n: te.sum(a[m, k].astype(sums) * b[n, k].astype(sums), axis=k), name="c"
        )

        def cut(m: Any, n: Any) -> Any:
            scaled = tirx.round(c[m, n].astype(result) * scale[n])
            return tirx.max(tirx.min(scaled, tirx.const(127, result)), tirx.const(-128, result)).astype(dtype)

        return te.create_prim_func([a, b, scale, te.compute((rows, columns), cut, name="d")])

    return make
