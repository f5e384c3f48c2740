"""The interpreter of Relax beside LLVM."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from compare import arrays_in, machine
from programs import constant, program
from tvm import relax
from tvm.relax import op as R
from tvm.script import ir as I
from tvm.script import relax as RS
from tvm.script import tirx as T

from eqsat_layout.graph.legalize import legalize
from eqsat_layout.soundness.oracle.relax_interpreter import NotInterpretable, RelaxInterpreter, run_function


def assert_as_llvm(mod: Any, *shapes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    wanted = list(arrays_in(machine(mod)["main"](*(tvm.runtime.tensor(x) for x in inputs))))
    found = run_function(mod, "main", inputs)
    for a, b in zip(found if isinstance(found, list) else [found], wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_block_of_ops() -> None:
    def body(bb: Any, x: Any) -> Any:
        y = bb.emit(R.nn.conv2d(x, constant(4, 3, 3, 3), padding=1))
        parts = bb.emit(R.split(bb.emit(R.nn.relu(y)), 2, axis=1))
        both = bb.emit(R.concat([relax.TupleGetItem(parts, 1), relax.TupleGetItem(parts, 0)], axis=1))
        return bb.emit(R.nn.softmax(both, axis=1)), bb.emit(R.mean(both, axis=[2, 3]))

    assert_as_llvm(program(body, (1, 3, 6, 6)), (1, 3, 6, 6))


@I.ir_module
class Calls:
    @RS.function(private=True)
    def twice(x: RS.Tensor(("n", 3), "float32")) -> RS.Tensor(("n", 3), "float32"):
        with RS.dataflow():
            y = RS.add(x, x)
            RS.output(y)
        return y

    @RS.function
    def main(x: RS.Tensor(("n", 3), "float32")):
        y = Calls.twice(x)
        z = RS.nn.relu(y)
        return z


def test_calls_and_symbolic_sizes() -> None:
    assert_as_llvm(Calls, (5, 3))


def test_an_op_that_is_no_tir_is_named() -> None:
    def body(bb: Any, x: Any) -> Any:
        return bb.emit(R.call_dps_packed("somebody.else", relax.Tuple([x]), relax.TensorType((2, 3), "float32")))

    with pytest.raises(NotInterpretable, match=r"relax\.call_dps_packed"):
        run_function(program(body, (2, 3)), "main", [np.zeros((2, 3), "float32")])


@I.ir_module
class Forms:
    @RS.function
    def branch(c: RS.Tensor((), "bool"), x: RS.Tensor((2, 3), "float32")):
        if c:
            y = RS.add(x, x)
            z = RS.nn.relu(y)
        else:
            z = RS.exp(x)
        return z

    @RS.function
    def cast(x: RS.Tensor(ndim=2, dtype="float32")):
        n = T.int64()
        y = RS.match_cast(x, RS.Tensor((n, 3), "float32"))
        z = RS.reshape(y, (n * 3,))
        return z

    @RS.function
    def tuples(t: RS.Tuple(RS.Tensor((2,), "float32"), RS.Tuple(RS.Tensor((2,), "float32")))):
        a = t[0]
        b = t[1][0]
        c = RS.add(a, b)
        return (c, (a, t[1]))

    @RS.function
    def filled(s: RS.Shape(["n", "m"])):
        n = T.int64()
        m = T.int64()
        z = RS.full(RS.shape([n, m]), RS.const(2.0, "float32"), dtype="float32")
        return z

    @RS.function
    def joined(x: RS.Tensor(("n", 2), "float32"), y: RS.Tensor(("m", 2), "float32")):
        z = RS.concat((x, y), axis=0)
        w = RS.sum(z)
        return w

    @RS.function
    def same(x: RS.Tensor(("n",), "float32"), y: RS.Tensor(("n",), "float32")):
        z = RS.add(x, y)
        return z


def ones(*shape: int) -> Any:
    return np.ones(shape, "float32")


def test_the_branch_that_the_condition_chooses() -> None:
    x = -ones(2, 3)
    assert not run_function(Forms, "branch", [np.array(True), x]).any()
    np.testing.assert_allclose(run_function(Forms, "branch", [np.array(False), x]), np.exp(x), rtol=1e-6)


def test_match_cast_names_sizes() -> None:
    assert run_function(Forms, "cast", [ones(4, 3)]).shape == (12,)
    with pytest.raises(NotInterpretable, match=r"shape \[4, 2\] is no"):
        run_function(Forms, "cast", [ones(4, 2)])


def test_tuples_in_tuples() -> None:
    a, b = ones(2), 2 * ones(2)
    total, (first, rest) = run_function(Forms, "tuples", [(a, (b,))])
    assert total.tolist() == [3, 3]
    assert first.tolist() == [1, 1]
    assert [x.tolist() for x in rest] == [[2, 2]]


def test_shapes_are_inputs() -> None:
    assert run_function(Forms, "filled", [(2, 3)]).tolist() == [[2, 2, 2], [2, 2, 2]]


def test_a_sum_of_sizes_is_one_too() -> None:
    total = run_function(Forms, "joined", [ones(3, 2), ones(4, 2)])
    assert isinstance(total, np.ndarray)
    assert total == 14


def test_sizes_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(NotInterpretable, match=r"shape \[3\] is no"):
        run_function(Forms, "same", [ones(2), ones(3)])


@I.ir_module
class InPlace:
    @T.prim_func(private=True, s_tir=True)
    def double(x: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("double"):
                v = T.axis.spatial(4, i)
                x[v] = x[v] * T.float32(2)

    @RS.function
    def main(x: RS.Tensor((4,), "float32")):
        y = RS.add(x, x)
        z = RS.call_tir_inplace(InPlace.double, (y,), [0], out_ty=RS.Tensor((4,), "float32"))
        return z


def test_what_is_overwritten_is_the_result() -> None:
    assert_as_llvm(InPlace, (4,))


@I.ir_module
class Sized:
    @T.prim_func(private=True, s_tir=True)
    def scaled(x: T.Buffer((2,), "float32"), n: T.int64, y: T.Buffer((2,), "float32")):
        for i in range(2):
            with T.sblock("scaled"):
                v = T.axis.spatial(2, i)
                y[v] = x[v] * T.Cast("float32", n)

    @RS.function
    def main(x: RS.Tensor((2,), "float32"), z: RS.Tensor(("k",), "float32")):
        k = T.int64()
        y = RS.call_tir(Sized.scaled, (x, k + 1), out_ty=RS.Tensor((2,), "float32"))
        return y


def test_sizes_are_arguments_of_tir_too() -> None:
    assert run_function(Sized, "main", [ones(2), ones(3)]).tolist() == [4, 4]
    assert_as_llvm(Sized, (2,), (3,))


@I.ir_module
class Ramp:
    @T.prim_func(private=True, s_tir=True)
    def ramp(at: T.handle):
        m = T.int64()
        y = T.match_buffer(at, (m,), "float32")
        for i in range(m):
            with T.sblock("ramp"):
                v = T.axis.spatial(m, i)
                y[v] = T.Cast("float32", v)

    @RS.function
    def main(x: RS.Tensor(("k",), "float32")):
        k = T.int64()
        y = RS.call_tir(Ramp.ramp, (), out_ty=RS.Tensor((k + 1,), "float32"))
        return y


def test_the_type_of_a_result_says_how_large_it_is() -> None:
    assert run_function(Ramp, "main", [ones(3)]).tolist() == [0, 1, 2, 3]


def test_worlds_run_together_with_the_numbers_of_each() -> None:
    """The constant is the same in all of them."""

    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(R.add(x, relax.const(np.arange(3, dtype="float32"))))
        return builder.emit(R.nn.softmax(y)), builder.emit(R.sum(R.permute_dims(x), axis=[1]))

    mod = legalize(program(body, (2, 3)))
    inputs = np.random.default_rng(0).standard_normal((4, 2, 3)).astype("float32")
    together = RelaxInterpreter(mod).call("main", [inputs])
    for world, x in enumerate(inputs):
        alone = run_function(mod, "main", [x])
        assert all((a == b[world]).all() for a, b in zip(alone, together, strict=True))


def test_worlds_that_take_different_branches_are_refused() -> None:
    x = -ones(2, 2, 3)
    interpreter = RelaxInterpreter(legalize(Forms))
    assert not interpreter.call("branch", [np.array([True, True]), x]).any()
    with pytest.raises(NotInterpretable, match="differs between worlds"):
        interpreter.call("branch", [np.array([True, False]), x])
