"""ResNet-50 v1.5 as a Relax module in inference form.

In: sizes and a seed. Out: an IRModule in NCHW whose batch norms are folded into the convolutions' weights and biases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax

_EXPANSION = 4
_RESIDUAL_GAIN = 0.3  # damps each block's branch, so that the sum over blocks stays in a sane range


def resnet50(
    batch: int = 1,
    image: int = 224,
    classes: int = 1000,
    seed: int = 0,
    width: int = 64,
    blocks: Sequence[int] = (3, 4, 6, 3),
) -> tvm.IRModule:
    """ResNet-50 v1.5 (the stride sits in the 3x3): ``main(x: [batch, 3, image, image]) -> [batch, classes]``.

    ``width`` is the number of channels of the stem and ``blocks`` the bottlenecks of each stage; smaller ones make a
    net of test size. Weights are random constants, the same for the same seed.
    """
    return _Builder(np.random.default_rng(seed)).build(batch, image, classes, width, tuple(blocks))


class _Builder:
    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.bb = relax.BlockBuilder()

    def build(self, batch: int, image: int, classes: int, width: int, blocks: tuple[int, ...]) -> tvm.IRModule:
        x = relax.Var("x", relax.TensorType((batch, 3, image, image), "float32"))
        with self.bb.function("main", [x]):
            with self.bb.dataflow():
                y = self.conv(x, "stem", 3, width, 7, 2)
                y = self.emit(relax.op.nn.relu(y), "stem_relu")
                y = self.emit(relax.op.nn.max_pool2d(y, (3, 3), strides=(2, 2), padding=(1, 1, 1, 1)), "stem_pool")
                channels = width
                for stage, count in enumerate(blocks, 1):
                    for block in range(count):
                        stride = 2 if stage > 1 and block == 0 else 1
                        inner = width << (stage - 1)
                        y = self.bottleneck(y, f"stage{stage}_block{block}", channels, inner, stride)
                        channels = inner * _EXPANSION
                y = self.emit(relax.op.mean(y, axis=[2, 3]), "pool")
                y = self.head(y, channels, classes)
                result = self.bb.emit_output(y)
            self.bb.emit_func_output(result)
        return self.bb.get()

    def bottleneck(self, x: Any, name: str, channels: int, inner: int, stride: int) -> Any:
        outer = inner * _EXPANSION
        shortcut = x
        if stride != 1 or channels != outer:
            shortcut = self.conv(x, f"{name}_shortcut", channels, outer, 1, stride, gain=np.sqrt(0.5))
        y = self.emit(relax.op.nn.relu(self.conv(x, f"{name}_conv1", channels, inner, 1, 1)), f"{name}_relu1")
        y = self.emit(relax.op.nn.relu(self.conv(y, f"{name}_conv2", inner, inner, 3, stride)), f"{name}_relu2")
        y = self.conv(y, f"{name}_conv3", inner, outer, 1, 1, gain=_RESIDUAL_GAIN)
        y = self.emit(relax.op.add(y, shortcut), f"{name}_add")
        return self.emit(relax.op.nn.relu(y), f"{name}_relu3")

    def conv(self, x: Any, name: str, ic: int, oc: int, kernel: int, stride: int, gain: float = 1.0) -> Any:
        """Convolution with "same" padding and the bias that its batch norm left behind."""
        weight = self.normal((oc, ic, kernel, kernel), gain * np.sqrt(2.0 / (ic * kernel * kernel)))
        pad = kernel // 2
        y = self.emit(relax.op.nn.conv2d(x, relax.const(weight), strides=stride, padding=pad), name)
        bias = self.normal((1, oc, 1, 1), 0.05)
        return self.emit(relax.op.add(y, relax.const(bias)), f"{name}_bias")

    def head(self, x: Any, channels: int, classes: int) -> Any:
        weight = self.normal((channels, classes), np.sqrt(1.0 / channels))
        y = self.emit(relax.op.matmul(x, relax.const(weight)), "fc")
        return self.emit(relax.op.add(y, relax.const(self.normal((classes,), 0.05))), "fc_bias")

    def normal(self, shape: tuple[int, ...], scale: float) -> npt.NDArray[np.float32]:
        return self.rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)

    def emit(self, expr: Any, name: str) -> Any:
        return self.bb.emit(expr, name_hint=name)
