"""Tuples: as parameters, results, nested, taken apart, and given whole to an op."""

from __future__ import annotations

from typing import Any

from compare import assert_same_fast
from programs import assert_untouched, ops, program, transforms
from tvm import relax
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R

import eqsat_layout

# mypy: disable-error-code="no-untyped-def"


@I.ir_module
class TupleParameter:
    @R.function
    def main(
        p: R.Tuple(R.Tensor((2, 3, 4), "float32"), R.Tensor((2, 5, 4), "float32")), x: R.Tensor((2, 3, 4), "float32")
    ):
        with R.dataflow():
            a = p[0]
            b = R.permute_dims(a, [0, 2, 1])
            c = R.nn.relu(b)
            d = R.permute_dims(c, [0, 2, 1])
            whole = R.concat(p, axis=1)
            e = R.permute_dims(whole, [0, 2, 1])
            f = R.exp(e)
            g = R.permute_dims(f, [0, 2, 1])
            h = R.add(d, x)
            both = (h, g)
            R.output(both, h)
        return (both, p, h)


def test_a_tuple_parameter_taken_apart_and_whole() -> None:
    optimized = eqsat_layout.optimize(TupleParameter)
    assert transforms(optimized) == 0
    assert_same_fast(TupleParameter, optimized)


@I.ir_module
class Nested:
    @R.function
    def main(
        p: R.Tuple(R.Tuple(R.Tensor((3, 4), "float32"), R.Tensor((3, 4), "float32")), R.Tensor((3, 4), "float32")),
    ):
        with R.dataflow():
            inner = p[0]
            a = inner[1]
            b = R.permute_dims(a, [1, 0])
            c = R.tanh(b)
            d = R.permute_dims(c, [1, 0])
            e = R.permute_dims(p[1], [1, 0])
            f = R.permute_dims(e, [1, 0])
            t = (d, (f, a), inner)
            g = t[1]
            gv = (t, g, ())
            R.output(gv)
        return gv


def test_nested_tuples() -> None:
    optimized = eqsat_layout.optimize(Nested)
    assert transforms(optimized) == 0
    assert_same_fast(Nested, optimized)


def test_results_of_a_split_each_and_whole() -> None:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.permute_dims(x, [0, 2, 3, 1]))
        parts = builder.emit(op.split(y, 4, axis=3))
        a, b = builder.emit(parts[0]), builder.emit(parts[2])
        again = builder.emit(op.concat(parts, axis=3))
        c = builder.emit(op.permute_dims(builder.emit(op.add(a, b)), [0, 3, 1, 2]))
        return c, builder.emit(op.permute_dims(again, [0, 3, 1, 2]))

    mod = program(body, (2, 8, 3, 5))
    optimized = eqsat_layout.optimize(mod)
    assert transforms(optimized) == 0
    assert ops(optimized) == ["split", "concat", "add"]
    assert_same_fast(mod, optimized)


def test_a_whole_split_is_a_result() -> None:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.permute_dims(builder.emit(op.permute_dims(x, [1, 0])), [1, 0]))
        return builder.emit(op.split(y, 2, axis=1))

    mod = program(body, (3, 4))
    optimized = eqsat_layout.optimize(mod)
    assert ops(optimized) == ["split"]
    assert_same_fast(mod, optimized)


@I.ir_module
class Branches:
    @R.function
    def main(x: R.Tensor((4, 6), "float32"), k: R.Tensor((), "bool")):
        with R.dataflow():
            s = R.split(x, 2, axis=1)
            a = s[0]
            b = R.permute_dims(a, [1, 0])
            R.output(s, b)
        with R.dataflow():
            c = s[1]
            d = R.permute_dims(c, [1, 0])
            e = R.multiply(b, d)
            f = R.permute_dims(e, [1, 0])
            R.output(f)
        return (f, s)


def test_a_tuple_that_crosses_blocks() -> None:
    optimized = eqsat_layout.optimize(Branches)
    assert_same_fast(Branches, optimized)


def test_an_op_of_many_operands() -> None:
    """Operand lists are taken apart one by one, without recursion to their length."""

    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.permute_dims(builder.emit(op.permute_dims(x, [1, 0])), [1, 0]))
        call = relax.op.call_pure_packed("unknown", *([x, y] * 600), ty_args=relax.TensorType((2, 3), "float32"))
        return builder.emit(call)

    mod = program(body, (2, 3))
    optimized = eqsat_layout.optimize(mod)
    assert ops(optimized) == ["call_pure_packed"]
    relax.analysis.well_formed(optimized)


def test_a_concat_of_more_parts_than_python_recurses() -> None:
    """Its TIR is a condition within a condition, and so on: not understood, and left alone."""
    mod = program(lambda builder, x: op.concat([x] * 500, axis=0), (1, 2))
    assert_untouched(mod, eqsat_layout.optimize(mod))


def test_a_tuple_of_tuples_is_put_together_again() -> None:
    """TVM's test_dispatch_topk_gpu: a field that is a tuple was taken for its own fields."""

    def body(builder: Any, x: Any) -> Any:
        pair = builder.emit(op.split(x, 2, axis=1))
        other = builder.emit(op.split(builder.emit(op.permute_dims(builder.emit(op.permute_dims(x)))), 2, axis=1))
        return builder.emit(relax.Tuple([pair, other]))

    mod = program(body, (4, 6))
    assert_same_fast(mod, eqsat_layout.optimize(mod))
