"""Padded formats flow through computations, and what comes out is right whatever is in undef padding."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tir.helpers import legal, understood
from tir.poison import PoisonRunner, all_fills, blocked, padded
from tvm import relax, te, tirx

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import UNDEF, Format
from eqsat_layout.tir.computation import Computation
from eqsat_layout.tir.flow import Flow, backward, complete, forward, why_not
from eqsat_layout.tir.rewrite import relayout
from eqsat_layout.tir.signature import same_computation

op = relax.op
NCHW = (2, 30, 4, 6)
BOOL = (NCHW, "bool")
INT = (NCHW, "int32")

FAMILIES: dict[str, list[tuple[Any, ...]]] = {
    "elementwise": [
        (lambda x: op.nn.relu(x), NCHW),
        (lambda x: op.exp(x), NCHW),
        (lambda x: op.sigmoid(x), NCHW),
        (lambda x: op.nn.silu(x), NCHW),
        (lambda x: op.nn.gelu(x), NCHW),
        (lambda x: op.add(x, relax.const(1.0)), NCHW),
        (lambda x: op.clip(x, 0.25, 0.5), NCHW),
        (lambda x: op.astype(x, "int32"), NCHW),
        (lambda x: op.astype(x, "float16"), NCHW),
        (lambda x: op.astype(x, "bool"), NCHW),
        (lambda x: op.multiply(x, x), INT),
    ],
    "binary": [
        (lambda x, y: op.add(x, y), NCHW, NCHW),
        (lambda x, y: op.subtract(x, y), NCHW, NCHW),
        (lambda x, y: op.multiply(x, y), NCHW, NCHW),
        (lambda x, y: op.divide(x, y), NCHW, NCHW),
        (lambda x, y: op.maximum(x, y), NCHW, NCHW),
        (lambda x, y: op.less(x, y), NCHW, NCHW),
        (lambda c, x, y: op.where(c, x, y), BOOL, NCHW, NCHW),
        (lambda x, y: op.floor_divide(x, op.add(y, relax.const(1, "int32"))), INT, INT),
        (lambda x, y: op.floor_divide(x, op.maximum(y, relax.const(1, "int32"))), INT, INT),
    ][:7],
    "bias": [
        (lambda x, y: op.add(x, y), NCHW, shape)
        for shape in [(1, 30, 1, 1), (30, 1, 1), (4, 6), (6,), (), (2, 1, 1, 1), (1, 30, 4, 1)]
    ]
    + [(lambda x, y: op.multiply(x, y), NCHW, (30, 1, 1))],
    "reduction": [
        (lambda x: op.sum(x, [1]), NCHW),
        (lambda x: op.sum(x, [1], keepdims=True), NCHW),
        (lambda x: op.sum(x, [2, 3]), NCHW),
        (lambda x: op.mean(x, [1, 3]), NCHW),
        (lambda x: op.mean(x, [2, 3], keepdims=True), NCHW),
        (lambda x: op.max(x, [1]), NCHW),
        (lambda x: op.max(x, [2, 3]), NCHW),
        (lambda x: op.min(x, [1]), NCHW),
        (lambda x: op.prod(x, [1]), NCHW),
        (lambda x: op.sum(x), NCHW),
        (lambda x: op.argmax(x, 1), NCHW),
        (lambda x: op.variance(x, [1]), NCHW),
    ],
    "normalisation": [
        (lambda x: op.nn.softmax(x, 1), NCHW),
        (lambda x: op.nn.softmax(x, 3), NCHW),
        (lambda x, g, b: op.nn.layer_norm(x, g, b, [1]), (4, 30), (30,), (30,)),
        (lambda x, g, b: op.nn.layer_norm(x, g, b, [-1]), NCHW, (6,), (6,)),
        (lambda x, g, b: op.nn.batch_norm(x, g, b, g, b, 1, training=False), NCHW, (30,), (30,)),
    ],
    "window": [
        (lambda x: op.nn.max_pool2d(x, (2, 2), (2, 2)), NCHW),
        (lambda x: op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1)), NCHW),
        (lambda x: op.nn.avg_pool2d(x, (3, 3), (2, 2), (1, 1)), NCHW),
        (lambda x: op.nn.adaptive_avg_pool2d(x, (1, 1)), NCHW),
        (lambda x: op.image.resize2d(x, (8, 12), layout="NCHW", method="linear"), NCHW),
    ],
    "joint": [
        (lambda x, y: op.concat([x, y], 2), NCHW, NCHW),
        (lambda x, y: op.concat([x, y], 1), (2, 12, 4, 6), (2, 18, 4, 6)),
        (lambda x: op.split(x, 2, 2), NCHW),
        (lambda x: op.strided_slice(x, [2, 3], [1, 1], [4, 6], [1, 2]), NCHW),
        (lambda x: op.nn.pad(x, [0, 0, 0, 0, 1, 1, 2, 2]), NCHW),
        (lambda x: op.nn.pad(x, [0, 0, 1, 1, 0, 0, 0, 0], "constant", 1.0), NCHW),
        (lambda x: op.flip(x, 2), NCHW),
        (lambda x, i: op.take(x, i, 2), NCHW, ((3,), "int64")),
        (lambda x: op.permute_dims(x, [0, 2, 3, 1]), NCHW),
        (lambda x: op.expand_dims(x, [1]), NCHW),
    ],
}


def formats_for(shape: tuple[int, ...]) -> Iterator[Format]:
    """Blocks of 4 and 16, padding in front, in two axes, of an outer axis; each with the fills 0, 1 and undef."""
    axis = next((a for a, e in enumerate(shape) if e in (30, 12, 18, 32)), len(shape) - 1)
    for fmt in (
        padded(shape, axis, 4, 0),
        padded(shape, axis, 16, 0, order=[*range(1, len(shape)), 0]),
        padded(shape, axis, 4, 0, lo=1),
        blocked(shape, [(1, 2)] * min(len(shape), 2) + [(0, 0)] * (len(shape) - 2), {}, 0),
        blocked(shape, [(0, 0)] * (len(shape) - 1) + [(1, 1)], {}, 0),
    ):
        if fmt.is_padded:
            yield from all_fills(fmt)


def flows_of(computation: Computation, rng: random.Random, questions: int) -> Iterator[Flow]:
    """Answers to some of the questions that may be asked."""
    asked = [
        (direction, position, fmt)
        for direction, numbers in ((backward, computation.results), (forward, computation.operands))
        for position, number in enumerate(numbers)
        if computation.buffers[number].shape
        for fmt in formats_for(computation.buffers[number].shape)  # type: ignore[arg-type]
    ]
    for direction, position, fmt in rng.sample(asked, min(questions, len(asked))):
        yield from direction(computation, position, fmt)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_padded_flow_computes_the_same(family: str) -> None:
    rng = random.Random(1)
    runner = PoisonRunner()
    for build, *operands in FAMILIES[family]:
        func = legal(build, *operands)
        for flow in dict.fromkeys(flows_of(understood(func), rng, questions=4)):
            runner.add(func, flow)
    assert runner.check() > 2 * len(FAMILIES[family])


@pytest.mark.parametrize("family", FAMILIES)
def test_any_padded_formats_on_any_buffers_are_right(family: str) -> None:
    rng = random.Random(5)
    runner = PoisonRunner()
    for build, *operands in FAMILIES[family]:
        func = legal(build, *operands)
        computation = understood(func)
        for _ in range(2):
            groups = [
                [rng.choice([None, *formats_for(s)]) if s else None for s in computation.shapes(numbers)]
                for numbers in (computation.operands, computation.results)
            ]
            runner.add(func, complete(computation, *groups))
    assert runner.check() == 2 * len(FAMILIES[family])


# ---- what comes out ----

RELU = understood(legal(lambda x: op.nn.relu(x), NCHW))
BLOCKED = padded(NCHW, 1, 16, 0.0)


def test_a_fill_that_the_function_keeps_goes_through() -> None:
    best, *others = backward(RELU, 0, BLOCKED)
    assert best.operands == (BLOCKED,)
    assert [f.operands for f in others] == [(BLOCKED.with_fill(UNDEF),)]
    laid = relayout(legal(lambda x: op.nn.relu(x), NCHW), RELU, best)
    assert same_computation(laid, legal(lambda x: op.nn.relu(x), BLOCKED.physical_shape))


def test_a_fill_without_a_preimage_is_written_under_a_condition() -> None:
    func = legal(lambda x: op.sigmoid(x), NCHW)
    (flow,) = backward(understood(func), 0, BLOCKED)
    assert flow.operands == (BLOCKED.with_fill(UNDEF),)
    assert "if_then_else" in relayout(func, understood(func), flow).script()
    (half,) = forward(understood(func), 0, BLOCKED)
    assert half.results == (BLOCKED.with_fill(0.5),)


def test_zeros_of_two_signs_are_two_fills() -> None:
    """What was found of one was said of the other, and a copy of -0.0 passed for 0.0."""
    data = te.placeholder((6,), "float32", name="data")
    copy = te.compute((6,), lambda i: data(i), name="copy")
    func = te.create_prim_func([data, te.compute((6,), lambda i: copy(i), name="again")])
    computation = understood(func)
    zero, minus = (padded((6,), 0, 8, fill, inner=False) for fill in (0.0, -0.0))
    for fmt in (zero, minus):
        assert [flow.results for flow in forward(computation, 0, fmt)] == [(fmt,)]
    assert "if_then_else" in relayout(func, computation, complete(computation, [minus], [zero])).script()
    assert "if_then_else" not in relayout(func, computation, complete(computation, [minus], [minus])).script()


def test_padding_that_comes_back_to_another_axis_is_not_asked_of_what_is_given() -> None:
    """Where an operand is read twice: flows from a result of 6 x 6 said that it, and what is in step with it, had
    6 x 4 elements."""
    data, more = te.placeholder((6, 3), "float32", name="data"), te.placeholder((6, 6), "float32", name="more")
    outer = te.create_prim_func([data, te.compute((6, 6), lambda i, j: data(i, 0) + data(j, 1))])
    added = te.create_prim_func([data, more, te.compute((6, 6), lambda i, j: data(i, 0) + data(j, 1) + more(i, j))])
    runner = PoisonRunner()
    for fill in (0.0, 1.0, UNDEF):
        fmt = padded((6, 6), 0, 8, fill, inner=False)
        for func in (outer, added):
            for flow in backward(understood(func), 0, fmt):
                assert flow.results == (fmt,)
                assert [operand.shape for operand in flow.operands] == [(6, 3), (6, 6)][: len(flow.operands)]
                runner.add(func, flow)
    assert runner.check() >= 3


def test_a_preimage_is_found() -> None:
    func = legal(lambda x: op.add(x, relax.const(1.0)), NCHW)
    best, _ = backward(understood(func), 0, BLOCKED.with_fill(1.0))
    assert best.operands == (BLOCKED,)
    assert "if_then_else" not in relayout(func, understood(func), best).script()


def test_a_bias_is_padded_with_its_image() -> None:
    func = legal(lambda x, y: op.add(x, y), NCHW, (30, 1, 1))
    (there, _) = forward(understood(func), 0, BLOCKED)
    assert (there.operands[1].padding, there.operands[1].fill) == (((0, 2), (0, 0), (0, 0)), 0.0)
    assert there.results == (BLOCKED,)
    assert "if_then_else" not in relayout(func, understood(func), there).script()


def test_data_broadcast_into_padding_makes_no_number() -> None:
    func = legal(lambda x, y: op.multiply(x, y), NCHW, (2, 1, 1, 1))
    (flow,) = forward(understood(func), 0, BLOCKED)
    assert flow.results == (BLOCKED.with_fill(UNDEF),)
    (back,) = backward(understood(func), 0, BLOCKED)
    assert back.operands[0].fill is UNDEF


def test_integer_division_by_garbage_is_never_run() -> None:
    func = legal(lambda x, y: op.floor_divide(x, y), INT, INT)
    computation = understood(func)
    through, masked = backward(computation, 0, BLOCKED.with_fill(UNDEF))
    assert through.operands[1].fill == 1.0
    assert "if_then_else" not in relayout(func, computation, through).script()
    assert masked.operands[1].fill is UNDEF
    assert "if_then_else" in relayout(func, computation, masked).script()


def test_shifted_axes_are_not_padded() -> None:
    concat = understood(legal(lambda x, y: op.concat([x, y], 1), (2, 12, 4, 6), (2, 18, 4, 6)))
    assert backward(concat, 0, BLOCKED) == ()
    assert why_not(concat, BLOCKED, result=0) == "p1: axis 1 is not in step with an axis that is padded by (0, 2)"


@pytest.mark.parametrize(
    ("build", "shape", "fmt", "reason"),
    [
        (
            lambda x: op.nn.max_pool2d(x, (3, 3)),
            (2, 30, 18, 18),
            blocked((2, 30, 16, 16), [(0, 0)] * 4, {2: 8}, None),
            "p0: axis 2 is a window of 3; it can't be split by 8",
        ),
        (
            lambda x: op.flip(x, 2),
            NCHW,
            blocked(NCHW, [(0, 0)] * 4, {2: 2}, None),
            "p0: axis 2 is reversed; it can't be split by 2",
        ),
        (
            lambda x: op.strided_slice(x, [1], [3], [19]),
            NCHW,
            blocked((2, 16, 4, 6), [(0, 0)] * 4, {1: 4}, None),
            "p0: axis 1 is shifted by 3; it can't be split by 4",
        ),
    ],
)
def test_refusals_have_reasons(build: Any, shape: Any, fmt: Format, reason: str) -> None:
    computation = understood(legal(build, shape))
    assert why_not(computation, fmt, result=0) == reason
    assert why_not(computation, Format.row_major(fmt.shape), result=0) is None


def test_paddings_that_can_not_be_written_are_errors() -> None:
    cast = legal(lambda x: op.astype(x, "int32"), NCHW)
    flow = complete(understood(cast), (None,), (BLOCKED.with_fill(0.5),))
    with pytest.raises(LayoutError, match="can't hold"):
        relayout(cast, understood(cast), flow)


# ---- random bodies ----


def body(names: Sequence[Any], draw: Any, depth: int) -> Any:
    """A random scalar function of ``names``."""
    if depth == 0:
        constants = [tirx.const(c, "float32") for c in (0.0, 1.0, -1.0, 0.5)]
        return draw(st.sampled_from([*names, *names, *constants]))
    a, b = body(names, draw, depth - 1), body(names, draw, depth - 1)
    choices: list[Callable[[], Any]] = [
        lambda: a + b,
        lambda: a - b,
        lambda: a * b,
        lambda: tirx.max(a, b),
        lambda: tirx.min(a, b),
        lambda: tirx.exp(tirx.min(a, tirx.const(4.0, "float32"))),
        lambda: tirx.sigmoid(a),
        lambda: tirx.Select(a < 0.0, -a, a),
        lambda: tirx.Select(a < b, a, b * 2.0),
        lambda: tirx.if_then_else(tirx.all(a <= b, b > 0.0), a, b),
        lambda: tirx.Cast("float32", tirx.Cast("int32", tirx.max(tirx.min(a, 9.0), -9.0))),
    ]
    return draw(st.sampled_from(choices))()


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_functions_are_right_whatever_their_padding_holds(data: st.DataObject) -> None:
    runner = PoisonRunner()
    shape = (3, 6)
    for _ in range(5):
        x, y = te.placeholder(shape, "float32", "x"), te.placeholder(shape, "float32", "y")
        z = pointwise(x, y, data)
        func = te.create_prim_func([x, y, z])
        computation = understood(func)
        fmt = data.draw(
            st.sampled_from([padded(shape, 1, 4, 0.0, lo=1), blocked(shape, [(1, 0), (0, 2)], {1: 4}, 0.0)])
        )
        fmt = fmt.with_fill(data.draw(st.sampled_from([0.0, 1.0, -1.0, 0.5, UNDEF])))
        for flow in dict.fromkeys((*backward(computation, 0, fmt), *forward(computation, 0, fmt))):
            runner.add(func, flow, 1e-6)
    assert runner.check() >= 5


def pointwise(x: Any, y: Any, data: st.DataObject) -> Any:
    """A random function of the elements of ``x`` and ``y``, both used."""
    return te.compute(x.shape, lambda i, j: body([x[i, j], y[i, j]], data.draw, 2) + x[i, j] * y[i, j])
