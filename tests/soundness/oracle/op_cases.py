"""Ops with shapes that the interpreter is compared on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, tirx
from tvm.relax import op as R

IMAGE = (2, 4, 6, 6)
HALF = "float16"


def cast(dtype: str) -> Callable[..., Any]:
    return lambda x: R.astype(x, dtype)


OPS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    **{f.__name__: (f, [(3, 5)]) for f in (R.nn.relu, R.nn.silu, R.nn.gelu, R.erf, R.exp, R.log, R.log, R.sqrt)},
    **{f.__name__: (f, [(3, 5)]) for f in (R.rsqrt, R.sigmoid, R.tanh, R.sin, R.cos, R.atan, R.floor, R.ceil)},
    **{f.__name__: (f, [(3, 5)]) for f in (R.round, R.trunc, R.abs, R.sign, R.square, R.isnan, R.negative)},
    **{f"{f.__name__}2": (f, [(3, 5), (3, 5)]) for f in (R.power, R.maximum, R.minimum, R.greater, R.not_equal)},
    **{
        f"{f.__name__} of integers": (f, [((3, 5), "int32"), ((3, 5), "int32")])
        for f in (R.add, R.floor_divide, R.mod, R.bitwise_and, R.bitwise_xor, R.left_shift, R.right_shift, R.less)
    },
    "bitwise_not": (R.bitwise_not, [((3, 5), "int32")]),
    "logical_and": (R.logical_and, [((3, 5), "bool"), ((3, 5), "bool")]),
    "logical_or": (R.logical_or, [((3, 5), "bool"), ((3, 5), "bool")]),
    "logical_not": (R.logical_not, [((3, 5), "bool")]),
    "clip": (lambda x: R.clip(x, 0.25, 0.75), [(3, 5)]),
    "leaky_relu": (lambda x: R.nn.leakyrelu(x, 0.1), [(3, 5)]),
    "bias": (R.add, [IMAGE, (4, 1, 1)]),
    "multiply by a scalar": (R.multiply, [IMAGE, ()]),
    "float16": (R.multiply, [((3, 5), HALF), ((3, 5), HALF)]),
    "float16 sum": (lambda x: R.sum(x, axis=[0]), [((9, 5), HALF)]),
    "float64": (R.exp, [((3, 5), "float64")]),
    "astype int8": (cast("int8"), [(3, 5)]),
    "astype float16": (cast(HALF), [(3, 5)]),
    "int32 to uint8": (cast("uint8"), [((3, 5), "int32")]),
    "astype bool": (cast("bool"), [(3, 5)]),
    "sum": (lambda x: R.sum(x, axis=[1, 3]), [IMAGE]),
    "sum of all": (R.sum, [IMAGE]),
    "max": (lambda x: R.max(x, axis=1, keepdims=True), [IMAGE]),
    "min": (lambda x: R.min(x, axis=[2, 3]), [IMAGE]),
    "prod": (lambda x: R.prod(x, axis=1), [IMAGE]),
    "mean": (lambda x: R.mean(x, axis=[2, 3]), [IMAGE]),
    "variance": (lambda x: R.variance(x, axis=[1]), [IMAGE]),
    "argmax": (lambda x: R.argmax(x, axis=1), [IMAGE]),
    "argmin": (lambda x: R.argmin(x, axis=1, keepdims=True), [IMAGE]),
    "softmax": (lambda x: R.nn.softmax(x, axis=1), [IMAGE]),
    "log_softmax": (lambda x: R.nn.log_softmax(x, axis=-1), [(3, 5)]),
    "layer_norm": (lambda x, g, b: R.nn.layer_norm(x, g, b, axes=[-1]), [(2, 4, 6), (6,), (6,)]),
    "rms_norm": (lambda x, g: R.nn.rms_norm(x, g, axes=[-1]), [(2, 4, 6), (6,)]),
    "group_norm": (
        lambda x, g, b: R.nn.group_norm(x, g, b, num_groups=2, channel_axis=1, axes=[2, 3]),
        [IMAGE, (4,), (4,)],
    ),
    "instance_norm": (lambda x, g, b: R.nn.instance_norm(x, g, b, channel_axis=1, axes=[2, 3]), [IMAGE, (4,), (4,)]),
    "conv1d": (lambda x, w: R.nn.conv1d(x, w, padding=1), [(2, 4, 8), (3, 4, 3)]),
    "conv2d": (lambda x, w: R.nn.conv2d(x, w, padding=1, strides=2), [IMAGE, (3, 4, 3, 3)]),
    "conv2d dilated": (lambda x, w: R.nn.conv2d(x, w, dilation=2), [IMAGE, (3, 4, 3, 3)]),
    "conv3d": (lambda x, w: R.nn.conv3d(x, w, padding=1), [(1, 2, 3, 3, 3), (2, 2, 3, 3, 3)]),
    "depthwise": (lambda x, w: R.nn.conv2d(x, w, groups=4), [IMAGE, (4, 1, 3, 3)]),
    "grouped": (lambda x, w: R.nn.conv2d(x, w, groups=2, padding=1), [IMAGE, (6, 2, 3, 3)]),
    "conv2d_transpose": (lambda x, w: R.nn.conv2d_transpose(x, w, strides=2), [IMAGE, (4, 3, 2, 2)]),
    "matmul": (R.matmul, [(2, 3, 4), (4, 5)]),
    "batched matmul": (R.matmul, [(2, 3, 4), (2, 4, 5)]),
    "max_pool2d": (lambda x: R.nn.max_pool2d(x, (3, 3), padding=1, strides=2), [IMAGE]),
    "avg_pool2d": (lambda x: R.nn.avg_pool2d(x, (3, 3), padding=1), [IMAGE]),
    "adaptive_avg_pool2d": (lambda x: R.nn.adaptive_avg_pool2d(x, (4, 4)), [IMAGE]),
    "resize2d": (lambda x: R.image.resize2d(x, (9, 9), layout="NCHW", method="linear"), [IMAGE]),
    "resize2d nearest": (lambda x: R.image.resize2d(x, (9, 5), layout="NCHW", method="nearest_neighbor"), [IMAGE]),
    "concat": (lambda x, y: R.concat([x, y], axis=1), [IMAGE, IMAGE]),
    "stack": (lambda x, y: R.stack([x, y], axis=1), [IMAGE, IMAGE]),
    "split": (lambda x: R.split(x, 2, axis=1), [IMAGE]),
    "pad": (lambda x: R.nn.pad(x, [0, 0, 1, 2]), [(3, 5)]),
    "strided_slice": (lambda x: R.strided_slice(x, [1], [0], [6], [2]), [(3, 6)]),
    "flip": (lambda x: R.flip(x, 1), [(3, 6)]),
    "reshape": (lambda x: R.reshape(x, (6, 3)), [(3, 6)]),
    "permute_dims": (lambda x: R.permute_dims(x, [2, 0, 1]), [(2, 3, 6)]),
    "broadcast_to": (lambda x: R.broadcast_to(x, (4, 3, 6)), [(3, 1)]),
    "repeat": (lambda x: R.repeat(x, 2, axis=1), [(3, 6)]),
    "tile": (lambda x: R.tile(x, (2, 3)), [(3, 6)]),
    "tril": (lambda x: R.tril(x, 1), [(5, 6)]),
    "take": (lambda x, i: R.take(x, i, axis=0), [(3, 5), ((4,), "int32")]),
    "gather_elements": (lambda x, i: R.gather_elements(x, i, axis=1), [(3, 5), ((3, 2), "int64")]),
    "scatter_elements": (
        lambda x, i, u: R.scatter_elements(x, i, u, axis=1),
        [(3, 5), ((3, 1), "int64"), (3, 1)],
    ),
    "one_hot": (
        lambda i: R.one_hot(i, relax.prim_value(tirx.const(1.0)), relax.prim_value(tirx.const(0.0)), 4),
        [((5,), "int32")],
    ),
    "where": (R.where, [((3, 5), "bool"), (3, 5), (3, 5)]),
    "one element": (R.nn.relu, [()]),
    "nothing": (R.nn.relu, [(0, 3)]),
}
BIT_FOR_BIT = ("sum", "float16 sum", "conv2d", "matmul", "argmax", "prod")
"""Where the order of the arithmetic shows."""
