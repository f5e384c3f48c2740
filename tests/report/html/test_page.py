"""The HTML page: complete, self-contained, escaped, the same every time."""

from __future__ import annotations

import json
import re
from typing import Any

from programs import AVX2, constant, program
from tvm import relax
from tvm.relax import op

import eqsat_layout
from eqsat_layout.report.changes import Change
from eqsat_layout.report.html.page import Summary, render
from eqsat_layout.report.html.picture import Picture, PictureEdge, PictureNode

FROZEN = {"relax.nn.conv2d": ["NCHW4c", "OIHW4i4o"]}
KIND, OP, LAYOUT, COST, WHY, WAYS = 0, 1, 2, 4, 7, 9


def two_convolutions(builder: Any, x: Any) -> Any:
    y = builder.emit(op.nn.relu(builder.emit(op.nn.conv2d(x, constant(8, 8, 3, 3), padding=1))), "middle")
    return op.nn.conv2d(y, constant(8, 8, 1, 1, seed=1))


def data_of(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def kinds(data: Any, side: str) -> list[str]:
    return [data["facts"][node[0]][KIND] for node in data["regions"][0][side]["nodes"]]


def test_the_page_of_a_plan_shows_everything() -> None:
    plan = eqsat_layout.plan(program(two_convolutions, (1, 8, 6, 6), frozen=FROZEN))
    page = plan.html("two convolutions")
    data = data_of(page)
    assert kinds(data, "before").count("transform") == len(plan.input_transforms)
    assert kinds(data, "after").count("transform") == len(plan.transforms)
    for side in ("before", "after"):
        assert kinds(data, side).count("op") == 3
        assert kinds(data, side).count("parameter") == kinds(data, side).count("result") == 1
    assert [len(data["regions"][0][side]["edges"]) for side in ("before", "after")] == [3 + 4 + 1, 3 + 2 + 1]
    assert "NCHW4c" in {facts[LAYOUT] for facts in data["facts"]}
    assert "proven optimal" in page
    for stay in plan.explain().transforms:
        assert stay.reason in page
    for change in (change for change in plan.changes if not change.is_kept):
        assert f">{change.op}</button><td>{change.was}<td>{change.now}" in page
        assert change.why in page
    assert all(stay.reason in {facts[WHY] for facts in data["facts"]} for stay in plan.explain().transforms)


def test_what_is_one_kernel_has_one_number() -> None:
    def chain(builder: Any, x: Any) -> Any:
        y = builder.emit(op.nn.conv2d(x, constant(32, 32, 1, 1)))
        return op.nn.relu(builder.emit(op.add(y, constant(1, 32, 1, 1))))

    data = data_of(eqsat_layout.plan(program(chain, (1, 32, 28, 28))).html())
    for side in ("before", "after"):
        ops = [n for n in data["regions"][0][side]["nodes"] if data["facts"][n[0]][KIND] == "op"]
        assert len(ops) == 3
        assert len({kernel for *_, kernel in ops}) == 1


def test_an_op_has_the_same_number_before_and_after() -> None:
    data = data_of(eqsat_layout.plan(program(two_convolutions, (1, 8, 6, 6), frozen=FROZEN)).html())

    def by_binding(side: str) -> dict[int, str]:
        nodes = data["regions"][0][side]["nodes"]
        return {node[2]: data["facts"][node[0]][OP] for node in nodes if data["facts"][node[0]][KIND] == "op"}

    assert by_binding("before") == by_binding("after")
    assert len(by_binding("after")) == 3


def test_the_cost_of_an_algorithm_is_that_of_all_its_steps() -> None:
    """Among the ways to make a convolution, Winograd had the cost of its last step: a tenth of what it takes."""
    mod = program(lambda builder, x: op.nn.conv2d(x, constant(32, 32, 3, 3), padding=1), (1, 32, 56, 56))
    data = data_of(eqsat_layout.plan(mod, AVX2).html())
    facts = [data["facts"][node[0]] for node in data["regions"][0]["after"]["nodes"]]
    last = next(own for own in facts if own[OP] == "winograd_result")
    ways = {how: seconds(cost) for how, layout, cost in reversed(last[WAYS])}
    spent = sum(seconds(own[COST]) for own in facts if own[KIND] == "op")
    assert ways[last[WHY]] > 2 * seconds(last[COST])
    assert 0.9 * spent <= ways[last[WHY]] <= 1.1 * spent
    assert len({how.partition(":")[0] for how in ways}) > 2  # each algorithm, and what is none


def test_what_is_left_as_written_shows_the_other_ways() -> None:
    mod = program(lambda builder, x: op.nn.conv2d(x, constant(8, 4, 1, 1)), (1, 4, 6, 6))
    plan = eqsat_layout.plan(mod, AVX2)
    assert not plan.changed
    data = data_of(plan.html())
    (own,) = [facts for facts in data["facts"] if facts[OP] == "nn.conv2d" and facts[WAYS]]
    assert ["as written", "NCHW", own[COST]] in own[WAYS]
    assert len(own[WAYS]) > 1


def seconds(text: str) -> float:
    """What ``12.3 us`` is."""
    number, unit = text.split()
    return float(number) * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}[unit]


