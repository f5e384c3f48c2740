"""Symbolic shapes: one symbol, two, sums of them, in reshapes and in PrimFuncs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from compare import assert_same_fast
from programs import AVX2, assert_untouched, constant, ops, program, transforms
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import eqsat_layout
from eqsat_layout.soundness.programs.adversarial_costs import AdversarialCosts

# mypy: disable-error-code="no-untyped-def"
SIZES = (1, 2, 5)


@I.ir_module
class Batch:
    @R.function
    def main(x: R.Tensor(("n", 8, 6, 6), "float32"), w: R.Tensor((8, 8, 3, 3), "float32")):
        R.func_attr({"eqsat_layout.frozen": {"a": ["NHWC", "OHWI"], "d": ["NHWC", "OHWI"]}})
        with R.dataflow():
            a = R.nn.conv2d(x, w, padding=1)
            b = R.nn.relu(a)
            c = R.add(b, x)
            d = R.nn.conv2d(c, w, padding=1)
            R.output(d)
        return d


def test_frozen_convolutions_of_a_symbolic_batch() -> None:
    plan = eqsat_layout.plan(Batch)
    assert transforms(plan.module) == 3  # x and w, each once, and the result
    assert_same_fast(Batch, plan.module, SIZES)


@I.ir_module
class Heads:
    @R.function
    def main(x: R.Tensor(("n", "t", 12), "float32")):
        n, t = T.int64(), T.int64()
        with R.dataflow():
            a = R.reshape(x, R.shape([n, t, 3, 4]))
            b = R.permute_dims(a, [0, 2, 1, 3])
            c = R.nn.relu(b)
            d = R.permute_dims(c, [0, 2, 1, 3])
            e = R.reshape(d, R.shape([n, t, 12]))
            f = R.reshape(e, R.shape([n * t, 12]))
            g = R.tanh(f)
            R.output(g)
        return g


def test_heads_split_and_joined_over_two_symbols() -> None:
    plan = eqsat_layout.plan(Heads)
    assert transforms(plan.module) == 0
    assert_same_fast(Heads, plan.module, SIZES)


@I.ir_module
class Fused:
    """A fused symbolic axis can't be taken apart again by the algebra."""

    @R.function
    def main(x: R.Tensor(("n", "m", 4), "float32"), y: R.Tensor(("m", 4), "float32")):
        n, m = T.int64(), T.int64()
        with R.dataflow():
            a = R.permute_dims(x, [1, 0, 2])
            b = R.reshape(a, R.shape([n * m, 4]))
            c = R.exp(b)
            d = R.reshape(c, R.shape([m, n, 4]))
            e = R.permute_dims(d, [1, 2, 0])
            f = R.permute_dims(e, [0, 2, 1])
            g = R.add(f, y)
            R.output(g, c)
        return (g, c)


def test_a_fused_symbolic_axis() -> None:
    optimized = eqsat_layout.optimize(Fused)
    assert transforms(optimized) < transforms(Fused)
    assert_same_fast(Fused, optimized, SIZES)


@I.ir_module
class Products:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32")):
        n = T.int64()
        with R.dataflow():
            a = R.negative(x)
            b = R.reshape(a, R.shape([n * 8]))
            c = R.nn.relu(b)
            d = R.permute_dims(R.abs(R.permute_dims(R.reshape(c, R.shape([n, 8])), [1, 0])), [1, 0])
            R.output(b, d)
        return (b, d)


@pytest.mark.parametrize("seed", range(4))
def test_kernels_of_buffers_that_do_not_tell_the_size(seed: int) -> None:
    """All of n * 8 elements: the PrimFunc used n, which nobody gave it (program fuzzer, seed 118)."""
    optimized = eqsat_layout.optimize(Products, cost_model=AdversarialCosts(seed))
    assert_same_fast(Products, optimized, SIZES)
    x = np.random.default_rng(0).standard_normal((3, 8)).astype("float32")
    found = relax.VirtualMachine(eqsat_layout.compile(optimized), tvm.cpu())["main"](tvm.runtime.tensor(x))
    np.testing.assert_array_equal(found[0].numpy(), -x.reshape(24))


