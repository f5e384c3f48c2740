"""The HTML page: complete, self-contained, escaped, the same every time; boxes and lines don't lie on each other."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import constant, program
from tvm.relax import op

import eqsat_layout
from eqsat_layout.maps import UNDEF, Format, IndexMap, index_map_from_names
from eqsat_layout.report.html.page import Summary, render
from eqsat_layout.report.html.picture import Picture, PictureEdge, PictureNode, layout_name
from eqsat_layout.report.html.placement import place

FROZEN = {"relax.nn.conv2d": ["NCHW4c", "OIHW4i4o"]}


def two_convolutions(builder: Any, x: Any) -> Any:
    y = builder.emit(op.nn.relu(builder.emit(op.nn.conv2d(x, constant(8, 8, 3, 3), padding=1))), "middle")
    return op.nn.conv2d(y, constant(8, 8, 1, 1, seed=1))


class Tags(HTMLParser):
    """Counts elements by class, and checks that what is opened is closed."""

    def __init__(self, text: str):
        super().__init__()
        self.groups: list[str] = []
        self.edges = 0
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        known = dict(attrs)
        if tag == "g":
            self.groups.append(known["class"].split()[1])
        self.edges += tag == "path"

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page_of_a_plan_shows_everything() -> None:
    plan = eqsat_layout.plan(program(two_convolutions, (1, 8, 6, 6), frozen=FROZEN))
    page = plan.html("two convolutions")
    tags = Tags(page)
    assert tags.groups.count("transform") == len(plan.input_transforms) + len(plan.transforms) == 6
    assert tags.groups.count("op") == 6
    assert tags.groups.count("parameter") == tags.groups.count("result") == 2
    assert tags.edges == (3 + 4 + 1) + (3 + 2 + 1)
    assert "NCHW4c" in tags.text
    assert "proven optimal" in page
    for stay in plan.explain().transforms:
        assert stay.reason in page


def test_the_same_plan_gives_the_same_page() -> None:
    mod = program(two_convolutions, (1, 8, 6, 6), frozen=FROZEN)
    first, second = (re.sub(r"<dt>time</dt>.*", "", eqsat_layout.plan(mod).html()) for _ in range(2))
    assert first == second


def test_nothing_comes_from_elsewhere() -> None:
    page = eqsat_layout.plan(program(two_convolutions, (1, 8, 6, 6), frozen=FROZEN)).html()
    assert not re.search(r"https?:|src=|@import|url\(", page)


def test_names_are_escaped() -> None:
    nasty = "<script>alert('x')</script>&\""
    node = PictureNode("op", nasty, nasty, nasty, nasty, 1e-6, (), nasty)
    picture = Picture(nasty, (node, node), (PictureEdge(0, 1, 4),))
    page = render(
        [picture, picture], [picture], Summary(nasty, [(nasty,) * 3], [(nasty, nasty, 1, 1.0, nasty)], [nasty])
    )
    assert "<script>alert" not in page
    assert page.count("<script>") == 1


def test_an_empty_program() -> None:
    page = render([], [], Summary("nothing", [], [], []))
    assert "None." in page


@pytest.mark.parametrize(
    ("fmt", "name"),
    [
        (Format.row_major((1, 32, 8, 8)), "NCHW"),
        (Format.make(IndexMap.permutation((2, 32, 8, 8), (0, 2, 3, 1))), "NHWC"),
        (Format.make(index_map_from_names("NCHW", "NCHW16c", (2, 32, 8, 8))), "NCHW16c"),
        (Format.make(IndexMap.permutation((4, 6), (1, 0))), "BA"),
        (Format.make(IndexMap.reshape((4, 6), (24,)) or IndexMap.identity((4, 6))), "(i, j) -> (i*6 + j)"),
        (Format.make(IndexMap.identity((4, 8)), padding=((0, 0), (0, 2)), fill=UNDEF), "AB +?"),
    ],
)  # fmt: skip
def test_layouts_have_short_names(fmt: Format, name: str) -> None:
    assert layout_name(fmt) == name


@given(
    st.integers(1, 30).flatmap(
        lambda n: st.tuples(st.just(n), st.sets(st.tuples(st.integers(0, n), st.integers(0, n))))
    )
)
@settings(max_examples=200)
def test_boxes_have_places_of_their_own_and_lines_lead_down(case: tuple[int, set[tuple[int, int]]]) -> None:
    nodes, pairs = case
    edges = sorted({(a, b) for a, b in pairs if a < b < nodes})
    placement = place(nodes, edges)
    assert len(set(zip(placement.rows, placement.columns, strict=True))) == nodes
    assert all(placement.rows[a] < placement.rows[b] for a, b in edges)
    jumping = [e for e in edges if placement.rows[e[1]] - placement.rows[e[0]] > 1]
    assert set(placement.tracks) == set(jumping)
    for first in jumping:
        for second in jumping:
            if first < second and placement.tracks[first] == placement.tracks[second]:
                low = max(placement.rows[first[0]], placement.rows[second[0]])
                assert low >= min(placement.rows[first[1]], placement.rows[second[1]])
