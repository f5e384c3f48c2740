"""Modules of several functions, functions of several blocks, and what stands outside of the blocks."""

from __future__ import annotations

from typing import Any

from compare import assert_same_fast
from programs import assert_untouched, constant, ops, program, transforms
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import eqsat_layout
from eqsat_layout.tir.structural import substitute

# mypy: disable-error-code="no-untyped-def"


@I.ir_module
class Several:
    @R.function
    def main(x: R.Tensor((2, 3, 4, 5), "float32")):
        with R.dataflow():
            a = R.permute_dims(x, [0, 2, 3, 1])
            b = R.nn.relu(a)
            c = R.permute_dims(b, [0, 3, 1, 2])
            gv = Several.helper(c)
            gv1 = R.exp(gv)
            R.output(gv1)
        return gv1

    @R.function(private=True)
    def helper(y: R.Tensor((2, 3, 4, 5), "float32")) -> R.Tensor((2, 3, 4, 5), "float32"):
        with R.dataflow():
            a = R.permute_dims(y, [3, 1, 2, 0])
            b = R.tanh(a)
            gv = R.permute_dims(b, [3, 1, 2, 0])
            R.output(gv)
        return gv

    @R.function
    def plain(z: R.Tensor((2, 3, 4, 5), "float32")):
        a = R.permute_dims(z, [3, 1, 2, 0])
        b = R.permute_dims(a, [3, 1, 2, 0])
        c = Several.helper(b)
        return c

    @R.function
    def nothing_to_gain(z: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            gv = R.nn.relu(z)
            R.output(gv)
        return gv


def test_every_function_is_optimised_and_calls_stay() -> None:
    plan = eqsat_layout.plan(Several)
    assert transforms(plan.module, "main") == 0
    assert transforms(plan.module, "helper") == 0
    assert_untouched(Several["plain"], plan.module["plain"])  # no dataflow block
    assert_untouched(Several["nothing_to_gain"], plan.module["nothing_to_gain"])
    assert plan.module["helper"].attrs is None or "global_symbol" not in plan.module["helper"].attrs
    assert {t.function for t in plan.input_transforms} == {"main", "helper"}
    assert_same_fast(Several, plan.module)


@I.ir_module
class Blocks:
    @R.function
    def main(x: R.Tensor((2, 3, 4), "float32"), flag: R.Tensor((), "bool")):
        with R.dataflow():
            a = R.permute_dims(x, [2, 0, 1])
            b = R.nn.relu(a)
            c = R.permute_dims(b, [1, 2, 0])
            unused = R.exp(c)  # noqa: F841
            R.output(c, b)
        outside = R.add(c, c)
        with R.dataflow():
            d = R.permute_dims(b, [1, 2, 0])
            e = R.multiply(d, outside)
            R.output(e)
        if flag:
            with R.dataflow():
                t1 = R.permute_dims(e, [1, 0, 2])
                t2 = R.permute_dims(t1, [1, 0, 2])
                R.output(t2)
            r = t2
        else:
            r = R.exp(e)
        with R.dataflow():
            s1 = R.permute_dims(r, [1, 0, 2])
            s2 = R.tanh(s1)
            s3 = R.permute_dims(s2, [1, 0, 2])
            R.output(s3)
        return s3


def test_several_blocks_a_branch_and_values_that_cross() -> None:
    optimized = eqsat_layout.optimize(Blocks)
    blocks = optimized["main"].body.blocks
    assert len(blocks) == len(Blocks["main"].body.blocks)
    assert transforms(optimized) == 2  # b and c leave the first block, in two layouts; d is b again
    assert "exp" not in ops(optimized)
    assert_same_fast(Blocks, optimized)


@I.ir_module
class MatchCast:
    @R.function
    def main(x: R.Tensor("float32", ndim=3)):
        n, m = T.int64(), T.int64()
        y = R.match_cast(x, R.Tensor((n, m, 4), "float32"))
        with R.dataflow():
            a = R.permute_dims(y, [2, 0, 1])
            b = R.nn.relu(a)
            c = R.permute_dims(b, [1, 2, 0])
            d = R.match_cast(c, R.Tensor((2, 3, 4), "float32"))
            e = R.permute_dims(d, [2, 0, 1])
            f = R.exp(e)
            g = R.permute_dims(f, [1, 2, 0])
            R.output(g)
        return g


def test_match_cast_inside_and_outside_of_a_block() -> None:
    optimized = eqsat_layout.optimize(MatchCast)
    assert transforms(MatchCast) == 4
    assert transforms(optimized) == 0
    assert "R.match_cast" in optimized.script()
    import numpy as np
    import tvm
    from compare import machine

    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype("float32")
    results = [machine(mod)["main"](tvm.runtime.tensor(x)).numpy() for mod in (MatchCast, optimized)]
    np.testing.assert_array_equal(*results)


@I.ir_module
class ReusedName:
    """The second block's m is another variable than the first one's, of the same name."""

    @R.function
    def main(x: R.Tensor(("m", 4), "float32"), z: R.Tensor("float32", ndim=2)):
        with R.dataflow():
            a = R.permute_dims(x, [1, 0])
            b = R.nn.relu(a)
            c = R.permute_dims(b, [1, 0])
            d = R.add(c, x)
            R.output(d)
        k = T.int64()
        y = R.match_cast(z, R.Tensor((k, 4), "float32"))
        with R.dataflow():
            e = R.permute_dims(y, [1, 0])
            f = R.nn.relu(e)
            g = R.permute_dims(f, [1, 0])
            h = R.add(g, y)
            R.output(h)
        return (d, h)


def test_one_name_for_two_symbols_of_a_function() -> None:
    import tvm
    from tvm import relax, tirx

    new = tirx.Var("m", "int64")
    k = ReusedName["main"].body.blocks[1].bindings[0].var.ty.shape.values[0]
    function = substitute(ReusedName["main"], {k: new})
    mod = tvm.IRModule({ReusedName.get_global_var("main"): function})
    relax.analysis.well_formed(mod)
    optimized = eqsat_layout.optimize(mod)
    relax.analysis.well_formed(optimized)


@I.ir_module
class TwoSymbolic:
    """The same ops in two functions: their n are different variables."""

    @R.function
    def f(x: R.Tensor(("n", 8, 4), "float32")):
        with R.dataflow():
            a = R.permute_dims(x, [0, 2, 1])
            b = R.nn.relu(a)
            c = R.nn.softmax(b, axis=2)
            d = R.permute_dims(c, [0, 2, 1])
            R.output(d)
        return d

    @R.function
    def g(x: R.Tensor(("n", 8, 4), "float32")):
        with R.dataflow():
            a = R.permute_dims(x, [0, 2, 1])
            b = R.nn.relu(a)
            c = R.nn.softmax(b, axis=2)
            d = R.permute_dims(c, [0, 2, 1])
            e = R.permute_dims(R.nn.relu(d), [2, 0, 1])
            R.output(e)
        return e


def test_two_functions_with_a_symbol_of_the_same_name() -> None:
    optimized = eqsat_layout.optimize(TwoSymbolic)
    assert transforms(optimized, "f") == 0
    assert transforms(optimized, "g") == 1
    assert_same_fast(TwoSymbolic, optimized, sizes=(1, 3))


def test_a_module_without_functions_or_without_blocks_is_itself() -> None:
    import tvm

    empty = tvm.IRModule({})
    assert eqsat_layout.optimize(empty) is empty


def test_a_private_function_that_nobody_calls() -> None:
    def body(builder: Any, x: Any) -> Any:
        from tvm.relax import op

        return op.permute_dims(builder.emit(op.nn.relu(builder.emit(op.permute_dims(x, [1, 0])))), [1, 0])

    mod = program(body, (3, 4))
    mod.update_func(mod.get_global_var("main"), mod["main"].without_attr("global_symbol"))
    assert ops(eqsat_layout.optimize(mod)) == ["nn.relu"]


def test_names_of_variables_that_clash_or_hold_odd_characters() -> None:
    from tvm import relax
    from tvm.relax import op

    odd = 'tab\tnew\nline "quoted" \\ ; (é) @ 1'
    x = relax.Var(odd, relax.TensorType((3, 4), "float32"))
    y = relax.Var(odd, relax.TensorType((3, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            a = builder.emit(op.permute_dims(x, [1, 0]), odd)
            b = builder.emit(op.permute_dims(y, [1, 0]), odd)
            c = builder.emit(op.subtract(a, b), odd)
            d = builder.emit(op.add(c, constant(4, 3)), odd)
            out = builder.emit_output(op.permute_dims(d, [1, 0]), odd)
        builder.emit_func_output(out)
    mod = builder.finalize()
    optimized = eqsat_layout.optimize(mod)
    assert ops(optimized) == ["subtract", "add"]
    assert_same_fast(mod, optimized)
