"""Results of ops of which TVM says another kind of dtype than its kernels give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax import op as R

import eqsat_layout
from eqsat_layout.passes.kernel_types import say_kernel_types

HALVES = np.array([1.5, -2.25, 0.6, 3.3], "float16")
INTEGERS = np.array([[1, -2, 3], [4, 5, -6], [7, 80, 9000], [1, 1, 2]], "int32")
FLAGS = INTEGERS > 2


def of(body: Callable[..., Any], *arrays: np.ndarray) -> Any:
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(a.shape, str(a.dtype))) for i, a in enumerate(arrays)]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(body(builder, *params))
        builder.emit_func_output(result)
    return builder.finalize()


def outer(builder: Any, x: Any, y: Any) -> Any:
    """Found by the program fuzzer: an infinity of float16 became the least integer."""
    product = builder.emit(R.outer(builder.emit(R.cumsum(x, axis=0)), y))
    return R.stack([product, product], axis=2)


CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "outer": (outer, (np.array([1, 2, 3, 2147483000], "int32"), HALVES)),
    "deviation": (lambda _, x: R.std(x, axis=[0]), (INTEGERS,)),
    "sum of flags and floats": (lambda b, x, y: R.permute_dims(b.emit(R.add(x, y))), (FLAGS, INTEGERS / np.float32(7))),
    "flags times integers": (lambda b, x, y: R.negative(b.emit(R.multiply(x, y))), (FLAGS, INTEGERS)),
}


@pytest.mark.parametrize("case", CASES)
def test_results_have_the_dtype_of_the_kernel_and_all_its_numbers(case: str) -> None:
    body, arrays = CASES[case]
    mod = of(body, *arrays)
    expected = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())["main"](*map(tvm.runtime.tensor, arrays))
    executable = eqsat_layout.compile(mod, approx=False)
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](*map(tvm.runtime.tensor, arrays))
    assert str(found.dtype) == str(expected.dtype)
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_a_session_says_the_dtype_that_it_gives() -> None:
    body, arrays = CASES["outer"]
    session = eqsat_layout.Session(of(body, *arrays))
    (found,) = session.run(None, {"x0": arrays[0], "x1": arrays[1]})
    assert session.outputs[0].dtype == str(found.dtype) == "float16"


def test_types_that_are_right_or_only_rounded_stay() -> None:
    mod = of(lambda _, x: R.mean(x, axis=[0]), INTEGERS)
    assert say_kernel_types(mod) is mod


def test_where_a_function_insists_on_the_type_it_stays() -> None:
    builder = relax.BlockBuilder()
    y = relax.Var("y", relax.TensorType((3,), "int32"))
    with builder.function("helper", [y], private=True):
        builder.emit_func_output(builder.emit(R.negative(y)))
    helper = builder.get().get_global_var("helper")
    x = relax.Var("x", relax.TensorType((4, 3), "int32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.Call(helper, [builder.emit(R.std(x, axis=[0]))])))
    mod = builder.finalize()
    assert tvm_ffi.structural_equal(say_kernel_types(mod), mod)
