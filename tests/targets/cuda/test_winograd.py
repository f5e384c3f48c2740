"""Winograd's algorithm in float32: taken where the model says that it pays, and right on the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
from programs import program
from targets.cuda.simulating import CUDA, check
from tvm import relax
from tvm.relax import op

import eqsat_layout
from eqsat_layout.targets.cuda.costs import CudaRoofline
from eqsat_layout.targets.registry import target as target_of


def layer(channels: int) -> Any:
    def body(builder: Any, x: Any) -> Any:
        weight = np.random.default_rng(0).standard_normal((channels, channels, 3, 3)).astype("float32")
        windows = builder.emit(op.nn.conv2d(x, relax.const(weight * np.float32(0.1)), padding=1))
        return builder.emit(op.nn.relu(windows))

    return body


def test_it_is_taken_for_wide_layers() -> None:
    def takes_it(size: int, channels: int) -> bool:
        mod = program(layer(channels), (1, channels, size, size))
        return "winograd" in str(eqsat_layout.plan(mod, CUDA).module)

    assert takes_it(32, 384)
    assert not takes_it(56, 64)


class NoWindows(CudaRoofline):
    """Convolutions as they are written cost too much."""

    def run(self, op: Any, operands: Any, results: Any, *, fused: Any = frozenset()) -> float:
        seconds = super().run(op, operands, results, fused=fused)
        return seconds + 1.0 if op.name == "relax.nn.conv2d" else seconds


def test_its_kernels_give_what_the_convolution_gives() -> None:
    mod = program(layer(16), (1, 16, 11, 10))
    costs = NoWindows(target_of(CUDA).machine)
    assert "winograd" in str(eqsat_layout.plan(mod, CUDA, cost_model=costs).module)
    made = check(mod, cost_model=costs, orders=(0, 1, 2))
    assert any("mma.sync" in source for source in made.sources.values())
