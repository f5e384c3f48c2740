"""Contractions over padded axes: branch-free where the fills allow it, right in any case."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from tir.helpers import legal, named, understood
from tir.poison import PoisonRunner, blocked
from tvm import relax

from eqsat_layout.maps import UNDEF, Fill, Format
from eqsat_layout.tir.flow import Flow, backward, complete, forward
from eqsat_layout.tir.rewrite import relayout

op = relax.op
IMAGE, WEIGHT, WIDER = (1, 30, 6, 6), (30, 30, 3, 3), (1, 30, 8, 8)


def image(fill: Fill, shape: tuple[int, ...] = IMAGE, block: int = 16) -> Format:
    """NCHW16c over 30 channels."""
    return blocked(shape, [(0, 0), (0, -30 % block), (0, 0), (0, 0)], {1: block}, fill)


def weight(fill: Fill, block: int = 16) -> Format:
    """OIHW16i16o over 30 by 30 channels."""
    border = (0, -30 % block)
    return blocked(WEIGHT, [border, border, (0, 0), (0, 0)], {1: block, 0: block}, fill)


def conv(**kwargs: Any) -> Any:
    return legal(lambda x, w: op.nn.conv2d(x, w, padding=(1, 1), **kwargs), IMAGE, WEIGHT)


def loops_over(script: str, block: str) -> str:
    """The text of one block."""
    return script.split(f'T.sblock("{block}")')[1].split("T.sblock(")[0]


def test_a_frozen_convolution_over_30_channels_has_no_branch() -> None:
    func = conv()
    computation = understood(func)
    flow = complete(computation, (image(0), weight(0)), (image(0),))
    assert flow.internal == (image(0, WIDER),)
    body = loops_over(relayout(func, computation, flow).script(), "conv2d_nchw")
    assert "pad_temp[v_ax0, v_rc_0, v_ax2 + v_ry, v_ax3 + v_rx, v_rc_1]" in body
    assert "if_then_else" not in body
    assert "//" not in body


def test_undef_data_meets_its_zeros_in_the_pad_stage() -> None:
    func = conv()
    computation = understood(func)
    flow = complete(computation, (image(UNDEF), weight(0)), (image(0),))
    assert flow.internal == (image(0, WIDER),)
    assert "if_then_else" not in loops_over(relayout(func, computation, flow).script(), "conv2d_nchw")


def test_padding_is_summed_only_where_it_is_nothing() -> None:
    func = legal(lambda x, y: op.matmul(x, y), (8, 30), (30, 8))
    computation = understood(func)
    for left, right, runs_over in ((0, 0, 32), (0, 1, 32), (0, UNDEF, 30), (1, 0, 32), (UNDEF, 0, 30), (1, 1, 30)):
        x = blocked((8, 30), [(0, 0), (0, 2)], {1: 16}, left)
        y = blocked((30, 8), [(0, 2), (0, 0)], {0: 16}, right)
        script = relayout(func, computation, complete(computation, (x, y), (None,))).script()
        assert ("k_0, k_1 in T.grid(T.int64(8), T.int64(8), T.int64(2), T.int64(16))" in script) is (runs_over == 32)
        assert ("k in T.grid(T.int64(8), T.int64(8), T.int64(30))" in script) is (runs_over == 30)


def test_convolutions_are_right_whatever_the_fills() -> None:
    runner = PoisonRunner()
    func, grouped = conv(), legal(lambda x, w: op.nn.conv2d(x, w, groups=3, padding=(1, 1)), IMAGE, (30, 10, 3, 3))
    fills = (0.0, 1.0, UNDEF)
    for data, kernel, result in itertools.product(fills, fills, fills):
        runner.add(func, complete(understood(func), (image(data), weight(kernel)), (image(result),)), 1e-5)
    for block, data, result in ((16, 0.0, 0.0), (4, UNDEF, UNDEF), (4, UNDEF, 0.0)):
        flow = complete(understood(func), (image(data, block=block), None), (image(result, block=block),))
        runner.add(func, flow, 1e-5)
        flow = complete(understood(grouped), (image(data, block=block), None), (image(result, block=block),))
        runner.add(grouped, flow, 1e-5)
    assert runner.check() == 33


def test_depthwise_over_30_channels_is_through() -> None:
    func = legal(lambda x, w: op.nn.conv2d(x, w, groups=30, padding=(1, 1)), IMAGE, (30, 1, 3, 3))
    computation = understood(func)
    kernel = blocked((30, 1, 3, 3), [(0, 2), (0, 0), (0, 0), (0, 0)], {0: 16}, 0)
    flow = complete(computation, (image(0), kernel), (image(0),))
    assert flow.internal == (image(0, WIDER),)
    assert "if_then_else" not in loops_over(relayout(func, computation, flow).script(), "group_conv2d_nchw")
    runner = PoisonRunner()
    for fills in itertools.product((0.0, UNDEF), repeat=3):
        flow = complete(computation, (image(fills[0]), kernel.with_fill(fills[1])), (image(fills[2]),))
        runner.add(func, flow, 1e-5)
    assert runner.check() == 8


MATMULS: list[tuple[Any, ...]] = [
    ((7, 30), (30, 13)),
    ((2, 7, 30), (2, 30, 13)),
    ((2, 7, 30), (30, 13)),
    ((1, 30), (30, 13)),
]


@pytest.mark.parametrize(("left", "right"), MATMULS)
def test_matmuls_padded_in_all_three_are_right(left: Any, right: Any) -> None:
    func = legal(lambda x, y: op.matmul(x, y), left, right)
    computation = understood(func)
    rng = random.Random(2)
    runner = PoisonRunner()

    def fmt(shape: tuple[int, ...], fill: Fill) -> Format:
        borders = [(0, 0)] * (len(shape) - 2) + [(0, -e % 8) for e in shape[-2:]]
        return blocked(shape, borders, {len(shape) - 1: 8}, fill)

    result = computation.buffers[computation.results[0]].shape
    everything = complete(computation, (fmt(left, 0), fmt(right, 0)), (fmt(result, 0),))  # type: ignore[arg-type]
    assert "if_then_else" not in runner.add(func, everything, 1e-5).script()
    for _ in range(8):
        fills = [rng.choice((0.0, 1.0, UNDEF)) for _ in range(3)]
        formats = [fmt(s, f) for s, f in zip((left, right, result), fills, strict=True)]  # type: ignore[arg-type]
        formats = [rng.choice((f, f, Format.row_major(f.shape))) for f in formats]
        runner.add(func, complete(computation, formats[:2], formats[2:]), 1e-5)
    assert runner.check() == 9


def test_other_contractions_are_right_in_padded_formats() -> None:
    runner = PoisonRunner()
    rng = random.Random(4)
    cases: list[tuple[Any, ...]] = [
        (lambda x, w: op.nn.conv1d(x, w, padding=1), (1, 6, 10), (6, 6, 3)),
        (lambda x, w: op.nn.conv3d(x, w), (1, 6, 4, 4, 4), (6, 6, 2, 2, 2)),
        (lambda x, w: op.nn.conv2d_transpose(x, w, strides=(2, 2)), (1, 6, 4, 4), (6, 6, 3, 3)),
        (
            lambda x, w: op.nn.conv2d(x, w, strides=(2, 2), data_layout="NHWC", kernel_layout="HWIO"),
            (1, 5, 5, 6),
            (3, 3, 6, 6),
        ),
    ]
    for build, *shapes in cases:
        func = legal(build, *shapes)
        computation = understood(func)
        for _ in range(3):
            formats = []
            for shape in (*shapes, computation.buffers[computation.results[0]].shape):
                borders = [(0, -e % 4) if e == 6 else (0, 0) for e in shape]
                formats.append(blocked(shape, borders, {shape.index(6): 4}, rng.choice((0.0, 0.0, UNDEF))))
            runner.add(func, complete(computation, formats[:2], formats[2:]), 1e-5)
    assert runner.check() == 12


# ---- flow through contractions ----

NCHW, WIDE = (1, 32, 8, 8), (1, 64, 6, 6)
CONV = legal(lambda x, w: op.nn.conv2d(x, w), NCHW, (64, 32, 3, 3))


def text(formats: tuple[Format, ...]) -> list[str]:
    return [str(f.index_map) for f in formats]


def test_contractions_flow_only_when_asked() -> None:
    computation = understood(CONV)
    assert backward(computation, 0, named("NHWC", WIDE)) == ()
    assert forward(computation, 0, named("NHWC", NCHW)) == ()
    assert backward(computation, 0, named("NHWC", WIDE), contractions=True)


@pytest.mark.parametrize("name", ["NHWC", "NCHW16c", "NCHW4c"])
def test_data_of_a_convolution_takes_the_layout_of_its_result(name: str) -> None:
    best, *others = backward(understood(CONV), 0, named(name, WIDE), contractions=True)
    assert best.operands[0] == named(name, NCHW)
    assert len(others) < 3
    assert forward(understood(CONV), 0, named(name, NCHW), contractions=True)[0].results == (named(name, WIDE),)


def test_weights_are_blocked_as_their_results() -> None:
    best = backward(understood(CONV), 0, named("NCHW16c", WIDE), contractions=True)[0]
    assert text(best.operands)[1] == "(i, j, k, l) -> (i//16, j, k, l, i%16)"


def test_reduced_axes_of_a_matmul_take_the_place_of_free_ones_or_keep_their_own() -> None:
    computation = understood(legal(lambda x, y: op.matmul(x, y), (4, 16, 24), (4, 24, 32)))
    result = blocked((4, 16, 32), [(0, 0)] * 3, {1: 8, 2: 8}, None)
    flows = backward(computation, 0, result, contractions=True)
    assert text(flows[0].operands) == ["(i, j, k) -> (i, j//8, k//8, j%8, k%8)"] * 2
    assert ["(i, j, k) -> (i, j//8, j%8, k)", "(i, j, k) -> (i, j, k//8, k%8)"] in [text(f.operands) for f in flows]


def test_a_padded_result_pads_the_reduced_channels_too() -> None:
    best, *others = backward(understood(conv()), 0, image(0), contractions=True)
    assert best.operands[0] == image(0.0)
    assert best.operands[1].padding == ((0, 2), (0, 2), (0, 0), (0, 0))
    assert others[0].operands[0] == image(UNDEF)


def test_flows_through_contractions_compute_the_same() -> None:
    runner = PoisonRunner()
    cases: list[tuple[Any, ...]] = [
        (lambda x, w: op.nn.conv1d(x, w, padding=1), (1, 30, 10), (30, 30, 3)),
        (lambda x, w: op.nn.conv2d(x, w, padding=(1, 1), strides=(2, 2)), (1, 30, 5, 6), (30, 30, 3, 3)),
        (lambda x, w: op.nn.conv2d(x, w, groups=30), (1, 30, 5, 6), (30, 1, 3, 3)),
        (lambda x, w: op.nn.conv2d(x, w, groups=3), (1, 30, 5, 6), (30, 10, 3, 3)),
        (lambda x, w: op.nn.conv3d(x, w), (1, 6, 4, 4, 4), (6, 6, 2, 2, 2)),
        (lambda x, w: op.nn.conv2d_transpose(x, w, strides=(2, 2)), (1, 6, 4, 4), (6, 6, 3, 3)),
        (lambda x, y: op.matmul(x, y), (6, 30), (30, 30)),
        (lambda x, y: op.matmul(x, y), (2, 6, 30), (2, 30, 14)),
    ]
    for build, *shapes in cases:
        func = legal(build, *shapes)
        computation = understood(func)
        shape = computation.buffers[computation.results[0]].shape
        axis = 1 if len(shape) > 2 else len(shape) - 1
        found: dict[Flow, None] = {}
        for fill in (0.0, UNDEF):
            padding = [(0, -int(e) % 4 if a == axis else 0) for a, e in enumerate(shape)]
            asked = blocked(shape, padding, {axis: 4}, fill)  # type: ignore[arg-type]
            found.update(dict.fromkeys(backward(computation, 0, asked, contractions=True)))
            padding = [(0, -e % 4 if a == axis else 0) for a, e in enumerate(shapes[0])]
            asked = blocked(shapes[0], padding, {axis: 4}, fill)
            found.update(dict.fromkeys(forward(computation, 0, asked, contractions=True)))
        for flow in found:
            runner.add(func, flow, 1e-5)
    assert runner.check() > 5 * len(cases)
