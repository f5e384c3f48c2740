"""What is read of tensor expressions is what is read of their PrimFuncs."""

from __future__ import annotations

import random

import pytest
import tvm
from tvm import ir, relax, te, topi

from eqsat_layout.errors import EqsatError
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.graph.legalize import func_as_read, func_of, kernel_of
from eqsat_layout.graph.te_kernels import TeKernel
from eqsat_layout.soundness.rules.schema import all_ops, draw_calls
from eqsat_layout.tir.signature import analyse
from eqsat_layout.tir.tensor_expressions import analyse_tensors

R = relax.op


def tensor(*shape: int, dtype: str = "float32", name: str = "x") -> te.Tensor:
    return te.placeholder(shape, dtype, name)


def read_of_primfunc(*tensors: te.Tensor):
    return analyse(te.create_prim_func(list(tensors), "int64"))


def kernels(seed: int, per_op: int):
    """Of ops as Relax has them, with drawn attributes, shapes and types."""
    rng = random.Random(seed)
    for name in all_ops():
        rank, dtype = rng.choice([1, 2, 3, 4, 4]), rng.choice(["float32", "float32", "float16", "int32", "bool"])
        first = TensorType(tuple(rng.choice([1, 2, 3, 4, 6]) for _ in range(rank)), dtype)
        for drawn in draw_calls(name, first, 1, rng, per_op):
            operands = [
                relax.Var(f"x{i}", relax.TensorType(list(map(int, ty.shape)), ty.dtype))
                for i, ty in enumerate(drawn.operands)
            ]
            call = relax.BlockBuilder().normalize(drawn.build(*operands))
            kernel = kernel_of(call) if isinstance(call, ir.Call) and isinstance(call.op, ir.Op) else None
            if kernel is not None:
                yield name, kernel


def test_ops_are_read_as_their_primfuncs_are() -> None:
    read: set[str] = set()
    for name, kernel in kernels(seed=7, per_op=2):
        if kernel.computation is not None:
            assert analyse(func_of(kernel)) == kernel.computation, name
            read.add(name)
    assert len(read) > 60


@pytest.mark.parametrize(
    "make",
    [
        lambda x, w: topi.nn.conv2d_nchw(x, w, 1, 1, 1),
        lambda x, w: topi.nn.conv2d_nchw(x, w, 2, [1, 0, 2, 1], 1),
        lambda x, w: topi.nn.relu(topi.add(x, x)),
        lambda x, w: topi.add(
            topi.nn.pad(x, (0, 0, 1, 1), name="twice"), topi.nn.pad(x, (0, 0, 0, 0), (0, 0, 2, 2), name="twice")
        ),
        lambda x, w: te.compute((2, 3), lambda i, j: x[i, j, 0, 0] * 1.0 + 0.0, "simplified"),
        lambda x, w: topi.nn.pool2d(x, (2, 2), (2, 2), (1, 1), (1, 1, 1, 1), "max"),
    ],
)
def test_stages_are_read_as_blocks(make) -> None:
    x, w = tensor(2, 3, 6, 6), tensor(4, 3, 3, 3, name="w")
    made = make(x, w)
    given = (
        (x, w)
        if "w" in {one.op.name for stage in (made, *made.op.input_tensors) for one in stage.op.input_tensors}
        else (x,)
    )
    found = analyse_tensors([*given, made])
    assert found is not None
    assert found == read_of_primfunc(*given, made)


def test_what_depends_on_how_wide_variables_are_is_not_read() -> None:
    """In a PrimFunc they have 64 bits, and data that are compared are widened to that."""
    x, i = tensor(4, dtype="int32"), tensor(4, dtype="int64", name="i")
    k = te.reduce_axis((0, 0), "k")
    for made, operands in [
        (te.compute((4,), lambda n: n.astype("float32"), "count"), []),
        (te.compute((4,), lambda n: tvm.tirx.Select(x[n] >= 0, x[n], -x[n]), "abs"), [x]),
        (te.compute((4,), lambda n: x[i[n]], "take"), [x, i]),
        (te.compute((4,), lambda n: te.sum(x[k], axis=k), "nothing"), [x]),
        (te.compute((), lambda: x[0], "scalar"), [x]),
    ]:
        assert analyse_tensors([*operands, made]) is None


