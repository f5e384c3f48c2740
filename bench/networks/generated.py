"""Generated networks of any size, as Relax modules.

In: how many ops, and whether the network is ``plain``: every weight a constant of its own, and nothing frozen, as
people have it. Else weights of one shape are one shared constant, so that size is a matter of ops and not of bytes, and
convolutions are frozen to a random mix of layouts.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op as R

LAYOUTS = (("NCHW4c", "OIHW4o4i"), ("NCHW16c", "OIHW16o16i"), ("NHWC", "OHWI"), None)


class _Net:
    """A function under construction; ``target`` ops are wanted."""

    def __init__(self, target: int, shape: tuple[int, ...], seed: int, plain: bool):
        self.target, self.ops, self.plain = target, 0, plain
        self.random = random.Random(seed)
        self.frozen: dict[str, list[str]] = {}
        self.input = relax.Var("x", relax.TensorType(shape, "float32"))
        self.builder = relax.BlockBuilder()
        self._constants: dict[tuple[int, ...], Any] = {}

    @property
    def done(self) -> bool:
        return self.ops >= self.target

    def emit(self, expr: Any, name: str = "lv") -> Any:
        self.ops += 1
        return self.builder.emit(expr, f"{name}_{self.ops}")

    def constant(self, *shape: int) -> Any:
        if self.plain or shape not in self._constants:
            scale = 1.0 / max(1, int(np.prod(shape[1:])))
            self._constants[shape] = relax.const(np.full(shape, scale, "float32"))
        return self._constants[shape]

    def conv(self, x: Any, channels: int, kernel: int = 1, stride: int = 1) -> Any:
        """conv2d with bias, frozen to one of :data:`LAYOUTS` or not at all."""
        size = shape(x)
        weight = self.constant(channels, size[1], kernel, kernel)
        layout = None if self.plain else self.random.choice(LAYOUTS)
        y = self.emit(R.nn.conv2d(x, weight, strides=stride, padding=kernel // 2), "conv")
        if layout is not None:
            self.frozen[f"conv_{self.ops}"] = list(layout)
        return self.emit(R.add(y, self.constant(1, channels, 1, 1)))

    def relu(self, x: Any) -> Any:
        return self.emit(R.nn.relu(x))


def shape(x: Any) -> tuple[int, ...]:
    """Static shape of a Relax variable."""
    return tuple(int(e) for e in x.ty.shape.values)


def residual(ops: int, seed: int = 0, *, plain: bool = False) -> Any:
    """Bottleneck blocks with residual joins; the resolution falls every eight blocks and starts over at 7x7."""

    def body(net: _Net, x: Any) -> Any:
        channels, block = 64, 0
        while not net.done:
            if block and block % 8 == 0:
                channels = channels * 2 if channels < 512 else 64
                if channels == 64:
                    x = net.emit(R.image.resize2d(x, (56, 56)))
                x = net.relu(net.conv(x, channels, 1, 1 if channels == 64 else 2))
            y = net.relu(net.conv(x, channels))
            y = net.relu(net.conv(y, channels, 3))
            x = net.relu(net.emit(R.add(net.conv(y, channels), x)))
            block += 1
        return x

    return _module(ops, (1, 64, 56, 56), seed, body, plain)


def dense(ops: int, seed: int = 0, *, plain: bool = False) -> Any:
    """Blocks of twelve layers, each concatenated to all before it."""

    def layer(net: _Net, x: Any) -> Any:
        channels = shape(x)[1]
        y = net.emit(R.multiply(x, net.constant(1, channels, 1, 1)))
        y = net.relu(net.emit(R.add(y, net.constant(1, channels, 1, 1))))
        y = net.conv(net.relu(net.conv(y, 128)), 32, 3)
        return net.emit(R.concat((x, y), axis=1))

    def body(net: _Net, x: Any) -> Any:
        while not net.done:
            for _ in range(12):
                if net.done:
                    break
                x = layer(net, x)
            x = net.relu(net.conv(x, 64))
        return x

    return _module(ops, (1, 64, 28, 28), seed, body, plain)


def transformer(ops: int, seed: int = 0, *, plain: bool = False) -> Any:
    """Encoder layers: heads split and joined by reshape and transpose, softmax, layer norm, gelu."""
    tokens, heads, width = 128, 8, 64
    model = heads * width

    def linear(net: _Net, x: Any, features: int) -> Any:
        y = net.emit(R.matmul(x, net.constant(shape(x)[-1], features)))
        return net.emit(R.add(y, net.constant(features)))

    def norm(net: _Net, x: Any) -> Any:
        return net.emit(R.nn.layer_norm(x, net.constant(model), net.constant(model), axes=[-1]))

    def split_heads(net: _Net, x: Any) -> Any:
        return net.emit(R.permute_dims(net.emit(R.reshape(x, (1, tokens, heads, width))), [0, 2, 1, 3]))

    def body(net: _Net, x: Any) -> Any:
        while not net.done:
            h = norm(net, x)
            q, k, v = (split_heads(net, linear(net, h, model)) for _ in range(3))
            scores = net.emit(R.matmul(q, net.emit(R.permute_dims(k, [0, 1, 3, 2]))))
            scores = net.emit(R.nn.softmax(net.emit(R.multiply(scores, relax.const(0.125, "float32")))))
            out = net.emit(R.permute_dims(net.emit(R.matmul(scores, v)), [0, 2, 1, 3]))
            x = net.emit(R.add(x, linear(net, net.emit(R.reshape(out, (1, tokens, model))), model)))
            y = net.emit(R.nn.gelu(linear(net, norm(net, x), 4 * model)))
            x = net.emit(R.add(x, linear(net, y, model)))
        return x

    return _module(ops, (1, tokens, model), seed, body, plain)


def _module(ops: int, shape: tuple[int, ...], seed: int, body: Callable[[_Net, Any], Any], plain: bool) -> Any:
    net = _Net(ops, shape, seed, plain)
    with net.builder.function("main", [net.input]):
        with net.builder.dataflow():
            output = net.builder.emit_output(body(net, net.input))
        net.builder.emit_func_output(output)
    mod = net.builder.finalize()
    if net.frozen:
        mod.update_func(mod.get_global_var("main"), mod["main"].with_attr("eqsat_layout.frozen", dict(net.frozen)))
    return mod


NETWORKS: dict[str, Callable[..., Any]] = {"residual": residual, "dense": dense, "transformer": transformer}
