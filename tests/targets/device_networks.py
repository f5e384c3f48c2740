"""Random small networks, and inputs as arrays: what targets with devices are fuzzed with.

In: a seed, or an input. Out: a module, or arrays.
"""

from __future__ import annotations

from random import Random
from typing import Any

from programs import program
from targets.device_cases import conv, nn
from tvm.relax import op


def network(seed: int) -> Any:
    """Convolutions of all kinds, and what stands between them, over tensors that are read several times."""
    random = Random(seed)

    def body(builder: Any, x: Any, y: Any) -> Any:
        values = [x, y, conv(builder, x, seed, 8)]
        for step in range(random.randint(3, 7)):
            last = values[-1] if random.random() < 0.8 else random.choice(values)
            values.append(emitted(builder, random, last, values, seed * 10 + step))
        return values[-1] if random.random() < 0.7 else (values[-2], values[-1])

    return program(body, *[(random.choice((1, 2)), random.choice((4, 8, 12)), 9, 7)] * 2)


def emitted(builder: Any, random: Random, x: Any, values: list[Any], seed: int) -> Any:
    shape = [int(extent) for extent in x.ty.shape.values]
    channels, alike = shape[1], [v for v in values if list(v.ty.shape.values) == list(x.ty.shape.values)]
    kind = random.choice(("conv", "conv", "conv", "depthwise", "relu", "add", "concat", "pool", "mean", "slice"))
    if kind == "conv":
        size, stride = random.choice((1, 3)), random.choice((1, 1, 2))
        return conv(builder, x, seed, random.choice((4, 6, 8, 16)), size, strides=stride)
    if kind == "depthwise":
        return conv(builder, x, seed, channels, 3, groups=channels)
    if kind == "add":
        return builder.emit(op.add(x, random.choice(alike)))
    if kind == "concat":
        return builder.emit(op.concat([x, random.choice(alike)], axis=1))
    if kind == "pool":
        return builder.emit(nn.max_pool2d(x, [3, 3], padding=[1, 1]))
    if kind == "mean":
        return builder.emit(op.multiply(x, builder.emit(op.mean(x, axis=[2, 3], keepdims=True))))
    if kind == "slice" and channels > 4:
        return builder.emit(op.strided_slice(x, [1], [random.choice((2, 4))], [channels]))
    return builder.emit(nn.relu(x))


def plain(value: Any) -> Any:
    return value.numpy() if hasattr(value, "numpy") else [plain(field) for field in value]
