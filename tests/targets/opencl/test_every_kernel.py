"""Every kind of kernel with images of odd sizes on PoCL, in single precision and with halves in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pytest
from compare import inputs_for, machine
from effort import some
from programs import constant, program
from targets.device_cases import attention, conv, nn
from targets.opencl.running import check, compiled, images, launches, results
from tvm import relax
from tvm.relax import op

from eqsat_layout.targets.opencl.policies import ALL_IMAGES
from eqsat_layout.targets.opencl.target import OpenClTarget
from eqsat_layout.targets.registry import target
from eqsat_layout.validation.inputs import arrays_in

POCL: Final = {"kind": "opencl", "profile": "pocl"}
"""It has no arithmetic in half precision."""

IMAGE: Final = (1, 12, 9, 7)

Body = Callable[..., Any]


def between(make: Callable[[Any, Any], Any]) -> Body:
    """A kernel that reads and writes what convolutions write and read."""

    def body(builder: Any, x: Any) -> Any:
        y = make(builder, conv(builder, x, channels=12))
        return conv(builder, y, 1, channels=8, size=1)

    return body


def emitted(make: Callable[[Any], Any]) -> Body:
    return between(lambda builder, y: builder.emit(make(y)))


def resize(method: str) -> Body:
    return emitted(lambda y: op.image.resize2d(y, (13, 11), layout="NCHW", method=method))


def split(builder: Any, y: Any) -> Any:
    parts = builder.emit(op.split(y, [4], axis=1))
    first, second = (builder.emit(relax.TupleGetItem(parts, i)) for i in range(2))
    return builder.emit(op.concat([conv(builder, second, 2, channels=8, size=1), first], axis=1))


def turned(builder: Any, y: Any) -> Any:
    """To rows of channels and back."""
    there = builder.emit(op.permute_dims(y, [0, 2, 3, 1]))
    return builder.emit(op.permute_dims(builder.emit(nn.softmax(there)), [0, 3, 1, 2]))


def instance_norm(y: Any) -> Any:
    return nn.instance_norm(y, constant(12), constant(12, seed=1), channel_axis=1, axes=[2, 3])


def rows(make: Callable[[Any], Any]) -> Body:
    """Between products of matrices."""

    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(make(builder.emit(op.matmul(x, constant(20, 36)))))
        return builder.emit(op.matmul(y, constant(36, 12, seed=1)))

    return body


KERNELS: Final[Mapping[str, tuple[Body, Sequence[tuple[int, ...]]]]] = {
    "conv_1x1": (between(lambda b, y: conv(b, y, 2, channels=20, size=1)), [IMAGE]),
    "conv_3x3": (between(lambda b, y: conv(b, y, 2, channels=20)), [IMAGE]),
    "conv_strided": (between(lambda b, y: conv(b, y, 2, channels=8, strides=2)), [IMAGE]),
    "conv_dilated": (between(lambda b, y: conv(b, y, 2, channels=8, dilation=2)), [IMAGE]),
    "conv_of_a_batch": (between(lambda b, y: conv(b, y, 2, channels=8)), [(3, 12, 9, 7)]),
    "first_layer": (lambda b, x: conv(b, conv(b, x, channels=8, size=7, strides=2), 1, channels=8), [(1, 3, 19, 17)]),
    "depthwise": (between(lambda b, y: conv(b, y, 2, channels=12, groups=12)), [IMAGE]),
    "grouped": (between(lambda b, y: conv(b, y, 2, channels=24, groups=3)), [IMAGE]),
    "transposed": (emitted(lambda y: nn.conv2d_transpose(y, constant(12, 8, 3, 3), strides=2, padding=1)), [IMAGE]),
    "winograd": (lambda b, x: conv(b, conv(b, x, channels=64), 1, channels=64), [(1, 64, 23, 21)]),
    "max_pool": (emitted(lambda y: nn.max_pool2d(y, [3, 3], strides=[2, 2], padding=[1, 1])), [IMAGE]),
    "avg_pool": (emitted(lambda y: nn.avg_pool2d(y, [2, 2], strides=[1, 1])), [IMAGE]),
    "adaptive_pool": (emitted(lambda y: nn.adaptive_avg_pool2d(y, (3, 2))), [IMAGE]),
    "elementwise": (emitted(lambda y: op.multiply(y, op.sigmoid(y))), [IMAGE]),
    "broadcast": (emitted(lambda y: op.add(y, constant(1, 12, 1, 1))), [IMAGE]),
    "resize_nearest": (resize("nearest_neighbor"), [IMAGE]),
    "resize_linear": (resize("linear"), [IMAGE]),
    "resize_cubic": (resize("cubic"), [IMAGE]),
    "softmax_of_channels": (emitted(lambda y: nn.softmax(y, axis=1)), [IMAGE]),
    "softmax_of_columns": (emitted(lambda y: nn.softmax(y, axis=3)), [IMAGE]),
    "instance_norm": (emitted(instance_norm), [IMAGE]),
    "mean_of_pixels": (emitted(lambda y: op.multiply(y, op.mean(y, axis=[2, 3], keepdims=True))), [IMAGE]),
    "sum_of_channels": (emitted(lambda y: op.add(y, op.sum(y, axis=1, keepdims=True))), [IMAGE]),
    "max_of_rows": (emitted(lambda y: op.max(y, axis=2, keepdims=True)), [IMAGE]),
    "concat": (emitted(lambda y: op.concat([y, op.nn.relu(y)], axis=1)), [IMAGE]),
    "concat_across_texels": (emitted(lambda y: op.concat([op.strided_slice(y, [1], [0], [6]), y], axis=1)), [IMAGE]),
    "concat_of_rows": (emitted(lambda y: op.concat([y, y], axis=2)), [IMAGE]),
    "split": (between(split), [IMAGE]),
    "turned": (between(turned), [IMAGE]),
    "matmul": (rows(nn.gelu), [(3, 5, 20)]),
    "matmul_of_one_row": (rows(nn.relu), [(1, 20)]),
    "layer_norm": (rows(lambda y: nn.layer_norm(y, constant(36), constant(36, seed=1), axes=[-1])), [(3, 5, 20)]),
    "rms_norm": (rows(lambda y: nn.rms_norm(y, constant(36), axes=[-1])), [(3, 5, 20)]),
    "softmax_of_rows": (rows(nn.softmax), [(3, 5, 20)]),
    "attention": (attention, [(1, 3, 13, 8)] * 3),
}


def in_images(profile: dict[str, str]) -> Any:
    own = target(profile)
    assert isinstance(own, OpenClTarget)
    return ALL_IMAGES.costs(own)


@dataclass(frozen=True)
class _NoWindows:
    """Costs under which convolutions as they are written cost too much: Winograd's algorithm is left."""

    costs: Any

    def run(self, op: Any, operands: Any, results: Any, *, fused: Any = frozenset()) -> float:
        seconds = float(self.costs.run(op, operands, results, fused=fused))
        return seconds + 100.0 if op.name == "relax.nn.conv2d" else seconds

    def convert(self, tensor: Any, source: Any, target: Any, *, fused: bool = False) -> float:
        return float(self.costs.convert(tensor, source, target, fused=fused))

    def constant(self, tensor: Any, fmt: Any) -> float:
        return float(self.costs.constant(tensor, fmt))


def costs_for(name: str) -> Any:
    return _NoWindows(in_images(POCL)) if name == "winograd" else in_images(POCL)


@pytest.mark.parametrize("name", KERNELS)
def test_in_single_precision(name: str) -> None:
    """In images the planner takes no Winograd by itself: the case of that name ran a convolution as it is written."""
    body, shapes = KERNELS[name]
    found = check(program(body, *shapes), POCL, cost_model=costs_for(name))
    assert images(found) or name in ("matmul_of_one_row",)
    assert name != "winograd" or any("winograd" in one for one in launches(found))


@pytest.mark.parametrize("name", some(KERNELS))
def test_with_halves_in_memory(name: str) -> None:
    body, shapes = KERNELS[name]
    mod = program(body, *shapes)
    found = compiled(mod, POCL, cost_model=in_images(POCL), precision="float16")
    assert "cl_khr_fp16" not in found.source
    assert any(memory.dtype == "float16" for memory in found.plan.memories)
    inputs = inputs_for(mod["main"], 1)
    expected = list(arrays_in(machine(mod)["main"](*inputs)))
    for a, b in zip(expected, results(found, [one.numpy() for one in inputs]), strict=True):
        np.testing.assert_allclose(b, a, atol=2e-2 * np.abs(a).max())
