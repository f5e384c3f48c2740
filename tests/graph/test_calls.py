"""Calls that are no plain ops: PrimFuncs, packed functions, in-place calls; and names that clash."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from compare import assert_same_fast, assert_same_interface, stock_results
from programs import assert_untouched, ops, program, transforms
from tvm import relax, tirx
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import eqsat_layout
from eqsat_layout.tir.structural import structural_map

# mypy: disable-error-code="no-untyped-def"


@I.ir_module
class Names:
    """PrimFuncs called like things of the rules' own language, and like the ones that emission makes."""

    @T.prim_func(private=True, s_tir=True)
    def view(a: T.Buffer((4, 3), "float32"), b: T.Buffer((4, 3), "float32")):
        for i, j in T.grid(4, 3):
            with T.sblock("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = a[vi, vj] * T.float32(2)

    @T.prim_func(private=True, s_tir=True)
    def frozen(a: T.Buffer((4, 3), "float32"), b: T.Buffer((4, 3), "float32")):
        for i, j in T.grid(4, 3):
            with T.sblock("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = a[vi, vj] + T.float32(2)

    @T.prim_func(private=True, s_tir=True)
    def view_relaid(a: T.Buffer((4, 3), "float32"), b: T.Buffer((4, 3), "float32")):
        for i, j in T.grid(4, 3):
            with T.sblock("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = a[vi, vj] - T.float32(3)

    @R.function
    def main(x: R.Tensor((3, 4), "float32")):
        cls = Names
        with R.dataflow():
            a = R.permute_dims(x, [1, 0])
            b = R.call_tir(cls.view, (a,), out_ty=R.Tensor((4, 3), "float32"))
            c = R.call_tir(cls.frozen, (b,), out_ty=R.Tensor((4, 3), "float32"))
            d = R.call_tir(cls.view_relaid, (c,), out_ty=R.Tensor((4, 3), "float32"))
            e = R.permute_dims(d, [1, 0])
            R.output(e)
        return e


def renamed(mod: Any, old: str, new: str) -> Any:
    """``mod`` with a PrimFunc under another name."""
    before, functions = mod.get_global_var(old), {}
    after = relax.BlockBuilder().add_func(mod[before], new)
    for gv, f in mod.functions_items():
        key = after if gv.same_as(before) else gv
        functions[key] = structural_map(f, (tvm.ir.GlobalVar, lambda v: after if v.same_as(before) else v))
    return tvm.IRModule(functions)


def test_primfuncs_named_like_words_of_the_rules() -> None:
    optimized = eqsat_layout.optimize(Names)
    assert transforms(optimized) == 0
    assert_same_fast(Names, optimized)


def test_a_primfunc_named_like_a_relax_op() -> None:
    mod = renamed(Names, "view", "relax.nn.relu")
    relax.analysis.well_formed(mod)
    optimized = eqsat_layout.optimize(mod)
    assert transforms(optimized) == 0
    relax.analysis.well_formed(optimized)


@I.ir_module
class Opaque:
    @R.function
    def main(x: R.Tensor((3, 4), "float32")):
        with R.dataflow():
            a = R.permute_dims(x, [1, 0])
            b = R.permute_dims(a, [1, 0])
            p = R.call_pure_packed("eqsat_layout_test.double", b, ty_args=R.Tensor((3, 4), "float32"))
            q = R.call_dps_packed("eqsat_layout_test.triple", (p,), out_ty=R.Tensor((3, 4), "float32"))
            c = R.permute_dims(q, [1, 0])
            d = R.nn.relu(c)
            e = R.permute_dims(d, [1, 0])
            R.output(e)
        return e


def test_packed_functions_in_a_block() -> None:
    @tvm.register_global_func("eqsat_layout_test.double", override=True)
    def double(x: Any) -> Any:
        return tvm.runtime.tensor(x.numpy() * 2)

    @tvm.register_global_func("eqsat_layout_test.triple", override=True)
    def triple(x: Any, y: Any) -> None:
        y.copyfrom(x.numpy() * 3)

    optimized = eqsat_layout.optimize(Opaque)
    assert transforms(optimized) == 0
    assert_same_fast(Opaque, optimized)


@I.ir_module
class Scalars:
    """A size that a packed function makes is used where no tensor is."""

    @R.function
    def main(x: R.Tensor((3, 4), "float32")):
        with R.dataflow():
            a = R.permute_dims(x, [1, 0])
            b = R.permute_dims(a, [1, 0])
            o = R.call_pure_packed("eqsat_layout_test.object", b, ty_args=R.Any())
            s = R.call_pure_packed("eqsat_layout_test.read", o, b, ty_args=R.Tensor((3, 4), "float32"))
            n = R.call_pure_packed("eqsat_layout_test.size", s, ty_args=R.Prim("int64"))
            t = R.call_pure_packed("eqsat_layout_test.use", s, n, ty_args=R.Tensor((3, 4), "float32"))
            R.output(t)
        return t


def test_values_that_are_no_tensors_are_not_lost() -> None:
    optimized = eqsat_layout.optimize(Scalars)
    relax.analysis.well_formed(optimized)
    assert ops(optimized) == ["call_pure_packed"] * 4


@I.ir_module
class InPlace:
    """a and b are equal, and one of them is overwritten."""

    @T.prim_func(private=True, s_tir=True)
    def negate(a: T.Buffer((3, 4), "float32")):
        for i, j in T.grid(3, 4):
            with T.sblock("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                a[vi, vj] = T.float32(0) - a[vi, vj]

    @R.function
    def main(x: R.Tensor((3, 4), "float32")):
        cls = InPlace
        with R.dataflow():
            u = R.permute_dims(x, [1, 0])
            v = R.permute_dims(u, [1, 0])
            a = R.exp(v)
            b = R.exp(x)
            c = R.call_tir_inplace(cls.negate, (a,), [0], out_ty=R.Tensor((3, 4), "float32"))
            d = R.add(b, c)
            R.output(d)
        return d


def test_equal_values_are_not_joined_where_one_is_overwritten() -> None:
    plan = eqsat_layout.plan(InPlace)
    assert plan.notes == ("main: left as it is, because it overwrites tensors in place",)
    optimized = plan.module
    x = np.ones((3, 4), "float32")
    np.testing.assert_array_equal(stock_results(optimized, x), [0 * x])


def test_a_block_that_holds_nothing_but_a_barrier() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor("float32", ndim=2)):
            with R.dataflow():
                y = R.match_cast(x, R.Tensor((3, 4), "float32"))
                R.output(y)
            return y

    assert eqsat_layout.optimize(Mod) is Mod


@pytest.mark.parametrize("index_map", [lambda i: ((i + 3) % 8,), lambda i: (i * 3 % 8,)])
def test_a_map_that_is_no_map_of_digits_is_left_alone(index_map: Any) -> None:
    """TVM inverts some of them wrongly, so that the numbers of the input are wrong already: nothing to compare."""

    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.layout_transform(x, index_map))
        return builder.emit(op.nn.relu(y))

    mod = program(body, (8,))
    assert_untouched(mod, eqsat_layout.optimize(mod))


def test_an_unknown_map_between_known_ones() -> None:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.permute_dims(builder.emit(op.permute_dims(x, [1, 0])), [1, 0]))
        y = builder.emit(op.layout_transform(y, lambda i, j: ((i + 3) % 8, j)))
        return builder.emit(op.permute_dims(builder.emit(op.nn.relu(builder.emit(op.permute_dims(y, [1, 0])))), [1, 0]))

    mod = program(body, (8, 3))
    optimized = eqsat_layout.optimize(mod)
    assert ops(optimized) == ["layout_transform", "nn.relu"]
    assert "% T.int64(8)" in optimized.script() or "% 8" in optimized.script()
    assert_same_interface(mod, optimized)


@pytest.mark.parametrize("value", [None, 0.0, 1.5])
def test_a_padding_transform(value: float | None) -> None:
    """30 channels in blocks of 4, then back, by slicing."""

    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.permute_dims(builder.emit(op.permute_dims(x, [1, 0])), [1, 0]))
        y = builder.emit(op.layout_transform(y, lambda i, j: (i, j // 4, j % 4), pad_value=value))
        y = builder.emit(op.nn.relu(y))
        y = builder.emit(op.reshape(y, (2, 32)))
        return op.strided_slice(y, [1], [0], [30])

    mod = program(body, (2, 30))
    optimized = eqsat_layout.optimize(mod)
    assert_same_fast(mod, optimized)


def test_ops_without_operands() -> None:
    def body(builder: Any, x: Any) -> Any:
        a = builder.emit(op.permute_dims(builder.emit(op.zeros((3, 4), "float32")), [1, 0]))
        b = builder.emit(op.permute_dims(builder.emit(op.ones((3, 4), "float32")), [1, 0]))
        c = builder.emit(op.arange(12, dtype="float32"))
        d = builder.emit(op.add(builder.emit(op.add(a, b)), builder.emit(op.reshape(c, (4, 3)))))
        return op.add(x, builder.emit(op.permute_dims(d, [1, 0])))

    mod = program(body, (3, 4))
    optimized = eqsat_layout.optimize(mod)
    assert transforms(optimized) <= 1
    assert_same_fast(mod, optimized)


def test_a_user_primfunc_equal_to_what_emission_makes() -> None:
    """Emission shares it, and does not change it."""

    def body(builder: Any, x: Any) -> Any:
        return op.permute_dims(builder.emit(op.nn.relu(builder.emit(op.permute_dims(x, [1, 0])))), [1, 0])

    from eqsat_layout.graph.legalize import legalize

    mod = legalize(program(body, (3, 4)))
    optimized = eqsat_layout.optimize(mod)
    assert len(ops(optimized)) == 1
    assert_same_fast(mod, optimized)
    assert isinstance(optimized[ops(optimized)[0]], tirx.PrimFunc)


@I.ir_module
class Scaled:
    @T.prim_func(private=True, s_tir=True)
    def scaled(x: T.Buffer((4, 6), "float32"), s: T.int64, y: T.Buffer((4, 6), "float32")):
        for i, j in T.grid(4, 6):
            with T.sblock("scaled"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = x[vi, vj] * T.Cast("float32", s)

    @R.function
    def main(x: R.Tensor((6, 4), "float32")):
        cls = Scaled
        with R.dataflow():
            a = R.permute_dims(x, [1, 0])
            b = R.call_tir(cls.scaled, (a, R.prim_value(T.int64(2))), out_ty=R.Tensor((4, 6), "float32"))
            c = R.call_tir(cls.scaled, (a, R.prim_value(T.int64(3))), out_ty=R.Tensor((4, 6), "float32"))
            d = R.permute_dims(b, [1, 0])
            e = R.permute_dims(c, [1, 0])
            R.output(d, e)
        return (d, e)


def test_calls_that_differ_in_a_number_are_two() -> None:
    """Both were the first one, and re-laid without the number."""
    assert_same_fast(Scaled, eqsat_layout.optimize(Scaled))
