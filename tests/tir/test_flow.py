"""Flows keep accesses in step; where nothing does, there is none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import index_maps
from tir.helpers import fmt, legal, named, understood
from tvm import relax
from tvm.script import tirx as T

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import UNDEF, Format, IndexMap
from eqsat_layout.tir.computation import Computation
from eqsat_layout.tir.flow import Flow, backward, complete, forward, in_step_with_result
from eqsat_layout.tir.map_spread import MapSpread

op = relax.op
NCHW = (2, 32, 8, 8)


def maps(formats: tuple[Format, ...]) -> list[str]:
    return [str(f.index_map) for f in formats]


def best(computation: Computation, result_format: Format) -> Flow:
    return backward(computation, 0, result_format)[0]


RELU = understood(legal(lambda x: op.nn.relu(x), (2, 12, 4)))
GELU = understood(legal(lambda x: op.nn.gelu(x), (2, 12, 4)))
MEAN = understood(legal(lambda x: op.mean(x, [2, 3], keepdims=True), NCHW))


@given(index_maps(shape=(2, 12, 4)), st.sampled_from([RELU, GELU]))
def test_elementwise_takes_any_map_as_it_is(index_map: IndexMap, computation: Computation) -> None:
    layout = Format.make(index_map)
    (back,) = backward(computation, 0, layout)
    assert back.operands == (layout,)
    assert forward(computation, 0, layout) == (back,)


@given(index_maps(shape=NCHW))
def test_a_broadcast_round_trips_through_its_main_operand(index_map: IndexMap) -> None:
    add = understood(legal(lambda x, y: op.add(x, y), NCHW, (32, 1, 1)))
    layout = Format.make(index_map)
    (back,) = backward(add, 0, layout)
    assert back.operands[0] == layout
    (there,) = forward(add, 0, layout)
    assert there == back


@pytest.mark.parametrize("name", ["NCHW", "NHWC", "NCHW4c", "NCHW16c", "NHCW", "NHWC4c", "CHWN"])
def test_reductions_that_keep_their_axes_round_trip(name: str) -> None:
    layout = named(name, (2, 32, 1, 1))
    flow = best(MEAN, layout)
    assert flow.operands == (named(name, NCHW),)
    assert forward(MEAN, 0, flow.operands[0])[0].results == (layout,)


BIASES = [
    ((1, 32, 1, 1), "NCHW4c", "(i, j, k, l) -> (0, j//4, 0, 0, j%4)"),
    ((32, 1, 1), "NCHW4c", "(i, j, k) -> (i//4, 0, 0, i%4)"),
    ((32, 1, 1), "NHWC", "(i, j, k) -> (0, 0, i)"),
    ((1, 32, 1, 1), "NHWC", "(i, j, k, l) -> (0, 0, 0, j)"),
    ((8,), "NHWC", "(i) -> (i, 0)"),
    ((8,), "NCHW4c", "(i) -> (i, 0)"),
    ((8, 8), "NCHW", "(i, j) -> (i, j)"),
    ((8, 8), "NCHW4c", "(i, j) -> (i, j, 0)"),
    ((8, 8), "NHWC", "(i, j) -> (i, j, 0)"),
    ((), "NHWC", "() -> ()"),
    ((1,), "NHWC", "(i) -> (0)"),
    ((1, 1, 1, 1), "NCHW4c", "(i, j, k, l) -> (0, 0, 0, 0)"),
    ((2, 1, 1, 8), "NHWC", "(i, j, k, l) -> (i, 0, l, 0)"),
]


@pytest.mark.parametrize(("shape", "name", "wanted"), BIASES)
def test_broadcast_operands_line_up_with_the_result(shape: Any, name: str, wanted: str) -> None:
    add = understood(legal(lambda x, y: op.add(x, y), NCHW, shape))
    assert maps(best(add, named(name, NCHW)).operands)[1] == wanted


def test_the_sums_of_the_proposal() -> None:
    total = understood(legal(lambda x: op.sum(x, [2]), NCHW))
    result = (2, 32, 8)
    split = fmt(result, [(0, 1, 2)], [(1, 4, 8)], [(2, 1, 8)], [(1, 1, 4)])
    assert maps(best(total, split).operands) == ["(i, j, k, l) -> (i, j//4, k, l, j%4)"]
    swapped = Format.make(IndexMap.permutation(result, (0, 2, 1)))
    assert maps(best(total, swapped).operands) == ["(i, j, k, l) -> (i, k, l, j)"]


def test_a_unit_axis_that_is_read_at_its_only_element_leaves_no_axis_behind() -> None:
    """It did, one more at every such op, so that all layouts of a tensor came with one, two, three... unit axes."""

    @T.prim_func(private=True, s_tir=True)
    def row(x: T.Buffer((1, 8, 4), "float32"), y: T.Buffer((8, 4), "float32")) -> None:
        for i, j in T.grid(8, 4):
            with T.sblock("y"):
                a, b = T.axis.remap("SS", [i, j])
                y[a, b] = x[0, a, b] * T.float32(2)

    (flow,) = forward(understood(row), 0, Format.row_major((1, 8, 4)))
    assert flow.results == (Format.row_major((8, 4)),)


def test_reductions_drop_the_axes_of_what_they_reduce() -> None:
    mean = understood(legal(lambda x: op.mean(x, [2, 3]), NCHW))
    assert maps(forward(mean, 0, named("NCHW4c", NCHW))[0].results) == ["(i, j) -> (i, j//4, j%4)"]
    assert maps(forward(mean, 0, named("NHWC", NCHW))[0].results) == ["(i, j) -> (i, j)"]
    over_channels = understood(legal(lambda x: op.max(x, [1], keepdims=True), NCHW))
    assert maps(forward(over_channels, 0, named("NCHW4c", NCHW))[0].results) == ["(i, j, k, l) -> (i, 0, k, l)"]


def test_a_reduced_axis_without_a_place_has_two() -> None:
    mean = understood(legal(lambda x: op.mean(x, [2, 3]), NCHW))
    split = fmt((2, 32), [(0, 1, 2)], [(1, 4, 8)], [(1, 1, 4)])
    assert [maps(f.operands)[0] for f in backward(mean, 0, split)] == [
        "(i, j, k, l) -> (i, j//4, j%4, k, l)",
        "(i, j, k, l) -> (i, j//4, k, l, j%4)",
    ]


OPS: list[tuple[Any, ...]] = [
    (lambda x: op.nn.softmax(x, 1), NCHW),
    (lambda x: op.nn.max_pool2d(x, (2, 2), (2, 2), (1, 1)), NCHW),
    (lambda x: op.nn.avg_pool2d(x, (3, 3), (2, 2), (1, 1)), NCHW),
    (lambda x: op.nn.pad(x, [0, 0, 0, 0, 1, 1, 2, 2]), NCHW),
    (lambda x: op.strided_slice(x, [1, 2], [4, 1], [20, 8], [1, 2]), NCHW),
    (lambda x: op.split(x, 2, 1), NCHW),
    (lambda x, y: op.concat([x, y], 1), NCHW, (2, 16, 8, 8)),
    (lambda x: op.image.resize2d(x, (16, 16), layout="NCHW", method="nearest_neighbor"), NCHW),
    (lambda x, g: op.nn.layer_norm(x, g, g, [-1]), NCHW, (8,)),
    (lambda x, g: op.nn.group_norm(x, g, g, 4, 1, [2, 3]), NCHW, (32,)),
    (lambda x, g: op.nn.batch_norm(x, g, g, g, g, 1), NCHW, (32,)),
    (lambda x: op.variance(x, [2, 3], keepdims=True), NCHW),
]


@pytest.mark.parametrize("name", ["NCHW", "NHWC", "NCHW4c"])
@pytest.mark.parametrize(("build", "shapes"), [(o[0], o[1:]) for o in OPS])
def test_images_keep_their_layout_through_all_kinds_of_ops(build: Any, shapes: Any, name: str) -> None:
    computation = understood(legal(build, *shapes))
    shape = computation.buffers[computation.results[0]].shape
    flow = best(computation, named(name, shape))
    assert flow.operands[0] == named(name, NCHW)
    assert forward(computation, 0, named(name, NCHW))[0].results[0] == named(name, shape)


@pytest.mark.parametrize(("build", "shapes"), [(o[0], o[1:]) for o in OPS])
def test_row_major_stays_row_major(build: Any, shapes: Any) -> None:
    computation = understood(legal(build, *shapes))
    for result, number in enumerate(computation.results):
        shape = computation.buffers[number].shape
        flow = backward(computation, result, Format.row_major(shape))[0]
        assert all(f.is_row_major for f in (*flow.operands, *flow.results))


def test_views_compose() -> None:
    transpose = understood(legal(lambda x: op.permute_dims(x, [0, 2, 3, 1]), NCHW))
    assert maps(best(transpose, Format.row_major((2, 8, 8, 32))).operands) == ["(i, j, k, l) -> (i, k, l, j)"]
    reshape = understood(legal(lambda x: op.reshape(x, (2, 4, 8, 64)), NCHW))
    layout = Format.make(IndexMap.permutation((2, 4, 8, 64), (0, 3, 1, 2)))
    assert maps(best(reshape, layout).operands) == ["(i, j, k, l) -> (i, k*8 + l, j//8, j%8)"]


def test_a_joint_must_not_be_cut() -> None:
    concat = understood(legal(lambda x, y: op.concat([x, y], 1), (2, 12, 4, 4), (2, 18, 4, 4)))
    whole = (2, 30, 4, 4)
    six = fmt(whole, [(0, 1, 2)], [(1, 6, 5)], [(2, 1, 4)], [(3, 1, 4)], [(1, 1, 6)])
    assert maps(best(concat, six).operands) == ["(i, j, k, l) -> (i, j//6, k, l, j%6)"] * 2
    assert backward(concat, 0, fmt(whole, [(0, 1, 2)], [(1, 5, 6)], [(2, 1, 4)], [(3, 1, 4)], [(1, 1, 5)])) == ()
    cut = understood(legal(lambda x: op.strided_slice(x, [1], [6], [22]), NCHW))
    assert backward(cut, 0, named("NCHW4c", (2, 16, 8, 8))) == ()


def test_windows_and_reversed_axes_must_not_be_split() -> None:
    pool = understood(legal(lambda x: op.nn.max_pool2d(x, (2, 2), (2, 2)), NCHW))
    split = fmt((2, 32, 4, 4), [(0, 1, 2)], [(1, 1, 32)], [(2, 2, 2)], [(3, 1, 4)], [(2, 1, 2)])
    assert backward(pool, 0, split) == ()
    flip = understood(legal(lambda x: op.flip(x, 1), NCHW))
    assert backward(flip, 0, named("NCHW4c", NCHW)) == ()
    assert maps(best(flip, named("NHWC", NCHW)).operands) == ["(i, j, k, l) -> (i, k, l, j)"]


def test_two_demands_on_one_operand_are_refused() -> None:
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def symmetric(x: T.Buffer((8, 8), "float32"), y: T.Buffer((8, 8), "float32")) -> None:
        for i, j in T.grid(8, 8):
            with T.sblock("y"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = x[vi, vj] + x[vj, vi]

    computation = understood(symmetric)
    row_split = fmt((8, 8), [(0, 2, 4)], [(1, 1, 8)], [(0, 1, 2)])
    assert backward(computation, 0, row_split) == ()
    assert complete(computation, (None,), (row_split,)).results == (row_split,)


def test_contractions_and_scopes_do_not_flow() -> None:
    conv = understood(legal(lambda x, w: op.nn.conv2d(x, w), NCHW, (32, 32, 3, 3)))
    assert backward(conv, 0, named("NHWC", (2, 32, 6, 6))) == ()
    assert forward(conv, 0, named("NHWC", NCHW)) == ()
    assert backward(RELU, 0, Format.row_major((2, 12, 4), scope="global.texture")) == ()


def test_formats_of_other_shapes_are_errors() -> None:
    with pytest.raises(LayoutError, match="shape"):
        backward(RELU, 0, Format.row_major((4, 4)))
    with pytest.raises(LayoutError, match="shape"):
        complete(RELU, (Format.row_major((4, 4)),), (None,))


def test_completion_carries_formats_to_internal_buffers() -> None:
    conv = understood(legal(lambda x, w: op.nn.conv2d(x, w, padding=(1, 1)), NCHW, (32, 32, 3, 3)))
    flow = complete(conv, (named("NCHW16c", NCHW), named("OIHW16i16o", (32, 32, 3, 3))), (named("NCHW16c", NCHW),))
    assert flow.internal == (named("NCHW16c", (2, 32, 10, 10)),)
    nothing = complete(conv, (None, None), (None,))
    assert all(f.is_row_major for f in (*nothing.operands, *nothing.results, *nothing.internal))


@pytest.mark.parametrize(
    "dims",
    [
        pytest.param([[(2, 2, 4)], [(2, 1, 2)], [(3, 2, 4)], [(3, 1, 2)], [(1, 1, 32)]], id="cut in order"),
        pytest.param([[(2, 4, 2)], [(3, 4, 2)], [(2, 1, 4)], [(3, 1, 4)], [(1, 1, 32)]], id="windows"),
    ],
)
def test_borders_of_cut_axes_lie_as_the_data_do(dims: list[list[tuple[int, int, int]]]) -> None:
    """A border can't be put around cut axes: it lay row-major, and the step behind it took 38 times as long."""
    shape = (1, 32, 8, 8)
    conv = understood(legal(lambda x, w: op.nn.conv2d(x, w, padding=(1, 1)), shape, (32, 32, 3, 3)))
    flow = complete(conv, (Format.make(IndexMap.make(shape, dims)), None), (None,))
    assert flow.internal == (named("NHWC", (1, 32, 10, 10)),)