def test_indices_that_have_to_be_rearranged_are_not_read() -> None:
    """A reshape of (6, 3, 6, 16) to (48, 36) was: TVM writes its quotients in another way, and compiling it ended as a
    fault."""
    x = tensor(6, 3, 6, 16)
    assert analyse_tensors([x, topi.reshape(x, (48, 36))]) is None
    flat = topi.reshape(x, (18, 96))
    assert analyse_tensors([x, flat]) == read_of_primfunc(x, flat)


def test_what_tvm_refuses_to_simplify_is_not_read() -> None:
    """Planning ended with TVM's own error."""
    two = tvm.tirx.Cast("bool", tvm.tirx.IntImm("int32", 2))
    made = te.compute((4,), lambda n: tvm.tirx.Select(two, tensor(4)[n], tvm.tirx.const(0.0, "float32")), "chosen")
    assert analyse_tensors([made]) is None


def test_reductions_of_numbers_are_not_read() -> None:
    """TVM leaves out what adds nothing: the kernel was not what was read, a fault."""
    x, k = tensor(4, 5), te.reduce_axis((0, 5), "k")
    zero = te.compute((4,), lambda _: te.sum(tvm.tirx.const(0.0, "float32"), axis=k), "zero")
    less = te.compute((4,), lambda i: te.sum(x[i, k] - x[i, k], axis=k), "less")
    assert [analyse_tensors([x, made]) for made in (zero, less)] == [None, None]


def test_a_concat_of_hundreds_is_read_of_its_primfunc() -> None:
    """To compare what was read with it ended with a RecursionError."""
    operands = [tensor(1, 2) for _ in range(260)]
    kernel = TeKernel((*operands, topi.concatenate(operands, 0)), (), relax.TensorType((260, 2), "float32"))
    assert kernel.computation is None


def test_indices_too_large_for_their_type_are_not_read() -> None:
    """TVM refused the PrimFunc of what was read."""
    x = te.placeholder((65536, 65536), "float32", "x")
    made = te.compute((65536, 65536), lambda i, j: x[(i * 131072 * 65536 + j) // 65536 % 65536, j], "large")
    assert analyse_tensors([x, made]) is None


def test_results_that_are_operands_are_not_read() -> None:
    x = tensor(4)
    assert analyse_tensors([x, x]) is None


def test_variables_of_extent_1_keep_their_names_as_in_primfuncs() -> None:
    x = tensor(6, 7)
    for made in (
        te.compute((1, 1), lambda i, j: x[i.astype("int64"), j.astype("int64")], "widened"),
        te.compute((1, 1), lambda i, j: x[(i + 1) - 1, (j * 2) // 2], "simplified"),
    ):
        assert analyse_tensors([x, made]) == read_of_primfunc(x, made)


def test_stages_without_a_name_are_not_read() -> None:
    x = tensor(4)
    first = te.compute((4,), lambda i: x[i] + x[i], "")
    assert analyse_tensors([x, te.compute((4,), lambda i: first[i] * x[i], "")]) is None


def test_a_kernel_that_is_not_what_was_read_is_a_fault() -> None:
    x = tensor(4)

    def scaled(by: float) -> TeKernel:
        return TeKernel((x, te.compute((4,), lambda n: x[n] * by, "scaled")), (), relax.TensorType((4,), "float32"))

    one, other = scaled(2.0), scaled(3.0)
    assert func_as_read(one) is not None
    vars(one)["computation"] = other.computation
    with pytest.raises(EqsatError, match="scaled is not what was read"):
        func_as_read(one)
