"""Integers that calls pass become part of kernels, which are fused then."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax, te, tirx
from tvm.script import tirx as T

from eqsat_layout.graph.legalize import legalize
from eqsat_layout.notes import Notes
from eqsat_layout.passes.fuse import fuse
from eqsat_layout.passes.scalar_literals import knowing_numbers, with_floats, with_integers
from eqsat_layout.targets.lowering import lower
from eqsat_layout.tir.axis_groups import axis_groups, with_axis_groups

SHAPE = (3, 5, 8)


def taken(emit, x, *places, dtype="int64", axis=0):
    parts = [emit(relax.op.take(x, relax.const(place, dtype), axis=axis, mode="fast")) for place in places]
    return emit(relax.op.add(*parts))


def kernels(mod):
    return [func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc)]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_takes_of_single_places_are_fused_with_what_follows(make_module, run, arrays, dtype):
    """Three copies of every product in front of an attention: 4 % of ViT of eight images, with what they held up."""
    mod = legalize(make_module(lambda emit, x: taken(emit, x, 2, 0, dtype=dtype), SHAPE))
    assert len(kernels(fuse(mod, Notes()))) > 1
    known = with_integers(mod)
    (kernel,) = kernels(fuse(known, Notes()))
    assert len(kernel.params) == 2, "the operand and the result"
    (x,) = arrays(SHAPE)
    np.testing.assert_array_equal(run(lower(mod), x), x[2] + x[0])


def test_calls_of_one_kernel_with_different_integers_are_told_apart(make_module, run, arrays):
    mod = legalize(make_module(lambda emit, x: taken(emit, x, 4, 1, axis=1), SHAPE))
    assert len(kernels(mod)) == 2, "take and add"
    assert len(kernels(with_integers(mod))) == 3
    (x,) = arrays(SHAPE)
    np.testing.assert_array_equal(run(lower(mod), x), x[:, 4] + x[:, 1])


def test_other_operands_stay(make_module):
    """Scalars of other types, and several integers at once."""
    scaled = legalize(make_module(lambda emit, x: emit(relax.op.multiply(x, relax.const(2.0))), SHAPE))
    assert with_integers(scaled) is scaled
    rows = relax.const(np.array([0, 2], "int64"))
    some = legalize(make_module(lambda emit, x: emit(relax.op.take(x, rows, axis=0)), SHAPE))
    assert with_integers(some) is some


def test_an_integer_whose_address_is_taken_stays():
    """A kernel that hands it on can't do without it."""

    @T.prim_func(s_tir=True)
    def opaque(x: T.Buffer((8,), "float32"), at: T.Buffer((), "int64"), y: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.sblock("y"):
                v = T.axis.spatial(8, i)
                y[v] = x[v] + T.call_extern("float32", "read", T.address_of(at[()]))

    builder = relax.BlockBuilder()
    callee = builder.add_func(opaque, "opaque")
    x = relax.Var("x", relax.TensorType((8,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out_type = relax.TensorType((8,), "float32")
            result = builder.emit_output(relax.call_tir(callee, relax.Tuple([x, relax.const(3, "int64")]), out_type))
        builder.emit_func_output(result)
    mod = builder.get()
    assert with_integers(mod) is mod


def powers(*exponents):
    """A program that raises its input to these powers, one after the other, by one kernel."""

    @T.prim_func(private=True, s_tir=True)
    def power(x: T.Buffer((8,), "float32"), exponent: T.Buffer((), "float32"), y: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.sblock("y"):
                v = T.axis.spatial(8, i)
                y[v] = T.pow(x[v], exponent[()])

    builder = relax.BlockBuilder()
    callee = builder.add_func(power, "power")
    ty = relax.TensorType((8,), "float32")
    x = relax.Var("x", ty)
    with builder.function("main", [x]):
        with builder.dataflow():
            out = x
            for exponent in exponents:
                out = builder.emit(relax.call_tir(callee, relax.Tuple([out, relax.const(exponent)]), ty))
            out = builder.emit_output(out)
        builder.emit_func_output(out)
    return builder.get()


def test_floats_become_part_of_kernels(run, arrays):
    """GPT-2's x ** 3 was a call of libm for each element: the exponent was an operand."""
    (kernel,) = kernels(with_floats(powers(3.0), 8))
    assert len(kernel.params) == 2, "the operand and the result"
    (x,) = arrays((8,))
    np.testing.assert_allclose(run(lower(powers(3.0, 2.0)), x), x**6, rtol=1e-6)


def test_kernels_of_several_results_know_floats_too(run, arrays):
    """T5 from torch's exporter was not compiled: a TypeError of ``call_tir``, which takes a list of types."""

    @T.prim_func(private=True, s_tir=True)
    def both(
        x: T.Buffer((8,), "float32"),
        factor: T.Buffer((), "float32"),
        y: T.Buffer((8,), "float32"),
        z: T.Buffer((8,), "float32"),
    ):
        for i in range(8):
            with T.sblock("both"):
                v = T.axis.spatial(8, i)
                y[v] = x[v] * factor[()]
                z[v] = x[v] + factor[()]

    builder = relax.BlockBuilder()
    callee = builder.add_func(both, "both")
    ty = relax.TensorType((8,), "float32")
    x = relax.Var("x", ty)
    with builder.function("main", [x]):
        with builder.dataflow():
            operands = relax.Tuple([x, relax.const(3.0)])
            results = builder.emit(relax.call_tir(callee, operands, [ty, ty]))
            sides = [builder.emit(relax.TupleGetItem(results, i)) for i in range(2)]
            out = builder.emit_output(relax.op.subtract(*sides))
        builder.emit_func_output(out)
    known = with_floats(builder.get(), 8)
    assert [len(kernel.params) for kernel in kernels(known)] == [3]
    (x,) = arrays((8,))
    np.testing.assert_allclose(run(lower(known), x), x * 3 - (x + 3), rtol=1e-6, atol=1e-6)


def test_floats_that_differ_everywhere_stay_operands():
    known = with_floats(powers(2.0, 3.0, 4.0, 5.0, 6.0, 7.0), 8)
    assert sorted(len(kernel.params) for kernel in kernels(known)) == [2, 2, 2, 2, 3]


@pytest.mark.parametrize("number", [0.0, np.nan, np.inf, 1e-40])
def test_floats_that_are_not_normal_stay_operands(number):
    mod = powers(number)
    assert with_floats(mod, 8) is mod


def test_groups_of_axes_are_of_the_parameters_that_stay():
    """The attribute numbers parameters: one was read of a parameter that was not there any more."""
    x, i = te.placeholder((3, 4), "float32", "x"), te.placeholder((), "int64", "i")
    func = te.create_prim_func([x, i, te.compute((4,), lambda j: x[i(), j])])
    known = knowing_numbers(with_axis_groups(func, {2: (1,)}), {1: tirx.IntImm("int64", 2)})
    assert axis_groups(known) == {known.params[1]: (1,)}
