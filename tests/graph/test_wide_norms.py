"""Norms of float64, of which TVM has none, by their definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from eqsat_layout.graph.legalize import legalize

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("shape", "channel", "axes", "groups"),
    [
        ((2, 6, 5, 4), 1, [2, 3], 3),
        ((2, 5, 6), -1, [1], 2),
        ((3, 4), 1, [], 2),
        ((2, 3, 4, 2, 5), 1, [2, 3, 4], None),
        ((2, 5, 4), 2, [-2], None),
    ],
)
def test_norms_of_groups_and_instances(shape: Any, channel: int, axes: list[int], groups: int | None) -> None:
    """ "only support float32 and float16 for now" """
    channels = shape[channel]
    x, scale, shift = RNG.standard_normal(shape), RNG.standard_normal(channels), RNG.standard_normal(channels)
    builder = relax.BlockBuilder()
    inputs = [
        relax.Var(name, relax.TensorType(one.shape, "float64"))
        for name, one in zip("xsb", (x, scale, shift), strict=True)
    ]
    with builder.function("main", inputs):
        if groups is None:
            norm = relax.op.nn.instance_norm(*inputs, channel_axis=channel, axes=axes, epsilon=0.1)
        else:
            norm = relax.op.nn.group_norm(*inputs, num_groups=groups, channel_axis=channel, axes=axes, epsilon=0.1)
        builder.emit_func_output(builder.emit(norm))
    vm = relax.VirtualMachine(tvm.compile(legalize(builder.get()), "llvm"), tvm.cpu())
    got = vm["main"](*map(tvm.runtime.tensor, (x, scale, shift))).numpy()
    last = np.moveaxis(x, channel, -1)
    own = last.reshape(*last.shape[:-1], groups or channels, -1)
    kept = [axis % len(shape) for axis in axes]
    over = (*(axis - (axis > channel % len(shape)) for axis in kept), own.ndim - 1)
    normal = (own - own.mean(over, keepdims=True)) / np.sqrt(own.var(over, keepdims=True) + 0.1)
    want = np.moveaxis(normal.reshape(last.shape) * scale + shift, -1, channel)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
