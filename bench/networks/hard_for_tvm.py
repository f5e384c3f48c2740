"""The two networks of our notes on which TVM's layout conversion does worst, without torch.

In: nothing. Out: Relax modules of one function ``main`` over an image, with random weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op


class _Net:
    """A Relax function that grows by one op after the other."""

    def __init__(self, shape: tuple[int, ...]):
        self.builder = relax.BlockBuilder()
        self.x = relax.Var("x", relax.TensorType(shape, "float32"))
        self._rng = np.random.default_rng(0)

    def conv(self, x: Any, outputs: int, size: int = 3, stride: int = 1, groups: int = 1) -> Any:
        channels = int(x.ty.shape[1]) // groups
        scale = np.float32((channels * size * size) ** -0.5)
        weight = self._rng.standard_normal((outputs, channels, size, size), dtype=np.float32) * scale
        bias = self._rng.standard_normal((1, outputs, 1, 1), dtype=np.float32)
        y = op.nn.conv2d(x, relax.const(weight), strides=stride, padding=size // 2, groups=groups)
        return self.builder.emit(op.add(self.builder.emit(y), relax.const(bias)))

    def module(self, body: Callable[[_Net, Any], Any]) -> tvm.IRModule:
        with self.builder.function("main", [self.x]):
            with self.builder.dataflow():
                result = self.builder.emit_output(body(self, self.x))
            self.builder.emit_func_output(result)
        return self.builder.get()


def relu6_mobilenet(blocks: int = 4, size: int = 56, channels: int = 32) -> tvm.IRModule:
    """Inverted residuals whose activation is a clip, for which ConvertLayout has no rule."""

    def relu6(net: _Net, x: Any) -> Any:
        return net.builder.emit(op.clip(x, 0, 6))

    def body(net: _Net, x: Any) -> Any:
        x = relu6(net, net.conv(x, channels, stride=2))
        for _ in range(blocks):
            y = relu6(net, net.conv(x, channels * 4, size=1))
            y = relu6(net, net.conv(y, channels * 4, groups=channels * 4))
            x = net.builder.emit(op.add(x, net.conv(y, channels, size=1)))
        return x

    return _Net((1, 3, size, size)).module(body)


def leaky_unet(depth: int = 3, size: int = 64, channels: int = 16) -> tvm.IRModule:
    """A U-Net with leaky relu, concatenations and resizing."""

    def double(net: _Net, x: Any, outputs: int) -> Any:
        for _ in range(2):
            x = net.builder.emit(op.nn.leakyrelu(net.conv(x, outputs), 0.1))
        return x

    def body(net: _Net, x: Any) -> Any:
        skips = []
        for level in range(depth):
            x = double(net, x, channels << level)
            skips.append(x)
            x = net.builder.emit(op.nn.max_pool2d(x, [2, 2], strides=[2, 2]))
        x = double(net, x, channels << depth)
        for level in reversed(range(depth)):
            wide = [int(e) * 2 for e in list(x.ty.shape)[2:]]
            x = net.builder.emit(op.image.resize2d(x, relax.ShapeExpr(wide), layout="NCHW", method="nearest_neighbor"))
            x = net.builder.emit(op.concat([skips[level], net.conv(x, channels << level, size=1)], axis=1))
            x = double(net, x, channels << level)
        return net.conv(x, 2, size=1)

    return _Net((1, 3, size, size)).module(body)


NETWORKS: dict[str, Callable[[], tvm.IRModule]] = {"relu6_mobilenet": relu6_mobilenet, "leaky_unet": leaky_unet}
"""By name."""
