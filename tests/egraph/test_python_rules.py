"""Rules written in Python: what they say, where they end, and how their mistakes are told."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from compare import assert_same_fast
from programs import AVX2, program
from tvm import relax

import eqsat_layout
from eqsat_layout import op, rule
from eqsat_layout.errors import EqsatError, RuleError
from eqsat_layout.graph.constants import number_text, uniform_number
from eqsat_layout.soundness import assert_rules_sound
from eqsat_layout.tir.extents import extent_of


@rule
def silu_of_x(x: Any) -> Iterator[Any]:
    yield op.multiply(x, op.sigmoid(x))
    yield op.nn.silu(x)


@rule
def concat_of_concat(x: Any, y: Any, z: Any, axis: Any) -> Iterator[Any]:
    yield op.concat([op.concat([x, y], axis=axis), z], axis=axis)
    yield op.concat([x, y, z], axis=axis)


@rule
def pool_of_pool(x: Any, first: Any, second: Any) -> Iterator[Any]:
    yield op.nn.max_pool2d(op.nn.max_pool2d(x, (1, 1), strides=first), (1, 1), strides=second)
    if len(first) != 2:
        return
    yield op.nn.max_pool2d(x, (1, 1), strides=[a * b for a, b in zip(first, second, strict=True)])


@rule
def scaled(x: Any) -> Iterator[Any]:
    yield op.add(x, x)
    yield op.multiply(x, relax.const(2.0, x.ty.dtype))


@rule
def halves(x: Any) -> Iterator[Any]:
    parts = op.split(x, 2, axis=0)
    yield op.concat([parts[0], parts[1]], axis=0)
    yield x


@rule
def one_conv(x: Any, w: Any, v: Any) -> Iterator[Any]:
    yield op.concat([op.nn.conv2d(x, w, padding=[1, 1, 1, 1]), op.nn.conv2d(x, v, padding=[1, 1, 1, 1])], axis=1)
    yield op.nn.conv2d(x, op.concat([w, v], axis=0), padding=[1, 1, 1, 1])


@rule
def big_only(x: Any) -> Iterator[Any]:
    yield op.exp(op.negative(x))
    if any(int(extent) < 1000 for extent in x.ty.shape):
        return
    yield op.divide(relax.const(1.0, "float32"), op.exp(x))


def silu(b: Any, x: Any) -> Any:
    return b.emit(relax.op.multiply(x, b.emit(relax.op.sigmoid(x))))


def concats(b: Any, x: Any, y: Any, z: Any) -> Any:
    return b.emit(relax.op.concat([b.emit(relax.op.concat([x, y], axis=0)), z], axis=0))


def pools(b: Any, x: Any) -> Any:
    first = b.emit(relax.op.nn.max_pool2d(x, (1, 1), strides=(2, 3)))
    return b.emit(relax.op.nn.max_pool2d(first, (1, 1), strides=(2, 1)))


def parts(b: Any, x: Any) -> Any:
    both = b.emit(relax.op.split(x, 2, axis=0))
    return b.emit(relax.op.concat([b.emit(both[0]), b.emit(both[1])], axis=0))


EXAMPLES = {
    "silu": (silu_of_x, silu, [(64, 128)], "R.nn.silu(", "R.sigmoid("),
    "concat": (concat_of_concat, concats, [(64, 512), (3, 512), (2, 512)], "(x0, x1, x2)", "(x0, x1)"),
    "pools": (pool_of_pool, pools, [(1, 8, 96, 96)], "strides=[4, 3]", "strides=[2, 3]"),
    "nothing-left": (halves, parts, [(64, 512)], "x0", "R.split"),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_rule_makes_what_it_says(name: str) -> None:
    own, body, shapes, there, gone = EXAMPLES[name]
    mod = program(body, *shapes)
    plan = eqsat_layout.plan(mod, "llvm", rules=[own])
    text = plan.module.script()
    assert there in text, text
    assert gone not in text, text
    assert_same_fast(mod, plan.module)


def test_what_is_made_holds_constants_and_is_compiled() -> None:
    mod = program(lambda b, x: b.emit(relax.op.add(x, x)), (8, 16))
    assert_same_fast(mod, eqsat_layout.optimize(mod, "llvm", rules=[scaled], validate=True))


@rule
def times_one(x: Any) -> Iterator[Any]:
    yield op.multiply(x, 1)
    yield x


@rule
def plus_zero(x: Any) -> Iterator[Any]:
    yield op.add(x, 0)
    yield x


@pytest.mark.parametrize(
    ("constant", "is_gone"),
    [
        (np.float32(1), True),
        (np.ones((8, 1), "float32"), True),
        (np.ones((2, 1, 1), "float32"), False),  # the product has more axes
        (np.array([1, 2] * 8, "float32"), False),
        (np.float32(-1), False),
    ],
)
def test_a_number_in_a_pattern_is_a_constant_that_holds_it_everywhere(constant: Any, is_gone: bool) -> None:
    def body(b: Any, x: Any) -> Any:
        return b.emit(relax.op.multiply(b.emit(relax.op.exp(x)), relax.const(constant)))

    mod = program(body, (8, 16))
    plan = eqsat_layout.plan(mod, "llvm", rules=[times_one])
    assert ("multiply" not in plan.module.script()) == is_gone
    assert_same_fast(mod, plan.module)


def test_what_a_constant_holds_is_fuzzed() -> None:
    """-0 + 0 is 0: the fuzzer makes constants that hold what a rule looks for."""
    with pytest.raises(AssertionError, match="rule 'plus_zero' is not sound"):
        assert_rules_sound(plus_zero)


def test_numbers_as_rules_write_them() -> None:
    for value, text in ((1.0, "1"), (-0.0, "-0"), (0, "0"), (True, "1"), (0.5, "0.5"), (np.inf, "inf"), (-3, "-3")):
        assert number_text(value) == text
    assert uniform_number(np.full((2, 3), np.nan, "float32")) == "nan"
    assert uniform_number(np.array([0.0, -0.0])) is None
    assert uniform_number(np.empty((0, 2))) is None


def test_what_is_made_has_the_layouts_and_algorithms_that_the_target_offers() -> None:
    weights = [relax.const(np.random.default_rng(i).random((32, 32, 3, 3), np.float32)) for i in range(2)]

    def body(b: Any, x: Any) -> Any:
        both = [b.emit(relax.op.nn.conv2d(x, w, padding=1)) for w in weights]
        return b.emit(relax.op.concat(both, axis=1))

    mod = program(body, (1, 32, 56, 56))
    exact, free = (eqsat_layout.plan(mod, AVX2, rules=[one_conv], approx=approx) for approx in (False, True))
    (row,) = [row for row in str(exact.explain()).splitlines() if row.lstrip().startswith("1 ") and "conv2d" in row]
    assert "NHWC " in row or "NCHW16c" in row, row
    assert "winograd" in str(free.explain())
    assert free.cost < exact.cost < eqsat_layout.plan(mod, AVX2, approx=False).cost
    assert_same_fast(mod, exact.module)


def test_symbolic_sizes_are_passed_on() -> None:
    from tvm import tirx

    n = tirx.Var("n", "int64")
    mod = program(silu, (n, 128))
    plan = eqsat_layout.plan(mod, "llvm", rules=[silu_of_x])
    assert "R.nn.silu" in plan.module.script()
    assert [extent_of(e) for e in plan.module["main"].ret_ty.shape.values] == ["n", 128]


def test_a_guard_that_is_never_true_is_noted() -> None:
    mod = program(lambda b, x: b.emit(relax.op.exp(b.emit(relax.op.negative(x)))), (8, 16))
    (note,) = eqsat_layout.plan(mod, "llvm", rules=[big_only]).notes
    assert re.match(r"rule big_only \(test_python_rules.py:\d+\) was never applied: .* its guard is never true", note)


def test_a_rule_is_shown_as_text() -> None:
    assert '(is k0 "relax.multiply") (= t1 (Op k1 (Arg x__ (End)))) (is k1 "relax.sigmoid")' in str(silu_of_x)


def test_a_pattern_names_the_attributes_that_may_vary() -> None:
    """Those that it does not name have to have their defaults."""

    @rule
    def of_default(x: Any) -> Iterator[Any]:
        yield op.nn.softmax(x)
        yield op.nn.relu(x)

    mod = program(lambda b, x: b.emit(relax.op.nn.softmax(x, axis=0)), (8, 16))
    (note,) = eqsat_layout.plan(mod, "llvm", rules=[of_default]).notes
    assert note.endswith("nothing in the program matches relax.nn.softmax(x) with the default of axis")


def test_a_pattern_that_is_not_there_is_told_as_it_was_written() -> None:
    """It was the facts that are made of it: (= t0 (Op k0 (Arg x__ (End))))."""
    (note,) = eqsat_layout.plan(program(lambda b, x: b.emit(relax.op.exp(x)), (8, 16)), "llvm", rules=[silu_of_x]).notes
    assert note.endswith("nothing in the program matches relax.multiply(x, relax.sigmoid(x))")


def test_ops_of_tvm_in_a_pattern_are_told_from_ours() -> None:
    with pytest.raises(RuleError, match=r"are those of eqsat_layout\.op"):

        @rule
        def of_tvm(x: Any) -> Iterator[Any]:
            yield relax.op.exp(x)
            yield x


def no_pattern(x: Any) -> Iterator[Any]:
    yield x
    yield x


def no_op(x: Any) -> Iterator[Any]:
    yield op.nn.rely(x)
    yield x


def unused(x: Any, y: Any) -> Iterator[Any]:
    yield op.exp(x)
    yield y


def both(x: Any) -> Iterator[Any]:
    yield op.nn.softmax(x, axis=x)
    yield x


def arithmetic(x: Any, axis: Any) -> Iterator[Any]:
    yield op.nn.softmax(x, axis=axis + 1)
    yield x


def missing(x: Any) -> Iterator[Any]:
    yield op.matmul(x)
    yield x


def text_operand(x: Any) -> Iterator[Any]:
    yield op.add(x, "one")
    yield x


def constant_operand(x: Any) -> Iterator[Any]:
    yield op.add(x, relax.const(1.0))
    yield x


def list_of_one(x: Any, axis: Any) -> Iterator[Any]:
    yield op.max(x, axis=[axis])
    yield x


def returns(x: Any) -> Any:
    return op.exp(x)


MISTAKES: dict[str, tuple[Callable[..., Any], int, str]] = {
    "no-pattern": (no_pattern, 0, "the first yield is a pattern"),
    "no-op": (no_op, 1, "there is no op 'relax.nn.rely'; did you mean 'relax.nn.relu'?"),
    "unused": (unused, 0, "the pattern says nothing of 'y'"),
    "both": (both, 0, "'x' can't be a tensor and an attribute"),
    "arithmetic": (arithmetic, 1, "in a pattern 'axis' stands for anything"),
    "missing": (missing, 1, "relax.matmul: missing a required argument: 'x2'"),
    "text": (text_operand, 1, "relax.add: operand x2 is a variable or an op in a pattern, not 'one'"),
    "constant": (constant_operand, 1, "relax.add: operand x2 is a variable or an op in a pattern, not R.const(1.0"),
    "list": (list_of_one, 1, "relax.max: axis is one variable or a plain value in a pattern, not [axis]; give it"),
    "no-generator": (returns, 0, "a rule yields its pattern, and then what that equals"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_with_its_line(name: str) -> None:
    function, line, said = MISTAKES[name]
    with pytest.raises(RuleError) as caught:
        rule(function)
    where = f"{function.__code__.co_filename}:{function.__code__.co_firstlineno + line}: "
    assert str(caught.value).startswith(where + said), caught.value


def test_a_mistake_in_the_result_is_told_with_its_line() -> None:
    @rule
    def fails(x: Any) -> Iterator[Any]:
        yield op.exp(x)
        yield op.nn.relu(x) if x.ty.shape[17] else x

    mod = program(lambda b, x: b.emit(relax.op.exp(x)), (8, 16))
    with pytest.raises(EqsatError, match=r"test_python_rules.py:\d+: IndexError"):
        eqsat_layout.plan(mod, "llvm", rules=[fails])


def test_a_result_that_tvm_refuses_is_told_in_words_alone(capfd: pytest.CaptureFixture[str]) -> None:
    """Notes printed TVM's record of the op, ``ir.Op(span=None, ...)``, and a function that failed left a warning of
    TVM's, "BlockBuilder destroyed with remaining blocks!", on standard error."""

    @rule
    def beyond(x: Any) -> Iterator[Any]:
        yield op.exp(x)
        yield op.nn.softmax(x, axis=7)

    @rule
    def misspelt(x: Any) -> Iterator[Any]:
        yield op.exp(x)
        yield op.nn.rely(x)

    mod = program(lambda b, x: b.emit(relax.op.exp(x)), (8, 16))
    (note,) = eqsat_layout.plan(mod, "llvm", rules=[beyond]).notes
    assert "can't be made: In relax.nn.softmax, the input axis 7 is out of range" in note
    with pytest.raises(RuleError, match=r"there is no op 'relax\.nn\.rely'"):
        eqsat_layout.plan(mod, "llvm", rules=[misspelt])
    gc.collect()
    assert "BlockBuilder" not in capfd.readouterr().err


def test_an_ill_typed_result_is_a_note() -> None:
    @rule
    def ill_typed(x: Any) -> Iterator[Any]:
        yield op.exp(x)
        yield op.matmul(x, x)

    mod = program(lambda b, x: b.emit(relax.op.exp(x)), (8, 16))
    (note,) = eqsat_layout.plan(mod, "llvm", rules=[ill_typed]).notes
    assert "rule ill_typed" in note
    assert "its result of (float32[8,16]) can't be made" in note
