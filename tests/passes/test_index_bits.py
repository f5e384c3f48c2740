"""Kernels that name integers, with indices in 32 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.script import tirx as T

import eqsat_layout
from eqsat_layout.passes.index_bits import indices_in_bits
from eqsat_layout.tir.structural import nodes_of


def test_a_logarithm_within_whole_numbers_is_built_as_scheduled() -> None:
    """T5's relative positions: "Detected bound for v conflicts with memorization", and the kernel was left
    unscheduled, which is an error in tests."""
    n = tirx.Var("n", "int64")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([n, n], "int64"))
    with builder.function("main", [x]):
        with builder.dataflow():
            logs = builder.emit(relax.op.log(builder.emit(relax.op.astype(x, "float32"))))
            far = builder.emit(relax.op.astype(builder.emit(relax.op.multiply(logs, relax.const(3.0))), "int64"))
            most = builder.emit(relax.op.minimum(far, relax.const(15, "int64")))
            near = builder.emit(relax.op.less(x, relax.const(8, "int64")))
            made = builder.emit_output(relax.op.where(near, x, most))
        builder.emit_func_output(made)
    data = np.arange(1, 101).reshape(10, 10)
    session = eqsat_layout.Session(builder.get())
    (result,) = session.run(None, {"x": data})
    wanted = np.where(data < 8, data, np.minimum((np.log(data.astype("float32")) * 3).astype("int64"), 15))
    np.testing.assert_array_equal(result, wanted)


@T.prim_func
def without_sign(a: T.Buffer((T.int64(25),), "int32"), b: T.Buffer((T.int64(25),), "int64")):
    T.func_attr({"target": T.target("cuda")})
    item = T.launch_thread("threadIdx.x", T.int64(32))
    if item < T.int64(25):
        b[item] = T.Cast("int64", T.Cast("uint32", a[item]))


def test_an_integer_that_loses_its_sign_is_not_made_narrow() -> None:
    """For TVM -1 as uint32 is no more than the largest int32: it was -1 again on CUDA and OpenCL."""
    (value,) = (s.value for s in nodes_of(narrowed(without_sign), tirx.BufferStore))
    assert str(value).startswith('T.Cast("int64", T.Cast("uint32"')


def narrowed(func: Any) -> Any:
    return indices_in_bits(32)(tvm.IRModule({"main": func}))["main"].body
