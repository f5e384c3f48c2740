"""``auto_pad`` of ONNX's windows as the borders that it stands for.

In: a node's inputs and attributes. Out: the same with ``pads``; data whose size is known at run time only get their
border here. TVM's converters of pools round the sizes down, and want numbers.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from tvm import relax, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.layers.padding import CONSTANT, padded

_WEIGHTS: Final = {"Conv": 1, "ConvInteger": 1, "QLinearConv": 3}
"""Which input of a convolution its windows are read from, where no attribute says them."""

_POOLS: Final = ("AveragePool", "LpPool", "MaxPool")

_SAME: Final = (b"SAME_UPPER", b"SAME_LOWER")


def with_pads(builder: relax.BlockBuilder, op: str, inputs: Any, attributes: dict[str, Any]) -> Any:
    """Inputs and attributes; as they are for other nodes."""
    mode = attributes.get("auto_pad", b"NOTSET")
    if mode not in _SAME or (op not in _WEIGHTS and op not in _POOLS):
        return inputs, attributes
    data = inputs[0]
    extents = list(data.ty.shape.values)[2:]
    sizes = attributes.get("kernel_shape") or list(inputs[_WEIGHTS[op]].ty.shape.values)[2:]
    ones = [1] * len(extents)
    strides, dilations = (attributes.get(name) or ones for name in ("strides", "dilations"))
    whole = [
        _missing(extent, int(size), int(stride), int(dilation))
        for extent, size, stride, dilation in zip(extents, sizes, strides, dilations, strict=True)
    ]
    first = [tirx.floordiv(one + (1 if mode == b"SAME_LOWER" else 0), 2) for one in whole]
    last = [one - begin for one, begin in zip(whole, first, strict=True)]
    rest = {name: value for name, value in attributes.items() if name != "auto_pad"}
    if all(isinstance(one, tirx.IntImm) for one in (*first, *last)):
        return inputs, rest | {"pads": [int(one) for one in (*first, *last)]}
    if op not in ("Conv", "MaxPool"):
        raise EqsatError(f"{op} with auto_pad={mode.decode()} and a size that is known at run time only is not done")
    zero, dtype = tirx.IntImm("int64", 0), str(data.ty.dtype)
    least: Any = 0 if op == "Conv" else -np.inf if "float" in dtype else np.iinfo(dtype).min
    fill = relax.const(np.array(least).astype("float32" if dtype == "bfloat16" else dtype), dtype)
    data = padded(builder, data, [zero, zero, *first], [zero, zero, *last], CONSTANT, fill)
    return type(inputs)([data, *list(inputs)[1:]]), rest


def _missing(extent: Any, size: int, stride: int, dilation: int) -> Any:
    """Elements by which an axis is too short for a window at each stride, the last one of which may be cut."""
    reach = (size - 1) * dilation + 1
    if stride == 1:
        return tirx.IntImm("int64", reach - 1)
    if isinstance(extent, tirx.IntImm):
        return tirx.IntImm("int64", max(0, (-(-int(extent) // stride) - 1) * stride + reach - int(extent)))
    count = tirx.floordiv(extent + (stride - 1), stride)
    return tirx.Max((count - 1) * stride + reach - extent, tirx.IntImm("int64", 0))
