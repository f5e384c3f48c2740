"""What is quantised lies in memory as bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from targets.machines import AVX512
from tvm import relax, tirx

import eqsat_layout
from eqsat_layout.graph.legalize import legalize
from eqsat_layout.notes import Notes
from eqsat_layout.targets.cpu import kernels
from eqsat_layout.targets.cpu.chains.widened_late import widened_late
from eqsat_layout.targets.cpu.kernels import join_calls

SHAPE = (1, 8, 12, 12)
QUANTISED = {"axis": 0, "out_dtype": "float32"}


def bytes_of(builder: Any, x: Any) -> Any:
    return builder.emit(relax.op.quantize(x, relax.const(0.05), relax.const(99, "uint8"), axis=0, out_dtype="uint8"))


def floats_of(builder: Any, x: Any) -> Any:
    return builder.emit(relax.op.dequantize(x, relax.const(0.05), relax.const(99, "uint8"), **QUANTISED))


def module(read: Callable[[Any, Any, Any], Any], *, again: bool = False) -> tvm.IRModule:
    """A product whose result is quantised, and what reads that. ``again``: the result is read as floats too."""
    builder = relax.BlockBuilder()
    x, w = (relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in (("x", SHAPE), ("w", (8, 8, 1, 1))))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            made = builder.emit(relax.op.nn.conv2d(x, w))
            wide = floats_of(builder, bytes_of(builder, made))
            result = builder.emit(read(builder, wide, x))
            if again:
                result = builder.emit(relax.op.add(result, builder.emit(relax.op.sum(wide))))
            result = builder.emit_output(result)
        builder.emit_func_output(result)
    return builder.get()


def written(mod: tvm.IRModule, l2_bytes: int = 1 << 10) -> list[str]:
    """The types of elements of what kernels write with the shape of the data."""
    joined = join_calls(legalize(mod), replace(AVX512, l2_working_set=l2_bytes), Notes())
    results = [func.params[-1].ty for func in joined.functions.values() if isinstance(func, tirx.PrimFunc)]
    return sorted(str(ty.dtype) for ty in results if tuple(map(int, ty.shape)) == SHAPE)


def pooled(builder: Any, wide: Any, x: Any) -> Any:
    return relax.op.nn.max_pool2d(wide, pool_size=3, strides=2)


def depthwise(builder: Any, wide: Any, x: Any) -> Any:
    return relax.op.nn.conv2d(wide, relax.const(np.ones((8, 1, 3, 3), "float32")), groups=8, strides=2)


def product(builder: Any, wide: Any, x: Any) -> Any:
    return relax.op.nn.conv2d(wide, relax.const(np.ones((16, 8, 3, 3), "float32")))


def residual(builder: Any, wide: Any, x: Any) -> Any:
    """The other operand is a quantised product too; the sum is part of one of both kernels."""
    other = builder.emit(relax.op.nn.conv2d(x, relax.const(np.eye(8, dtype="float32").reshape(8, 8, 1, 1) * 2)))
    return relax.op.nn.relu(builder.emit(relax.op.add(wide, floats_of(builder, bytes_of(builder, other)))))


@pytest.mark.parametrize(
    ("read", "types"),
    [
        (pooled, ["uint8"]),
        (depthwise, ["uint8"]),
        (residual, ["float32", "uint8"]),  # the result of all
        (product, ["float32"]),  # it reads each element 144 times
    ],
)
def test_bytes_lie_between_kernels(read: Any, types: list[str]) -> None:
    assert written(module(read)) == types


def test_windows_read_floats_that_stay_in_the_cache() -> None:
    assert written(module(depthwise), 1 << 20) == ["float32"]


def test_floats_that_two_calls_read_are_made_once() -> None:
    assert "float32" in written(module(pooled, again=True))


@pytest.mark.parametrize("read", [pooled, depthwise, product, residual])
def test_results_are_those_of_the_module(read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "widened_late", lambda mod, _: widened_late(mod, 0))
    mod, rng = module(read), np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype("float32") for shape in (SHAPE, (8, 8, 1, 1))]
    got, expected = (
        tvm.relax.VirtualMachine(built, tvm.cpu())["main"](*map(tvm.runtime.tensor, arrays)).numpy()
        for built in (eqsat_layout.compile(mod), tvm.compile(mod, target="llvm"))
    )
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-4 * float(np.abs(expected).max()))