def test_the_same_plan_gives_the_same_page() -> None:
    mod = program(two_convolutions, (1, 8, 6, 6), frozen=FROZEN)
    first, second = (re.sub(r"<dt>searched</dt>.*", "", eqsat_layout.plan(mod).html()) for _ in range(2))
    assert first == second


def test_nothing_comes_from_elsewhere_and_the_page_says_so() -> None:
    page = eqsat_layout.plan(program(two_convolutions, (1, 8, 6, 6), frozen=FROZEN)).html()
    assert not re.search(r"https?:|src=|@import|url\(", page)
    assert "default-src 'none'" in page
    assert "Copyright (c) 2012-2014 Chris Pettitt" in page


def test_transforms_that_are_alike_are_one_row() -> None:
    """BERT's page began with twelve times the same sentence."""
    rows = [(f"x{i}", "NCHW → NHWC", 1024, 1e-6, "why") for i in range(12)] + [("y", "NHWC → NCHW", 8, 1e-9, "other")]
    page = render([], [], Summary("p", [], [], rows, []))
    assert page.count("<li>") == 2 + page.count('<li><i class="kernel">')
    assert "12 times <b>x0 to x11</b> NCHW → NHWC, 12.0 us, 12.0 KiB read and written" in page


def test_ops_that_only_follow_their_neighbours_are_behind_a_click_where_there_are_many() -> None:
    """What EfficientNet's page says first was longer than a screen: fourteen of 21 rows saved nothing."""
    changes = [Change(f"op{i}", "NCHW", "NHWC", 1.0, 0.5 if i < 2 else 1.0, (f"x{i}",)) for i in range(13)]
    shown, hidden = render([], [], Summary("p", [], changes, [], [])).split("<summary>")
    assert hidden.startswith("11 more ops in 11 rows take the layout of their neighbours")
    assert [shown.count('class="why">cheaper'), hidden.count('class="why">takes')] == [2, 11]
    assert "<summary>" not in render([], [], Summary("p", [], changes[:12], [], []))


def test_ways_to_make_several_results_have_layouts() -> None:
    """Beside each way to compute a batch norm stood no layout."""

    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.nn.conv2d(x, constant(32, 32, 3, 3), padding=1))
        parts = builder.emit(op.nn.batch_norm(y, *(constant(32, seed=i) for i in range(4)), axis=1))
        return builder.emit(relax.TupleGetItem(parts, 0))

    data = data_of(eqsat_layout.plan(program(body, (1, 32, 28, 28)), AVX2).html())
    (ways,) = {str(facts[WAYS]) for facts in data["facts"] if facts[OP] == "nn.batch_norm" and facts[WAYS]}
    assert "NCHW16c" in ways
    assert "''" not in ways


def test_names_are_escaped() -> None:
    nasty = "<script>alert('x')</script>&\"--><!--"
    node = PictureNode("op", nasty, nasty, nasty, nasty, 1e-6, (), why=nasty)
    picture = Picture(nasty, (node, node), (PictureEdge(0, 1, 4),))
    change = Change(nasty, nasty, nasty, 1.0, 0.5, (nasty,))
    page = render(
        [picture], [picture], Summary(nasty, [(nasty,) * 3], [change], [(nasty, nasty, 1, 1.0, nasty)], [nasty])
    )
    assert "<script>alert" not in page
    assert page.count("<script") == 4
    assert data_of(page)["regions"][0]["title"] == nasty


def test_an_empty_program() -> None:
    page = render([], [], Summary("nothing", [], [], [], []))
    assert "None." in page