def test_weights_of_symbolic_channels_are_not_blocked_along_them() -> None:
    """TVM's test_symbolic_var_in_param_shape: candidates put the data in blocks, and the weights with it."""
    m, n = tvm.tirx.Var("m", "int64"), tvm.tirx.Var("n", "int64")

    def body(builder: Any, x: Any, v: Any, w: Any) -> Any:
        return R.nn.conv2d(builder.emit(R.nn.conv2d(x, v, padding=1)), w, padding=1)

    mod = program(body, (1, 16, 224, n), (16, m, 3, 3), (16, m, 3, 3))
    relax.analysis.well_formed(eqsat_layout.optimize(mod))


@I.ir_module
class Shapes:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), s: R.Shape(["n", "k"])):
        n, k = T.int64(), T.int64()
        with R.dataflow():
            z = R.zeros(R.shape([n, 4]), "float32")
            z2 = R.zeros(R.shape([n, 4]), "float32")
            o = R.ones(R.shape([k, 4]), "float32")
            a = R.permute_dims(x, [1, 0])
            b = R.nn.relu(a)
            c = R.permute_dims(b, [1, 0])
            d = R.add(R.add(c, z), z2)
            e = R.concat((d, o), axis=0)
            R.output(e)
        return e


def test_shapes_as_values_and_arguments() -> None:
    optimized = eqsat_layout.optimize(Shapes, AVX2)
    assert transforms(optimized) == 0
    assert ops(optimized).count("zeros") == 1
    assert_same_fast(Shapes, optimized, SIZES)


@I.ir_module
class Sums:
    @R.function
    def main(x: R.Tensor(("n", 6, 4), "float32"), y: R.Tensor(("m", 6, 4), "float32")):
        with R.dataflow():
            a = R.permute_dims(x, [0, 2, 1])
            b = R.permute_dims(y, [0, 2, 1])
            c = R.concat((a, b), axis=0)
            d = R.nn.relu(c)
            e = R.permute_dims(d, [0, 2, 1])
            R.output(e)
        return e


def test_a_concat_along_two_symbols() -> None:
    optimized = eqsat_layout.optimize(Sums)  # what to do with a joint at n is not understood
    assert_same_fast(Sums, optimized, SIZES)


@I.ir_module
class SymbolicPrimFunc:
    @T.prim_func(private=True, s_tir=True)
    def scale(a: T.handle, b: T.handle, c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(4), T.int64(6)))
        B = T.match_buffer(b, (n, T.int64(4), T.int64(6)))
        C = T.match_buffer(c, (n, T.int64(4), T.int64(6)))
        for i, j, k in T.grid(n, T.int64(4), T.int64(6)):
            with T.sblock("b"):
                vi, vj, vk = T.axis.remap("SSS", [i, j, k])
                B[vi, vj, vk] = A[vi, vj, vk] * T.float32(2)
                C[vi, vj, vk] = A[vi, vj, vk] + T.float32(1)

    @R.function
    def main(x: R.Tensor(("n", 6, 4), "float32"), y: R.Tensor(("m", 6, 4), "float32")):
        n, m = T.int64(), T.int64()
        cls = SymbolicPrimFunc
        with R.dataflow():
            a = R.permute_dims(x, [0, 2, 1])
            p = R.call_tir(cls.scale, (a,), out_ty=[R.Tensor((n, 4, 6), "float32"), R.Tensor((n, 4, 6), "float32")])
            q = p[0]
            r = p[1]
            s = R.permute_dims(q, [0, 2, 1])
            t = R.permute_dims(r, [0, 2, 1])
            b = R.permute_dims(y, [0, 2, 1])
            p2 = R.call_tir(cls.scale, (b,), out_ty=[R.Tensor((m, 4, 6), "float32"), R.Tensor((m, 4, 6), "float32")])
            u = p2[1]
            R.output(s, t, u)
        return (s, t, u)


def test_a_primfunc_of_symbolic_sizes_and_two_results() -> None:
    optimized = eqsat_layout.optimize(SymbolicPrimFunc)
    assert transforms(optimized) == 1  # of u, which leaves as it was
    assert_same_fast(SymbolicPrimFunc, optimized, SIZES)


