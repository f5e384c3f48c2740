"""Convolutions of which no size is known, and rows of several times a size."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from compare import stock_results
from targets.machines import AVX512
from tvm import relax, s_tir

import eqsat_layout
from eqsat_layout.targets.cpu.schedule import schedule_module
from eqsat_layout.tir.structural import nodes_of


def convolution() -> tvm.IRModule:
    builder = relax.BlockBuilder()
    sizes = [[tvm.tirx.Var(name, "int64") for name in names] for names in ("nchw", "okij")]
    sizes[1][1] = sizes[0][1]
    params = [relax.Var(name, relax.TensorType(own, "float32")) for name, own in zip("xw", sizes, strict=True)]
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(relax.op.nn.conv2d(*params, strides=2, padding=1)))
    return builder.get()


def kernel_of_convolution() -> tvm.tirx.PrimFunc:
    kernels = schedule_module(relax.transform.LegalizeOps()(convolution()), AVX512)
    (kernel,) = (one for one in kernels.functions.values() if isinstance(one, tvm.tirx.PrimFunc))
    return kernel


def test_their_code_is_short() -> None:
    """They took LLVM 13 to 200 s: 16 rows of 8 steps in three sizes were written out, and each part padded all data."""
    kernel = kernel_of_convolution()
    assert kernel.attrs.get("tirx.is_scheduled")
    assert len(kernel.script()) < 14_000  # of 34 000


def test_eight_rows_at_a_time_share_their_weights() -> None:
    """One element after another was made, as slowly as by stock TVM: the data that are padded once were a stage that
    no row had for itself."""
    kernel = kernel_of_convolution()
    allocated = [buffer for block in nodes_of(kernel.body, s_tir.SBlock) for buffer in block.alloc_buffers]
    sizes = [tuple(map(int, buffer.ty.shape)) for buffer in allocated if buffer.scope() == "local"]
    assert (1, 1, 8, 16) in sizes
    assert sum("pad" in buffer.name for buffer in allocated) == 1


@pytest.mark.parametrize(
    "shapes",
    [((2, 3, 9, 20), (5, 3, 3, 1)), ((1, 4, 40, 7), (3, 4, 1, 2)), ((1, 2, 41, 70), (9, 2, 5, 3))],
)
def test_their_results_are_right(shapes: tuple[tuple[int, ...], ...]) -> None:
    given = [np.random.default_rng(0).integers(-3, 4, shape).astype("float32") for shape in shapes]
    machine = relax.VirtualMachine(eqsat_layout.compile(convolution()), tvm.cpu())
    got = machine["main"](*map(tvm.runtime.tensor, given)).numpy()
    np.testing.assert_array_equal(got, stock_results(convolution(), *given)[0])


def test_rows_of_several_times_a_size() -> None:
    """What is done of fewer elements than a vector has was done where 48 * n is less, which is 0 then: "Find divide by
    zero", and the kernel was built without a schedule (here an error)."""
    builder, n = relax.BlockBuilder(), tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 6, 8, 1), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            row = builder.emit(relax.op.permute_dims(builder.emit(relax.op.reshape(x, (n * 48,)))))
            output = builder.emit_output(relax.op.subtract(x, row))
        builder.emit_func_output(output)
    machine = relax.VirtualMachine(eqsat_layout.compile(builder.get()), tvm.cpu())
    given = np.arange(96, dtype="float32").reshape(2, 6, 8, 1)
    np.testing.assert_array_equal(machine["main"](tvm.runtime.tensor(given)).numpy(), given - given.reshape(96))
    assert machine["main"](tvm.runtime.tensor(given[:0])).numpy().shape == (0, 6, 8, 0)


def test_products_over_several_unknown_axes_are_done_in_many_rows() -> None:
    """They were taken for convolutions: row after row, in 60 times the time."""
    builder = relax.BlockBuilder()
    sizes = [[tvm.tirx.Var(name, "int64") for name in names] for names in ("nhd", "hdo")]
    sizes[1][:2] = sizes[0][1:]
    params = [relax.Var(name, relax.TensorType(own, "float32")) for name, own in zip("xw", sizes, strict=True)]
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(relax.op.einsum(tuple(params), "nhd,hdo->no")))
    kernels = schedule_module(relax.transform.LegalizeOps()(builder.get()), AVX512)
    (kernel,) = (one for one in kernels.functions.values() if isinstance(one, tvm.tirx.PrimFunc))
    assert "n // T.int64(64)" in kernel.script()
