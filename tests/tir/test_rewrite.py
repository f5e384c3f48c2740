"""A function in other formats computes the same, bit for bit, and looks as TE would have made it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import tvm
from tir.helpers import Runner, concrete, fmt, formats_for, legal, named, understood
from tvm import relax
from tvm.script import tirx as T

from eqsat_layout.maps import UNDEF, Digit, Extent, Format, IndexMap
from eqsat_layout.tir.computation import Computation
from eqsat_layout.tir.flow import Flow, backward, complete, forward
from eqsat_layout.tir.rewrite import relayout
from eqsat_layout.tir.signature import same_computation

op = relax.op
NCHW = (2, 32, 4, 6)
BOOL = (NCHW, "bool")

FAMILIES: dict[str, list[tuple[Any, ...]]] = {
    "elementwise": [
        (lambda x: op.nn.relu(x), NCHW),
        (lambda x: op.nn.gelu(x), (2, 8, 6)),
        (lambda c, x, y: op.where(c, x, y), BOOL, NCHW, NCHW),
        (lambda x: op.astype(x, "float16"), NCHW),
        (lambda x: op.multiply(x, x), ((4, 6), "int32")),
    ],
    "broadcast": [(lambda x, y: op.add(x, y), NCHW, shape) for shape in [(1, 32, 1, 1), (32, 1, 1), (4, 6), (6,), ()]],
    "reduction": [
        (lambda x: op.sum(x, [2]), NCHW),
        (lambda x: op.sum(x, [1], keepdims=True), NCHW),
        (lambda x: op.mean(x, [2, 3], keepdims=True), NCHW),
        (lambda x: op.max(x, [1, 3]), NCHW),
        (lambda x: op.sum(x), NCHW),
        (lambda x: op.argmax(x, 1), NCHW),
    ],
    "normalisation": [
        (lambda x: op.nn.softmax(x, 1), NCHW),
        (lambda x, g, b: op.nn.layer_norm(x, g, b, [-1]), NCHW, (6,), (6,)),
        (lambda x, g, b: op.nn.group_norm(x, g, b, 4, 1, [2, 3]), NCHW, (32,), (32,)),
        (lambda x, g, b: op.nn.batch_norm(x, g, b, g, b, 1), NCHW, (32,), (32,)),
    ],
    "window": [
        (lambda x: op.nn.max_pool2d(x, (2, 2), (2, 2)), NCHW),
        (lambda x: op.nn.avg_pool2d(x, (3, 3), (2, 2), (1, 1)), NCHW),
        (lambda x: op.nn.adaptive_avg_pool2d(x, (1, 1)), NCHW),
        (lambda x: op.image.resize2d(x, (8, 12), layout="NCHW", method="linear"), NCHW),
    ],
    "joint": [
        (lambda x, y: op.concat([x, y], 1), NCHW, (2, 16, 4, 6)),
        (lambda x: op.split(x, 2, 1), NCHW),
        (lambda x: op.strided_slice(x, [1, 3], [4, 1], [20, 6], [1, 2]), NCHW),
        (lambda x: op.nn.pad(x, [0, 0, 0, 0, 1, 1, 2, 2]), NCHW),
        (lambda x: op.flip(x, 1), NCHW),
        (lambda x, i: op.take(x, i, 1), NCHW, ((3,), "int64")),
    ],
    "view": [
        (lambda x: op.permute_dims(x, [0, 2, 3, 1]), NCHW),
        (lambda x: op.reshape(x, (2, 4, 8, 24)), NCHW),
        (lambda x: op.layout_transform(x, lambda n, c, h, w: (n, c // 4, h, w, c % 4)), NCHW),
        (lambda x: op.expand_dims(x, [1]), (4, 6)),
    ],
    "symbolic": [
        (lambda x, y: op.add(x, y), ("n", 32, 4, 6), (32, 1, 1)),
        (lambda x: op.nn.softmax(x, 1), ("n", 8)),
        (lambda x: op.mean(x, [2, 3]), ("n", 32, 4, 6)),
        (lambda x: op.reshape(x, (x.ty.shape[0], 32)), ("n", 4, 8)),
        (lambda x: op.sum(x, [0]), ("n", 8)),
    ],
}


def flows_of(computation: Computation) -> Iterator[Flow]:
    for direction, numbers in ((backward, computation.results), (forward, computation.operands)):
        for position, number in enumerate(numbers):
            for layout in formats_for(computation.buffers[number].shape):
                yield from direction(computation, position, layout)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_flow_computes_the_same(family: str) -> None:
    runner = Runner()
    for build, *operands in FAMILIES[family]:
        func = legal(build, *operands)
        flows = list(dict.fromkeys(flows_of(understood(func))))
        assert len(flows) > 1
        for flow in flows:
            runner.add(func, flow)
    assert runner.check() > len(FAMILIES[family])


CONTRACTIONS: list[tuple[Any, ...]] = [
    (lambda x, w: op.nn.conv2d(x, w, padding=(1, 1), strides=(2, 2)), (1, 32, 5, 6), (16, 32, 3, 3)),
    (lambda x, w: op.nn.conv2d(x, w, groups=32, padding=(1, 1)), (1, 32, 5, 6), (32, 1, 3, 3)),
    (lambda x, w: op.nn.conv2d(x, w, groups=4), (1, 32, 5, 6), (32, 8, 3, 3)),
    (lambda x, w: op.nn.conv2d_transpose(x, w), (1, 16, 4, 4), (16, 16, 3, 3)),
    (lambda x, y: op.matmul(x, y), (4, 8, 12), (4, 12, 6)),
    (lambda x, y: op.matmul(x, y), ("n", 4, 16), (16, 6)),
]


def some_format(rng: random.Random, shape: tuple[Extent, ...]) -> Format:
    """Any digits in any order and grouping; symbolic axes stay whole and alone."""
    digits: list[Digit] = []
    alone: list[list[Digit]] = []
    for axis, extent in enumerate(shape):
        if isinstance(extent, str):
            alone.append([Digit(axis, 1, extent)])
            continue
        stride = 1
        while extent > 1:
            factor = rng.choice([f for f in range(2, extent + 1) if extent % f == 0])
            digits.append(Digit(axis, stride, factor))
            stride, extent = stride * factor, extent // factor
    rng.shuffle(digits)
    dims: list[list[Digit]] = [[] for _ in range(rng.randint(1, 5))]
    for digit in digits:
        rng.choice(dims).append(digit)
    dims += alone
    rng.shuffle(dims)
    return Format.make(IndexMap.make(shape, dims))


@pytest.mark.parametrize("case", range(len(CONTRACTIONS)))
def test_contractions_compute_the_same_under_any_formats(case: int) -> None:
    rng = random.Random(case)
    build, *shapes = CONTRACTIONS[case]
    func = legal(build, *shapes)
    computation = understood(func)
    runner = Runner()
    for _ in range(6):
        operands, results = (
            [some_format(rng, s) if rng.random() < 0.8 else None for s in computation.shapes(numbers)]
            for numbers in (computation.operands, computation.results)
        )
        runner.add(func, complete(computation, operands, results))
    assert runner.check() == 6


@pytest.mark.parametrize("family", ["reduction", "window", "joint", "view"])
def test_any_formats_on_any_buffers_are_right(family: str) -> None:
    rng = random.Random(7)
    runner = Runner()
    for build, *operands in FAMILIES[family]:
        func = legal(build, *operands)
        computation = understood(func)
        for _ in range(3):
            groups = [computation.operands, computation.results, computation.internal]
            runner.add(func, Flow(*(tuple(some_format(rng, s) for s in computation.shapes(g)) for g in groups)))
    assert runner.check() == 3 * len(FAMILIES[family])


@T.prim_func(s_tir=True)
def fused(
    x: T.Buffer((2, 8, 4, 6), "float32"), b: T.Buffer((1, 8, 1, 1), "float32"), y: T.Buffer((2, 8, 24), "float32")
) -> None:
    biased = T.sblock_alloc_buffer((2, 8, 4, 6))
    total = T.sblock_alloc_buffer((2, 8))
    for i, j, k, m in T.grid(2, 8, 4, 6):
        with T.sblock("biased"):
            vi, vj, vk, vm = T.axis.remap("SSSS", [i, j, k, m])
            biased[vi, vj, vk, vm] = x[vi, vj, vk, vm] + b[0, vj, 0, 0]
    for i, j, k, m in T.grid(2, 8, 4, 6):
        with T.sblock("total"):
            vi, vj, vk, vm = T.axis.remap("SSRR", [i, j, k, m])
            with T.init():
                total[vi, vj] = T.float32(0)
            total[vi, vj] = total[vi, vj] + biased[vi, vj, vk, vm]
    for i, j, k in T.grid(2, 8, 24):
        with T.sblock("y"):
            vi, vj, vk = T.axis.remap("SSS", [i, j, k])
            y[vi, vj, vk] = biased[vi, vj, vk // 6, vk % 6] / total[vi, vj]


def test_fused_functions_with_int32_indices_compute_the_same() -> None:
    computation = understood(fused)
    runner = Runner()
    split = fmt((2, 8, 24), [(0, 1, 2)], [(1, 4, 2)], [(2, 1, 24)], [(1, 1, 4)])
    (flow,) = backward(computation, 0, split)
    assert str(flow.operands[0].index_map) == "(i, j, k, l) -> (i, j//4, k*6 + l, j%4)"
    for flow in dict.fromkeys(flows_of(computation)):
        runner.add(fused, flow)
    rng = random.Random(3)
    groups = [computation.operands, computation.results, computation.internal]
    for _ in range(5):
        laid = runner.add(fused, Flow(*(tuple(some_format(rng, s) for s in computation.shapes(g)) for g in groups)))
        assert "int64" not in laid.script()
    assert runner.check() > 10


@T.prim_func(s_tir=True)
def beside(x: T.Buffer((5, 6), "float32"), at: T.Buffer((5,), "int32"), y: T.Buffer((5, 6), "float32")):
    for i, j in T.grid(5, 6):
        with T.sblock("beside"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = x[T.min(T.max(at[vi], 0), 4), vj] + x[vi, vj]


def test_a_row_that_data_names_beside_another_one_computes_the_same() -> None:
    """The region from the one to the other has an extent that data says: ``at[vi] is not an extent``, and no plan."""
    runner = Runner()
    turned = Format.make(IndexMap.permutation((5, 6), (1, 0)))
    runner.add(beside, complete(understood(beside), (turned, None), (turned,)))
    assert runner.check() == 1


def test_the_check_itself_sees_a_wrong_function() -> None:
    func = legal(lambda x: op.permute_dims(x, [1, 0]), (4, 4))
    computation = understood(func)
    flow = complete(computation, (None,), (None,))
    runner = Runner()
    runner.add(func, flow)
    wrong = Flow(flow.operands, (Format.make(IndexMap.permutation((4, 4), (1, 0))),), ())
    runner.checks[0] = runner.checks[0]._replace(flow=wrong)
    with pytest.raises(AssertionError):
        runner.check()


def test_a_packed_convolution_reads_plainly() -> None:
    func = legal(lambda x, w: op.nn.conv2d(x, w, padding=(1, 1)), (1, 32, 8, 8), (32, 32, 3, 3))
    computation = understood(func)
    image, weight = named("NCHW16c", (1, 32, 8, 8)), named("OIHW16i16o", (32, 32, 3, 3))
    laid = relayout(func, computation, complete(computation, (image, weight), (image,)))
    script = laid.script()
    assert "pad_temp[v_ax0, v_rc_0, v_ax2 + v_ry, v_ax3 + v_rx, v_rc_1]" in script
    assert "p1[v_ax1, v_rc_0, v_ry, v_rx, v_rc_1, v_ax4]" in script
    assert "//" not in script
    assert laid.attrs["tirx.noalias"]
    assert understood(laid).is_contraction
    assert understood(laid).flops == computation.flops


DISCOVERED: list[tuple[Any, ...]] = [
    (lambda x: op.sum(x, [2]), NCHW, "NHWC", lambda x: op.sum(x, [1])),
    (lambda x: op.sum(x, [1]), NCHW, "NCHW4c", lambda x: op.sum(x, [1, 4])),
    (lambda x: op.mean(x, [2, 3], keepdims=True), NCHW, "NHWC", lambda x: op.mean(x, [1, 2], keepdims=True)),
    (lambda x: op.nn.softmax(x, 1), NCHW, "NHWC", lambda x: op.nn.softmax(x, 3)),
    (lambda x: op.nn.relu(x), NCHW, "NCHW4c", lambda x: op.nn.relu(x)),
    (
        lambda x: op.nn.max_pool2d(x, (2, 2), (2, 2)),
        NCHW,
        "NHWC",
        lambda x: op.nn.max_pool2d(x, (2, 2), (2, 2), layout="NHWC"),
    ),
    (lambda x: op.nn.pad(x, [0, 0, 0, 0, 1, 1, 2, 2]), NCHW, "NHWC", lambda x: op.nn.pad(x, [0, 0, 1, 1, 2, 2, 0, 0])),
    (lambda x: op.strided_slice(x, [1], [4], [20]), NCHW, "NCHW4c", lambda x: op.strided_slice(x, [1], [1], [5])),
    (lambda x: op.variance(x, [2, 3]), NCHW, "NHWC", lambda x: op.variance(x, [1, 2])),
    (lambda x: op.split(x, 2, 1), NCHW, "NHWC", lambda x: op.split(x, 2, 3)),
]


@pytest.mark.parametrize(("build", "shape", "name", "wanted"), DISCOVERED)
def test_relax_ops_are_found_again(build: Any, shape: Any, name: str, wanted: Any) -> None:
    func = legal(build, shape)
    computation = understood(func)
    flow = forward(computation, 0, named(name, shape))[0]
    laid = relayout(func, computation, flow)
    assert same_computation(laid, legal(wanted, flow.operands[0].physical_shape))
    assert not same_computation(laid, func)


@pytest.mark.parametrize("shape", [(32, 1, 1), (1, 32, 1, 1), (6,)])
@pytest.mark.parametrize("name", ["NHWC", "NCHW4c"])
def test_broadcasts_are_relax_broadcasts_again(shape: Any, name: str) -> None:
    func = legal(lambda x, y: op.add(x, y), NCHW, shape)
    computation = understood(func)
    (flow,) = backward(computation, 0, named(name, NCHW))
    laid = relayout(func, computation, flow)
    assert same_computation(laid, legal(lambda x, y: op.add(x, y), *(f.physical_shape for f in flow.operands)))


def test_tvm_sees_the_same_pattern_as_before() -> None:
    for build, shapes in [(op.nn.relu, [NCHW]), (op.add, [NCHW, (1, 32, 1, 1)]), (op.nn.softmax, [NCHW])]:
        func = legal(build, *shapes)
        computation = understood(func)
        (flow,) = backward(computation, 0, named("NCHW4c", NCHW))
        module = tvm.IRModule({"old": func, "new": relayout(func, computation, flow)})
        module = relax.transform.AnnotateTIROpPattern()(module)
        assert module["old"].attrs["op_pattern"] == module["new"].attrs["op_pattern"]


def test_padded_operands_can_be_read() -> None:
    func = legal(lambda x: op.nn.relu(x), (6, 4))
    computation = understood(func)
    padded = Format.make(
        IndexMap.make((8, 4), [[(0, 4, 2)], [(1, 1, 4)], [(0, 1, 4)]]), padding=[(1, 1), (0, 0)], fill=UNDEF
    )
    runner = Runner()
    runner.add(func, complete(computation, (padded,), (None,)))
    runner.check()
    assert concrete(padded) == padded