def test_symbols_with_odd_names() -> None:
    from tvm import tirx
    from tvm.relax import op

    for names in (("lambda", "in"), ("a b", "c*d"), ("x", "xx"), ("min", "n.1"), ("4", "None")):
        n, m = (tirx.Var(name, "int64") for name in names)

        def body(builder: Any, x: Any) -> Any:
            y = builder.emit(op.permute_dims(x, [1, 0, 2]))
            y = builder.emit(op.reshape(y, (m * 4, n)))  # noqa: B023
            y = builder.emit(op.add(y, constant(1)))
            return op.permute_dims(builder.emit(op.reshape(y, (m, 4, n))), [1, 0, 2])  # noqa: B023

        mod = program(body, (4, m, n))
        optimized = eqsat_layout.optimize(mod)
        assert_same_fast(mod, optimized, (2,))


def test_symbols_whose_names_run_into_each_other() -> None:
    """Shapes (ax, b) and (a, xb) read the same where the x is what separates extents."""
    from tvm import tirx
    from tvm.relax import op

    ax, b, a, xb = (tirx.Var(name, "int64") for name in ("ax", "b", "a", "xb"))

    def flipped(builder: Any, x: Any) -> Any:
        return builder.emit(op.permute_dims(builder.emit(op.exp(builder.emit(op.permute_dims(x, [1, 0])))), [1, 0]))

    mod = program(lambda builder, x, y: (flipped(builder, x), flipped(builder, y)), (ax, b), (a, xb))
    optimized = eqsat_layout.optimize(mod)
    assert transforms(optimized) == 0
    assert_same_fast(mod, optimized, (2,))


def test_nothing_to_gain_with_symbols() -> None:
    assert_untouched(Untouched, eqsat_layout.optimize(Untouched))


@I.ir_module
class Untouched:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.permute_dims(a, [1, 0])
            R.output(b)
        return b


def sliced(size: Any) -> Any:
    """A module that gives what begins ``size`` before the end."""
    bb = relax.BlockBuilder()
    n = size if isinstance(size, tirx.Var) else tirx.analysis.undefined_vars(size)[0]
    x = relax.Var("x", relax.TensorType((n, 4), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            begun = bb.emit(relax.op.strided_slice(bb.emit(relax.op.nn.relu(x)), [0], [size], [n]))
            y = bb.emit_output(relax.op.nn.relu(begun))
        bb.emit_func_output(y)
    return bb.get()


def test_slices_that_begin_at_a_size() -> None:
    """``x[n - 3:]`` ended in an error: its length is a choice, for indices below 0 count from the end."""
    n = tirx.Var("n", "int64")
    x = np.random.default_rng(0).standard_normal((9, 4), "float32")
    for begin, first, said in (
        (n - 3, 6, ""),
        (tirx.shift_right(n, tirx.const(1, "int64")), 4, "is no arithmetic of sizes"),
    ):
        plan = eqsat_layout.plan(sliced(begin))
        assert said in str(plan.notes)
        out = relax.VirtualMachine(eqsat_layout.compile(sliced(begin)), tvm.cpu())["main"](
            tvm.runtime.tensor(x)
        ).numpy()
        np.testing.assert_array_equal(out, np.maximum(x, 0)[first:])


@pytest.mark.parametrize("name", ["?", "n*2"])
def test_a_size_whose_name_is_no_identifier(name) -> None:
    """ONNX files have both: ``min(2, ?)`` could not be read again, and the second is no product of ``n``."""
    n, odd = tirx.Var("n", "int64"), tirx.Var(name, "int64")

    def body(b, x, y, _z):
        split = b.emit(relax.op.split(y, [2], 0))
        return x, b.emit(relax.op.concat([x, y])), b.emit(split[0]), b.emit(split[1])

    mod = program(body, (n * 2, 4), (odd, 4), (n, 4))
    for made in (tvm.compile(eqsat_layout.optimize(mod), "llvm"), eqsat_layout.compile(mod, assume={name: 7})):
        x, y = (np.arange(rows * 4, dtype="float32").reshape(rows, 4) for rows in (6, 5))
        found = relax.VirtualMachine(made, tvm.cpu())["main"](*map(tvm.runtime.tensor, (x, y, x[:3])))
        wanted = (x, np.concatenate([x, y]), y[:2], y[2:])
        assert all(np.array_equal(a.numpy(), b) for a, b in zip(found, wanted, strict=True))
