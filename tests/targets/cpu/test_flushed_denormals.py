"""Kernels give 0 for what is too small for a normal number, and leave their thread as it was."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import eqsat_layout

pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the bit is of x86")

TINY = np.float32(1e-20)
COUNT = 1 << 18


@I.ir_module
class Squares:
    @R.function
    def main(x: R.Tensor((COUNT,), "float32")):
        with R.dataflow():
            result = R.multiply(x, x)
            R.output(result)
        return result


def squares(x: np.ndarray, **options: object) -> np.ndarray:
    session = eqsat_layout.Session(Squares, target={"kind": "llvm", "num-cores": 2}, **options)
    return session.run(None, {"x": x})[0]


def calling(kernel: Any, size: int) -> Any:
    """A module that calls it with one vector, and gives its vector back."""
    builder = relax.BlockBuilder()
    callee = builder.add_func(kernel, "kernel")
    x = relax.Var("x", relax.TensorType((size,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.call_tir(callee, relax.Tuple([x]), x.ty))
        builder.emit_func_output(result)
    return builder.get()


def test_denormal_results_are_zero_in_every_thread() -> None:
    """Networks whose values fade took 14 times as long as OpenVINO: MobileViTV2 with random weights."""
    assert not squares(np.full(COUNT, TINY)).any()
    assert TINY * TINY > 0  # the thread's own arithmetic is as before


def test_exact_results_may_be_denormal() -> None:
    assert (squares(np.full(COUNT, TINY), approx=False) == TINY * TINY).all()


def test_operands_are_read_as_they_are() -> None:
    @I.ir_module
    class Scaled:
        @R.function
        def main(x: R.Tensor((64,), "float32")):
            with R.dataflow():
                result = R.multiply(x, R.const(1e30, "float32"))
                R.output(result)
            return result

    x = np.full(64, 1e-40, "float32")
    assert (eqsat_layout.Session(Scaled).run(None, {"x": x})[0] == x * np.float32(1e30)).all()


def test_a_kernel_that_fails_leaves_its_thread_as_it_was() -> None:
    """What a kernel calls had its results flushed, and all that the thread computed after an error had."""
    seen = []

    @tvm_ffi.register_global_func("tests.flushed_denormals.fails", override=True)
    def fails() -> None:
        seen.append(TINY * TINY)
        raise ValueError("on purpose")

    @T.prim_func(private=True, s_tir=True)
    def squares_and_fails(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")) -> None:
        for i in range(8):
            with T.sblock("y"):
                at = T.axis.spatial(8, i)
                y[at] = x[at] * x[at]
                T.evaluate(T.call_packed("tests.flushed_denormals.fails"))

    session = eqsat_layout.Session(calling(squares_and_fails, 8))
    with pytest.raises(ValueError, match="on purpose"):
        session.run(None, {"x": np.full(8, TINY)})
    assert seen[0] > 0
    assert TINY * TINY > 0


@T.prim_func(private=True, s_tir=True)
def asks_for_too_much(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")) -> None:
    kept = T.sblock_alloc_buffer((1 << 45,), "float32")
    for i in range(64):
        with T.sblock("kept"):
            at = T.axis.spatial(64, i)
            kept[at * 549755813888] = x[at] * x[at]
    for i in range(64):
        with T.sblock("y"):
            at = T.axis.spatial(64, i)
            y[at] = kept[at * 549755813888] * x[at]


@T.prim_func(private=True, s_tir=True)
def asks_for_too_much_in_pieces(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")) -> None:
    T.func_attr({"tirx.is_scheduled": True})
    for i in T.parallel(64):
        with T.sblock("piece"):
            piece = T.axis.spatial(64, i)
            kept = T.sblock_alloc_buffer((1 << 45,), "float32")
            for j in range(8):
                with T.sblock("kept"):
                    at = T.axis.spatial(8, j)
                    kept[at * 4398046511104] = x[piece] * x[at]
            for j in range(8):
                with T.sblock("y"):
                    at = T.axis.spatial(8, j)
                    y[piece] = kept[at * 4398046511104] * x[piece]


@pytest.mark.parametrize("kernel", [asks_for_too_much, asks_for_too_much_in_pieces])
def test_a_kernel_without_memory_is_an_error_and_leaves_its_thread_as_it_was(kernel: Any) -> None:
    """Results of the thread were flushed ever after; in pieces of a loop, the process died."""
    session = eqsat_layout.Session(calling(kernel, 64), target={"kind": "llvm", "num-cores": 2})
    for _ in range(2):
        with pytest.raises(MemoryError, match="out of memory: a "):
            session.run(None, {"x": np.full(64, TINY)})
        assert TINY * TINY > 0
    assert not squares(np.full(COUNT, TINY)).any()  # the pool still runs