def test_symbolic_extents_flow_whole() -> None:
    add = understood(legal(lambda x, y: op.add(x, y), ("n", 32, 8, 8), (32, 1, 1)))
    flow = best(add, named("NCHW4c", ("n", 32, 8, 8)))
    assert maps(flow.operands) == ["(i, j, k, l) -> (i, j//4, k, l, j%4)", "(i, j, k) -> (i//4, 0, 0, i%4)"]


CONTRACTIONS: list[tuple[Any, ...]] = [
    (lambda x, w: op.nn.conv2d(x, w, padding=1), NCHW, (16, 32, 3, 3)),
    (lambda x, w: op.nn.conv2d(x, w, groups=4), NCHW, (16, 8, 1, 1)),
    (lambda x, w: op.nn.conv2d_transpose(x, w, strides=2), NCHW, (32, 16, 2, 2)),
    (op.matmul, NCHW, (2, 32, 8, 16)),
    (op.matmul, (8, 16), (16, 4)),
]
ADDED: list[tuple[Any, ...]] = [
    (op.add, NCHW, NCHW),
    (op.add, NCHW, (1, 32, 1, 1)),
    (op.where, (NCHW, "bool"), NCHW, (8,)),
    (op.nn.relu, NCHW),
    (lambda x: op.mean(x, [2, 3]), NCHW),
]


