"""Kernels that call TVM's library sort what it sorts."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import eqsat_layout
from eqsat_layout.soundness.memory.kernels import memory_fault
from eqsat_layout.targets.registry import target

DTYPES = {"bfloat16": ml_dtypes.bfloat16, "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "uint8": "uint8", "bool": "bool"}


def module(shape, dtype, make):
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            output = builder.emit_output(builder.emit(make(x)))
        builder.emit_func_output(output)
    return builder.get()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_median_whose_kernel_calls_the_library(dtype: str) -> None:
    """TVM told its library that bfloat16 and floats of a byte are float32: it read beyond the operand, and the median
    was another element. Bytes and truth values it refused as the program ran."""
    mod = relax.transform.LegalizeOps()(module((2, 5), dtype, lambda x: op.median(x, axis=[1])))
    executable = eqsat_layout.compile(mod, target("llvm").at_any_address)
    x = np.array([[3, 1, 0, 2, 7], [9, 5, 4, 4, 1]]).astype(DTYPES[dtype])
    values, places = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x))
    expected = np.argsort(x, 1, kind="stable")[:, 2:3]
    np.testing.assert_array_equal(places.numpy(), expected[:, 0])
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, expected, 1)[:, 0])
    assert memory_fault(executable, [("main", [tvm.runtime.tensor(x)])]) == ""


def test_a_sort_of_so_many_bytes_as_there_are() -> None:
    """Where that is not known it is left to TVM's library, which refused bytes."""
    mod = module((tvm.tirx.Var("n", "int64"),), "uint8", op.sort)
    machine = relax.VirtualMachine(eqsat_layout.compile(mod), tvm.cpu())
    x = np.array([3, 200, 0, 2], "uint8")
    np.testing.assert_array_equal(machine["main"](tvm.runtime.tensor(x)).numpy(), np.sort(x))


@pytest.mark.parametrize("make", [op.sort, lambda x: op.argsort(x, dtype="int64")])
def test_floats_of_a_byte_are_sorted(make) -> None:
    """TVM told its library that they are float32: what it gave was memory beside the operand."""
    mod = module((7,), "float8_e5m2", make)
    x = np.array([3, -1, 0, 2, -7, 1, 6]).astype(ml_dtypes.float8_e5m2)
    found = relax.VirtualMachine(eqsat_layout.compile(mod), tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()
    order = np.argsort(x.astype("float32"))
    np.testing.assert_array_equal(found, order if found.dtype == "int64" else x[order])


@I.ir_module(s_tir=True)
class InPlace:
    @T.prim_func(s_tir=True)
    def kernel(x: T.Buffer((4,), "int8"), y: T.Buffer((4,), "int8")) -> None:
        for i in range(4):
            with T.sblock("copied"):
                at = T.axis.spatial(4, i)
                y[at] = x[at]
        with T.sblock("sorted"):
            T.reads(y[0:4])
            T.writes(y[0:4])
            T.call_packed("tvm.contrib.sort.sort", y, y, 0, True)

    @R.function
    def main(x: R.Tensor((4,), "int8")):
        with R.dataflow():
            y = R.call_tir(InPlace.kernel, (x,), out_ty=R.Tensor((4,), "int8"))
            R.output(y)
        return y


def test_a_tensor_is_sorted_in_its_place() -> None:
    """What was sorted was a copy."""
    machine = relax.VirtualMachine(eqsat_layout.compile(InPlace), tvm.cpu())
    found = machine["main"](tvm.runtime.tensor(np.array([3, -1, 0, 2], "int8"))).numpy()
    np.testing.assert_array_equal(found, [-1, 0, 2, 3])
