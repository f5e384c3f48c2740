"""Convolutions whose windows are moved by what is given: deformable ones, of torchvision and of ONNX.

In: data of shape (N, C, H, W), weights (O, C / groups, kh, kw), offsets (N, 2 * parts * kh * kw, OH, OW), down and
right in turns, and a factor for each place of a window or none. Out: (N, O, OH, OW), in Relax.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.layers.dtypes import as_dtype


def deformed(
    b: relax.BlockBuilder,
    data: Any,
    weight: Any,
    offset: Any,
    mask: Any,
    bias: Any,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    parts: int,
) -> Any:
    """``pads``: before the rows and before the columns; behind them is what the offsets' size says. ``parts``: channels
    that are moved together, in so many groups. What lies outside is 0; floats of 16 bits are computed in float32."""
    op, dtype = relax.op, str(data.ty.dtype)
    if dtype in ("float16", "bfloat16"):
        data, weight, offset, mask, bias = (
            None if x is None else as_dtype(b, x, "float32") for x in (data, weight, offset, mask, bias)
        )
    number, channels, *_ = data.ty.shape.values
    out, inner, tall, wide = weight.ty.shape.values
    rows, columns = list(offset.ty.shape.values)[2:]
    if not all(isinstance(x, tirx.IntImm) for x in (channels, out, inner, tall, wide)):
        raise EqsatError("a deformable convolution of unknown channels is not done")
    places, each = int(tall) * int(wide), int(channels) // parts

    def sampled(x: Any, moved: Any, *factors: Any) -> Any:
        height, width = x.shape[2:]
        kind = x.dtype

        def corner(n: Any, c: Any, i: Any, j: Any) -> Any:
            inside = tirx.all(i >= 0, i < height, j >= 0, j < width)
            at = [tirx.max(tirx.min(p, extent - 1), 0) for p, extent in ((i, height), (j, width))]
            return tirx.if_then_else(inside, x(n, c, *at), tirx.const(0.0, kind))

        def element(n: Any, c: Any, k: Any, i: Any, j: Any) -> Any:
            part = tirx.indexdiv(c, each) * places + k
            down = moved(n, 2 * part, i, j)
            right = moved(n, 2 * part + 1, i, j)
            top = i * strides[0] - pads[0] + tirx.indexdiv(k, wide) * dilations[0]
            left = j * strides[1] - pads[1] + tirx.indexmod(k, wide) * dilations[1]
            y, z = tirx.Cast(kind, top) + down, tirx.Cast(kind, left) + right
            y, z = (
                tirx.max(tirx.min(p, tirx.Cast(kind, extent)), tirx.const(-1.0, kind))
                for p, extent in ((y, height), (z, width))
            )
            first, before = (tirx.Cast("int64", tirx.floor(p)) for p in (y, z))
            low, near = y - tirx.floor(y), z - tirx.floor(z)
            one = tirx.const(1.0, kind)
            upper = corner(n, c, first, before) * (one - near) + corner(n, c, first, before + 1) * near
            lower = corner(n, c, first + 1, before) * (one - near) + corner(n, c, first + 1, before + 1) * near
            made = upper * (one - low) + lower * low
            return made * factors[0](n, part, i, j) if factors else made

        return te.compute((number, channels, places, rows, columns), element, "deformed")

    given = [data, offset] if mask is None else [data, offset, mask]
    windows = b.emit_te(sampled, *given, primfunc_name_hint="deformed_windows")
    flat = b.emit(op.reshape(windows, [number, groups, int(inner) * places, rows * columns]))
    filters = b.emit(op.reshape(weight, [groups, int(out) // groups, int(inner) * places]))
    made = b.emit(op.reshape(b.emit(op.matmul(filters, flat)), [number, out, rows, columns]))
    if bias is not None:
        made = b.emit(op.add(made, b.emit(op.reshape(bias, [-1, 1, 1]))))
    return as_dtype(b, made, dtype)