def given_formats(shape: Any) -> list[Format]:
    """Whole axes in other orders, and axes that are cut, of which one is taken last."""
    rank = len(shape)
    found = [Format.make(IndexMap.permutation(shape, axes)) for axes in ([*range(rank)][::-1], [*range(1, rank), 0])]
    for axis, extent in enumerate(shape):
        if extent % 4 == 0:
            whole = [[(a, 1, e)] for a, e in enumerate(shape)]
            whole[axis] = [(axis, 4, extent // 4)]
            found.append(Format.make(IndexMap.make(shape, [*whole, [(axis, 1, 4)]])))
    padded = [(e + 3) // 4 * 4 - e for e in shape]
    wide = tuple(e + p for e, p in zip(shape, padded, strict=True))
    return [*found, Format.make(IndexMap.identity(wide), padding=[(0, p) for p in padded], fill=UNDEF)]


def all_flows(computation: Computation) -> list[tuple[Flow, ...]]:
    """From each buffer in each of some formats."""
    buffers, found = computation.buffers, list[tuple[Flow, ...]]()
    for n, number in enumerate(computation.operands):
        for own in given_formats(buffers[number].shape):
            found.append(forward(computation, n, own, contractions=True))
    for n, number in enumerate(computation.results):
        for own in given_formats(buffers[number].shape):
            found.append(backward(computation, n, own, contractions=True))
    return found


@pytest.mark.parametrize(("build", "shapes"), [(o[0], o[1:]) for o in [*OPS, *CONTRACTIONS, *ADDED]])
def test_other_placings_and_pairs_that_are_not_tried_would_give_nothing_else(
    monkeypatch: pytest.MonkeyPatch, build: Any, shapes: Any
) -> None:
    func = legal(build, *shapes)
    found = all_flows(understood(func))
    for name in ("is_placed", "is_paired"):
        monkeypatch.setattr(MapSpread, name, property(lambda _: True, lambda _, value: None))
    assert all_flows(understood(func)) == found
    assert any(found)


@pytest.mark.parametrize(("build", "shapes"), [(o[0], o[1:]) for o in [*OPS, *ADDED]])
def test_flows_from_what_is_in_step_with_the_result_are_those_from_the_result(build: Any, shapes: Any) -> None:
    computation = understood(legal(build, *shapes))
    places = in_step_with_result(computation) - {len(computation.operands)}
    assert places or (build, *shapes) not in ADDED[:4]
    for place in places:
        for own in given_formats(computation.buffers[computation.operands[place]].shape):
            if not own.is_padded:
                assert forward(computation, place, own) == backward(computation, 0, own)
