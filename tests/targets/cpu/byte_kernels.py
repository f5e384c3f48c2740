"""Kernels that multiply bytes, their operands, and what they give."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from targets.machines import built
from tvm import te, tirx, topi

from eqsat_layout.targets.cpu.target import make_target

HERE = make_target(None, True)


def convolution(channels: int, outputs: int, size: int, taps: int, block: int, border: int = 0, **how: Any) -> Any:
    """Channels last; weights in blocks of outputs, in which four inputs lie side by side. A border of ``border``.

    ``how``: ``stride``; ``edge`` of so many elements.
    """
    stride, width = how.get("stride", 1), how.get("edge", taps // 2)
    data = te.placeholder((1, size, size, channels), "uint8", "data")
    weights = te.placeholder((outputs // block, taps, taps, channels // 4, block, 4), "int8", "weights")
    edge = [0, width, width, 0]
    padded = topi.nn.pad(data, edge, edge, pad_value=tirx.const(border, "uint8"), name="pad")
    places = (size + 2 * width - taps) // stride + 1
    r, s, c = (te.reduce_axis((0, extent), name) for extent, name in ((taps, "r"), (taps, "s"), (channels, "c")))

    def element(n: Any, y: Any, x: Any, o: Any) -> Any:
        one = padded[n, y * stride + r, x * stride + s, c].astype("int32")
        other = weights[o // block, r, s, c // 4, o % block, c % 4].astype("int32")
        return te.sum(one * other, axis=[r, s, c])

    sums = te.compute((1, places, places, outputs), element, name="sums")
    scaled = te.compute(sums.shape, lambda *i: sums(*i).astype("float32") * te.const(0.5, "float32"), name="scaled")
    return te.create_prim_func([data, weights, scaled], index_dtype_override="int64")


def product(rows: int, steps: int, columns: int, *, transposed: bool = False) -> Any:
    """Of matrices; ``transposed``: each column's weights are one row."""
    data = te.placeholder((rows, steps), "uint8", "data")
    shape = (columns, steps) if transposed else (steps // 4, columns, 4)
    weights = te.placeholder(shape, "int8", "weights")
    k = te.reduce_axis((0, steps), "k")

    def element(i: Any, j: Any) -> Any:
        own = weights[j, k] if transposed else weights[k // 4, j, k % 4]
        return te.sum(data[i, k].astype("int32") * own.astype("int32"), axis=k)

    return te.create_prim_func([data, weights, te.compute((rows, columns), element, name="product")])


def operands(func: Any, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    found = []
    for param in func.params:
        shape, dtype = [int(extent) for extent in param.ty.shape], str(param.ty.dtype)
        low, high = {"uint8": (0, 256), "int8": (-128, 128)}.get(dtype, (-9, 10))
        found.append(rng.integers(low, high, shape).astype(dtype))
    return found


def ran(func: Any, arrays: list[Any]) -> Any:
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    built(tvm.IRModule({"k": func.with_attr("global_symbol", "k")}))["k"](*tensors)
    return tensors[-1].numpy()
