"""Flips of reshapes, joined to one kernel: its indices count down, and are divided."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from programs import program
from targets.cuda.simulating import CUDA
from tvm import relax
from tvm.relax import op

import eqsat_layout
from eqsat_layout.soundness.cuda.driver import simulated


def flipped(builder: Any, x: Any) -> Any:
    return builder.emit(op.flip(builder.emit(op.reshape(x, (32,))), axis=0))


def flipped_twice(builder: Any, x: Any) -> Any:
    y = builder.emit(op.flip(builder.emit(op.reshape(x, (4, 8))), axis=1))
    z = builder.emit(op.flip(builder.emit(op.reshape(builder.emit(op.nn.relu(y)), (2, 16))), axis=0))
    return builder.emit(op.reshape(z, (16, 2)))


def backwards(builder: Any, x: Any) -> Any:
    y = builder.emit(op.reshape(x, (16, 2)))
    return builder.emit(op.reshape(builder.emit(op.strided_slice(y, [0], [15], [-17], [-1])), (4, 8)))


EXPECTED = {
    flipped: lambda x: x.reshape(32)[::-1],
    flipped_twice: lambda x: np.maximum(x.reshape(4, 8)[:, ::-1], 0).reshape(2, 16)[::-1].reshape(16, 2),
    backwards: lambda x: x.reshape(16, 2)[::-1].reshape(4, 8),
}


@pytest.mark.parametrize("target", ["llvm", "cuda"])
@pytest.mark.parametrize("body", EXPECTED)
def test_elements_come_from_where_they_are(body: Any, target: str) -> None:
    mod = program(body, (2, 8, 2))
    x = np.random.default_rng(0).standard_normal((2, 8, 2)).astype("float32")
    if target == "cuda":
        got = simulated(eqsat_layout.compile(mod, CUDA))(x)
    else:
        machine = relax.VirtualMachine(eqsat_layout.compile(mod, target), tvm.cpu())
        got = machine["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_array_equal(got, EXPECTED[body](x))
