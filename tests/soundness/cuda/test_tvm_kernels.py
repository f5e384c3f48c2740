"""Kernels as TVM's own pipeline writes them: reductions through shuffles and shared memory, in several orders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from programs import program
from tvm.relax import op

from eqsat_layout.soundness.cuda import KernelFault, Simulator

TARGET = {"kind": "cuda", "arch": "sm_80"}


def source_of(body: Any, *shapes: Any, dtype: str = "float32") -> str:
    target = tvm.target.Target(TARGET)
    with target:
        built = tvm.compile(program(body, *shapes, dtype=dtype), target=target)
    waiting = [built.mod]
    while waiting:
        module = waiting.pop()
        if module.kind == "cuda":
            return str(module.inspect_source())
        waiting += list(module.imports)
    raise AssertionError("TVM made no kernel")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_softmax(dtype: str) -> None:
    simulator = Simulator(source_of(lambda b, x: b.emit(op.nn.softmax(x)), (4, 300), dtype=dtype))
    ((name, kernel),) = simulator.kernels.items()
    x = np.random.default_rng(0).standard_normal((4, 300)).astype(dtype)
    exact = np.exp(x.astype(float)) / np.exp(x.astype(float)).sum(1, keepdims=True)
    for order in range(3):
        out = np.full_like(x, np.nan)
        simulator.launch(name, [out, x], (4,), (kernel.most_threads,), order=order)
        np.testing.assert_allclose(out, exact, rtol=1e-5 if dtype == "float32" else 2e-2)


def test_argmax_and_a_barrier_too_few() -> None:
    text = source_of(lambda b, x: b.emit(op.argmax(x, axis=1)), (3, 640))
    x = np.random.default_rng(0).standard_normal((3, 640)).astype("float32")
    out = np.zeros(3, "int64")
    simulator = Simulator(text)
    ((name, kernel),) = simulator.kernels.items()
    for order in range(3):
        simulator.launch(name, [x, out], (3,), (kernel.most_threads,), order=order)
        assert (out == x.argmax(1)).all()
    first = text.index("__syncthreads();")
    faulty = Simulator(text[:first] + text[first:].replace("__syncthreads();", "", 1))
    with pytest.raises(KernelFault):
        faulty.launch(name, [x, out], (3,), (kernel.most_threads,))
