"""Kernels of several ops round values of narrow floats where the ops one by one do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import tvm
from programs import program
from targets.opencl.running import compiled as compiled_for_opencl
from targets.opencl.running import context
from tvm import relax
from tvm.relax import op

import eqsat_layout
from eqsat_layout.passes.rounding import NARROW
from eqsat_layout.soundness.cuda.driver import simulated

X = np.random.default_rng(0).standard_normal((7, 40)).astype("float32")
Run = Callable[[Any], npt.NDArray[Any]]


def on_cpu(mod: Any, inputs: tuple[Any, ...] = (X,), **options: Any) -> npt.NDArray[Any]:
    return ran(eqsat_layout.compile(mod, "llvm", **options), inputs)


def ran(executable: Any, inputs: tuple[Any, ...] = (X,)) -> npt.NDArray[Any]:
    machine = relax.VirtualMachine(executable, tvm.cpu())
    return np.asarray(machine["main"](*map(tvm.runtime.tensor, inputs)).numpy())


def on_opencl(mod: Any) -> npt.NDArray[Any]:
    return np.asarray(compiled_for_opencl(mod).on(context())(X))


def on_cuda(mod: Any) -> npt.NDArray[Any]:
    return np.asarray(simulated(eqsat_layout.compile(mod, {"kind": "cuda", "arch": "sm_80"}), 0)(X))


def there_and_back(dtype: str, times: int = 1) -> Any:
    def body(builder: Any, x: Any) -> Any:
        emit = builder.emit
        for _ in range(times):
            narrow = emit(op.astype(emit(op.multiply(x, x)), dtype))
            x = emit(op.subtract(emit(op.astype(narrow, "float32")), x))
        return x

    return program(body, X.shape)


@pytest.mark.parametrize("run", [on_cpu, on_opencl, on_cuda])
def test_a_cast_to_bfloat16_and_back_rounds(run: Run) -> None:
    """TVM's lowering dropped the pair in one kernel; OpenCL C has no such type."""
    expected = (X * X).astype(ml_dtypes.bfloat16).astype("float32") - X
    np.testing.assert_array_equal(run(there_and_back("bfloat16")), expected)


@pytest.mark.parametrize("dtype", NARROW)
def test_a_cast_and_back_rounds_as_tvm_does_it_op_by_op(dtype: str) -> None:
    mod = there_and_back(dtype, times=2)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(on_cpu(mod), ran(tvm.compile(mod, "llvm")))


BODIES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "elementwise": lambda emit, x, w: emit(op.multiply(emit(op.subtract(emit(op.multiply(x, x)), x)), x)),
    "one op of several steps": lambda emit, x, w: emit(op.add(emit(op.nn.gelu(x)), emit(op.nn.softmax(x)))),
    "a comparison": lambda emit, x, w: emit(op.greater(emit(op.multiply(x, x)), emit(op.add(x, x)))),
    "in front of a largest": lambda emit, x, w: emit(op.max(emit(op.multiply(emit(op.add(x, x)), x)), axis=[1])),
    "moved in between": lambda emit, x, w: emit(op.add(emit(op.permute_dims(emit(op.multiply(x, x)))), w)),
}


@pytest.mark.parametrize("name", BODIES)
def test_kernels_of_several_ops_give_the_bits_of_single_ops(name: str) -> None:
    mod = program(lambda builder, x, w: BODIES[name](builder.emit, x, w), (8, 64), (64, 8), dtype="bfloat16")
    drawn = np.random.default_rng(0)
    inputs = tuple(drawn.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((8, 64), (64, 8)))
    np.testing.assert_array_equal(on_cpu(mod, inputs), ran(tvm.compile(mod, "llvm"), inputs))


AFTER: dict[str, tuple[Any, Any]] = {
    "elementwise": (op.add, np.add),
    "another product": (op.matmul, np.matmul),
}


@pytest.mark.parametrize("name", AFTER)
def test_sums_are_rounded_before_the_next_op_reads_them(name: str) -> None:
    """They are whole numbers that float32 holds and bfloat16 does not."""
    make, numpy = AFTER[name]
    mod = program(lambda b, x: b.emit((lambda y: make(y, y))(b.emit(op.matmul(x, x)))), (64, 64), dtype="bfloat16")
    x = np.random.default_rng(0).integers(0, 8, (64, 64)).astype("float32")
    sums = (x @ x).astype(ml_dtypes.bfloat16).astype("float32")
    assert not np.array_equal(sums, x @ x)
    expected = numpy(sums, sums).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(on_cpu(mod, (x.astype(ml_dtypes.bfloat16),)), expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_cast_there_and_back_rounds_what_is_stored_as_float32(dtype: str) -> None:
    """float32 -> float16 -> float32 gave the operand: its result was taken for one that rounds by itself."""
    x = np.array([-2.3994496, 1.0009, 3.14159, 0.1], "float32")
    builder, given = relax.BlockBuilder(), relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [given]):
        with builder.dataflow():
            clipped = builder.emit(relax.op.clip(given, -8, 8))
            back = relax.op.astype(builder.emit(relax.op.astype(clipped, dtype)), "float32")
            result = builder.emit_output(back)
        builder.emit_func_output(result)
    machine = relax.VirtualMachine(eqsat_layout.compile(builder.finalize(), approx=False), tvm.cpu())
    got = machine["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_array_equal(got, x.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype).astype("float32"))
