"""Why a plan is as it is: what each transform that stays saves, and how ops came to their layouts."""

from __future__ import annotations

from typing import Any

import pytest
from programs import constant, program
from tvm.relax import op

import eqsat_layout

LAYOUTS = {"first": ["NCHW4c", "OIHW4i4o"], "second": ["NHWC", "OHWI"]}


def at_odds(builder: Any, x: Any) -> Any:
    """Two convolutions that are frozen to different layouts."""
    y = builder.emit(op.nn.relu(builder.emit(op.nn.conv2d(x, constant(8, 8, 1, 1)), "first")))
    return builder.emit(op.nn.conv2d(y, constant(8, 8, 1, 1, seed=1)), "second")


def test_every_transform_that_stays_has_its_reason() -> None:
    plan = eqsat_layout.plan(program(at_odds, (1, 8, 6, 6), frozen=LAYOUTS))
    explanation = plan.explain()
    assert len(explanation.transforms) == len(plan.transforms) == 3
    assert [t.transform.bytes for t in explanation.transforms] == [t.bytes for t in plan.transforms]
    for stay in explanation.transforms:
        assert stay.cost > 0
        assert stay.dearer is None or stay.dearer >= 0
        assert stay.reason in " ".join(str(explanation).split())
    ends = [t for t in explanation.transforms if t.made_by == "the outside" or not t.wanted_by]
    assert [t.dearer for t in ends] == [None, None]  # a frozen op and Relax's own layout: nothing else will do
    assert "no other program supplies it" in ends[0].reason


def test_every_op_says_how_it_came_to_its_layouts() -> None:
    choices = eqsat_layout.plan(program(at_odds, (1, 8, 6, 6), frozen=LAYOUTS)).explain().choices
    assert [(c.tensor, c.op, c.result) for c in choices if c.op != "nn.relu"] == [
        ("first", "nn.conv2d", "NCHW4c"),
        ("second", "nn.conv2d", "NHWC"),
    ]
    assert [c.origin for c in choices if c.op == "nn.conv2d"] == ["frozen", "frozen"]
    (relu,) = [c for c in choices if c.op == "nn.relu"]
    assert relu.origin.startswith("layout flows")
    assert set(relu.rules) >= {"back", "run"}


def test_a_plan_that_changes_nothing_has_nothing_to_explain() -> None:
    explanation = eqsat_layout.plan(program(lambda b, x: op.nn.relu(x), (4, 6))).explain()
    assert explanation.transforms == ()
    assert explanation.choices == ()
    assert "No layout transform stays" in str(explanation)


@pytest.mark.parametrize("layouts", [None, LAYOUTS])
def test_plain_data(layouts: Any) -> None:
    explanation = eqsat_layout.plan(program(at_odds, (1, 8, 6, 6), frozen=layouts)).explain()
    data = explanation.to_dict()
    assert len(data["transforms"]) == len(explanation.transforms)
    assert len(data["choices"]) == len(explanation.choices)
