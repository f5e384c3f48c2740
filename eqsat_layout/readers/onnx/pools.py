"""Pools of ONNX that TVM's frontend does not take: maxima with their places, and norms of windows.

In: a node's inputs and attributes. Out: its results, in Relax.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import relax, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.layers.window_maxima import Windows, flat_indices, window_count, window_maxima


def pooled_with_places(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``MaxPool`` with its second result."""
    data = inputs[0]
    windows, own = _windows(data, attributes)
    values, places = window_maxima(builder, data, windows)
    turned = bool(attributes.get("storage_order"))
    return relax.Tuple([values, flat_indices(places, own, _extents(data)[1] or 0, builder, turned=turned)])


def pooled_norms(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``LpPool``: padding is zeros, which no norm counts, so that it may be uneven."""
    data, p = inputs[0], float(attributes.get("p", 2))
    windows, own = _windows(data, attributes)
    rank, emit, dtype = len(windows.sizes), builder.emit, str(data.ty.dtype)
    if rank > 3:
        raise EqsatError(f"LpPool over {rank} axes is not done")
    needed = [
        (number - 1) * stride + (size - 1) * dilation + 1
        for number, stride, size, dilation in zip(
            windows.counts, windows.strides, windows.sizes, windows.dilations, strict=True
        )
    ]
    after = [max(0, n - b - e) for n, b, e in zip(needed, windows.before, own, strict=True)]
    pads = [0, 0, 0, 0] + [one for both in zip(windows.before, after, strict=True) for one in both]
    powers = emit(relax.op.power(emit(relax.op.abs(data)), relax.const(p, dtype)))
    if any(pads):
        powers = emit(relax.op.nn.pad(powers, pads, "constant", 0.0))
    pool = (relax.op.nn.avg_pool1d, relax.op.nn.avg_pool2d, relax.op.nn.avg_pool3d)[rank - 1]
    means = emit(pool(powers, windows.sizes, windows.strides, [0] * rank, windows.dilations))
    sums = emit(relax.op.multiply(means, relax.const(float(math.prod(windows.sizes)), dtype)))
    return emit(relax.op.power(sums, relax.const(1 / p, dtype)))


def _extents(data: Any) -> list[int | None]:
    return [int(e) if isinstance(e, tirx.IntImm) else None for e in data.ty.shape.values]


def _windows(data: Any, attributes: dict[str, Any]) -> tuple[Windows, list[int]]:
    """Those of a node, and the extents that they go over."""
    extents = _extents(data)
    if None in extents[1:]:
        raise EqsatError("such a pool of data of unknown size is not done")
    sizes = [int(size) for size in attributes["kernel_shape"]]
    rank, own = len(sizes), [e for e in extents[2:] if e is not None]
    strides = [int(x) for x in attributes.get("strides", [1] * rank)]
    dilations = [int(x) for x in attributes.get("dilations", [1] * rank)]
    pads = [int(x) for x in attributes.get("pads", [0] * 2 * rank)]
    before, both = pads[:rank], [a + b for a, b in zip(pads[:rank], pads[rank:], strict=True)]
    is_ceil = bool(attributes.get("ceil_mode"))
    counts = [
        window_count(own[i], sizes[i], strides[i], both[i], dilations[i], is_ceil=is_ceil, before=before[i])
        for i in range(rank)
    ]
    return Windows(sizes, strides, before, dilations, counts), own
