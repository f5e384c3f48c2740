"""Kernels look at their operands where these may not fit, and only there."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from eqsat_layout.passes.fitting_calls import skip_checks, with_fitting_calls
from eqsat_layout.targets.lowering import lower
from eqsat_layout.tir.structural import nodes_of


@I.ir_module
class Chain:
    """``twice`` gets a parameter, ``more`` what ``twice`` makes, ``both`` the one and the other."""

    @T.prim_func(private=True, s_tir=True)
    def twice(a: T.Buffer((4, 6), "float32"), b: T.Buffer((4, 6), "float32")):
        for i, j in T.grid(4, 6):
            with T.sblock("twice"):
                x, y = T.axis.remap("SS", [i, j])
                b[x, y] = a[x, y] * T.float32(2)

    @T.prim_func(private=True, s_tir=True)
    def more(a: T.Buffer((4, 6), "float32"), b: T.Buffer((4, 6), "float32")):
        for i, j in T.grid(4, 6):
            with T.sblock("more"):
                x, y = T.axis.remap("SS", [i, j])
                b[x, y] = a[x, y] + T.float32(1)

    @T.prim_func(private=True, s_tir=True)
    def both(a: T.Buffer((4, 6), "float32"), b: T.Buffer((4, 6), "float32")):
        for i, j in T.grid(4, 6):
            with T.sblock("both"):
                x, y = T.axis.remap("SS", [i, j])
                b[x, y] = a[x, y] - T.float32(3)

    @R.function
    def main(x: R.Tensor((4, 6), "float32")):
        cls = Chain
        with R.dataflow():
            a = R.call_tir(cls.twice, (x,), R.Tensor((4, 6), "float32"))
            b = R.call_tir(cls.both, (x,), R.Tensor((4, 6), "float32"))
            c = R.call_tir(cls.more, (a,), R.Tensor((4, 6), "float32"))
            d = R.call_tir(cls.both, (c,), R.Tensor((4, 6), "float32"))
            R.output(b, d)
        return (b, d)


def assertions(mod, name):
    packed = tvm.transform.Sequential(
        [
            tvm.s_tir.transform.ConvertBlocksToOpaque(),
            tvm.s_tir.transform.LowerOpaqueBlock(),
            tirx.transform.FlattenBuffer(),
            tirx.transform.AnnotateEntryFunc(),
            tirx.transform.MakePackedAPI(),
            skip_checks(),
        ]
    )
    function = mod[name].with_attr("global_symbol", name)
    with tvm.target.Target("llvm"):
        alone = tirx.transform.BindTarget(tvm.target.Target("llvm", host="llvm"))(tvm.IRModule({name: function}))
        return len(nodes_of(packed(alone)[name].body, tirx.AssertStmt))


def test_only_kernels_fed_by_others_of_the_module_lose_their_checks():
    marked = with_fitting_calls(Chain)
    assert not assertions(marked, "more")
    assert assertions(marked, "twice")
    assert assertions(marked, "both"), "one of its calls gets a parameter"


def test_the_module_runs_as_before(arrays):
    (x,) = arrays((4, 6))
    first, second = relax.VirtualMachine(lower(Chain), tvm.cpu())["main"](tvm.runtime.tensor(x))
    np.testing.assert_array_equal(first.numpy(), x - 3)
    np.testing.assert_array_equal(second.numpy(), x * 2 + 1 - 3)


def with_wrong_call(shape):
    """``more`` is given a tensor that ``lead`` makes, whose shape is another one."""

    @I.ir_module(check_well_formed=False)
    class Wrong:
        @T.prim_func(private=True, s_tir=True)
        def lead(a: T.Buffer((4, 6), "float32"), b: T.Buffer(shape, "float32")):
            for i, j in T.grid(shape[0], shape[1]):
                with T.sblock("lead"):
                    x, y = T.axis.remap("SS", [i, j])
                    b[x, y] = a[0, 0]

        @T.prim_func(private=True, s_tir=True)
        def more(a: T.Buffer((4, 6), "float32"), b: T.Buffer((4, 6), "float32")):
            for i, j in T.grid(4, 6):
                with T.sblock("more"):
                    x, y = T.axis.remap("SS", [i, j])
                    b[x, y] = a[x, y] + T.float32(1)

        @R.function
        def main(x: R.Tensor((4, 6), "float32")):
            cls = Wrong
            with R.dataflow():
                a = R.call_tir(cls.lead, (x,), R.Tensor(shape, "float32"))
                c = R.call_tir(cls.more, (a,), R.Tensor((4, 6), "float32"))
                R.output(c)
            return c

    return Wrong


@pytest.mark.parametrize("shape", [(6, 4), (2, 2)])
def test_a_call_that_does_not_fit_is_seen_when_it_runs(shape):
    """Stock TVM compiles it too, and says so at the call."""
    assert assertions(with_fitting_calls(with_wrong_call(shape)), "more")


@I.ir_module
class Asserting:
    """``picky`` takes no negative numbers."""

    @T.prim_func(private=True, s_tir=True)
    def lead(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("lead"):
                x = T.axis.spatial(4, i)
                b[x] = a[x] * T.float32(2)

    @T.prim_func(private=True, s_tir=True)
    def picky(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
        assert a[0] >= T.float32(0), "no negative numbers"
        for i in range(4):
            b[i] = a[i] + T.float32(1)

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = Asserting
        with R.dataflow():
            a = R.call_tir(cls.lead, (x,), R.Tensor((4,), "float32"))
            c = R.call_tir(cls.picky, (a,), R.Tensor((4,), "float32"))
            R.output(c)
        return c


def test_an_assertion_of_the_program_stays(run):
    built = lower(Asserting)
    np.testing.assert_array_equal(run(built, np.ones(4, "float32")), np.full(4, 3, "float32"))
    with pytest.raises(Exception, match="no negative numbers"):
        run(built, -np.ones(4, "float32"))
