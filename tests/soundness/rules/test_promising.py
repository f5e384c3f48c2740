"""Instances that pass the guards of a rule, and of which it makes what it says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eqsat_layout import op, rule
from eqsat_layout.egraph.python_rules import PythonRule
from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.errors import RuleError
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.maps import IndexMap
from eqsat_layout.soundness.rules.body_searches import searches
from eqsat_layout.soundness.rules.corpus import cases_in
from eqsat_layout.soundness.rules.instances import Instances
from eqsat_layout.soundness.rules.promising import Promise
from eqsat_layout.soundness.rules.rule_base import read_rule_base
from eqsat_layout.soundness.rules.schema import OpCall, drawn


@rule
def of_axis_two(x: Any, axis: Any) -> Iterator[Any]:
    yield op.cumsum(op.cumsum(x, axis=axis), axis=axis)
    if axis != 2:
        return
    yield op.cumsum(x, axis=axis)


@rule
def mistaken(x: Any, axis: Any) -> Iterator[Any]:
    yield op.cumsum(x, axis=axis)
    yield op.cumsum(x, axis=len(axis))


TEXT = """
(rule ((= y (Op k (Arg x (End)))) (is k "relax.nn.softmax") (int-attr k "axis" a) (= z (Op j (Arg x (End))))
       (is j "relax.nn.softmax") (int-attr j "axis" b) (= b (- a 1)) (> a 1))
      ((union y z)) :ruleset logical :name "the axis before")
"""


CORPUS = Path(__file__).parents[1] / "bad_rules"
X = {"x__": TensorType((2, 3, 4), "float32"), "t0": TensorType((2, 3, 4), "float32")}


def promise_of(source: Path | PythonRule) -> Promise:
    """That of one rule."""
    base = read_rule_base([*rule_files(), source])
    return Promise(base, base.rules[-1])


def test_a_rule_claims_nothing_of_what_its_guard_leaves_out() -> None:
    """Axis 2 had one element in the few instances that passed: the rule was "ok" after a minute."""
    promise = promise_of(of_axis_two)
    assert [axis for axis in range(-3, 3) if promise.is_kept({"axis__": axis}, X)] == [2]
    assert {1, 2, 3} <= set(promise.numbers)


def test_a_rule_claims_nothing_of_what_is_of_another_type() -> None:
    promise = promise_of(of_axis_two)
    assert not promise.is_kept({"axis__": 2}, {**X, "t0": TensorType((2, 3, 4), "int32")})
    assert not promise.is_kept({"axis__": 2}, {**X, "x__": TensorType((2, 3), "float32")})


def test_numbers_that_a_rule_computes_with_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "mine.egg"
    path.write_text(TEXT, encoding="utf-8")
    promise = promise_of(path)
    pairs = [(a, b) for a in range(4) for b in range(4) if promise.is_kept({"a": a, "b": b}, {})]
    assert pairs == [(2, 1), (3, 2)]
    assert promise.is_kept({"a": 2}, {})  # nothing is known of b


def test_a_mistake_in_a_function_is_told_with_its_line() -> None:
    with pytest.raises(RuleError, match=r"test_promising\.py:\d+: .*len"):
        promise_of(mistaken).is_kept({"axis__": 2}, X)


def test_instances_of_which_the_rule_claims_something_come_first() -> None:
    base = read_rule_base([*rule_files(), of_axis_two])
    sought = dict(searches(base, base.rules[-1]))
    promises = {key: Promise(base, base.rules[-1]) for key in sought}
    made = Instances(sought, promises).draw(
        [(2, 3, 4)], [], lambda shape, _: IndexMap.identity(shape), random.Random(0)
    )
    calls = [call for found in made.values() for one in found for call in one.values() if isinstance(call, OpCall)]
    assert any(call.values["axis"] == 2 and call.operands[0].shape[2] > 1 for call in calls)
    assert sum(call.values["axis"] == 2 for call in calls) > len(calls) / 2


def test_padding_is_drawn_at_one_side_only() -> None:
    rng, image = random.Random(0), TensorType((1, 2, 4, 4), "float32")
    drawn_ones = [drawn("relax.nn.avg_pool2d", (image,), rng).values["padding"] for _ in range(300)]
    assert any(isinstance(p, list) and len(p) == 4 and p[:2] == [0, 0] and any(p) for p in drawn_ones)


def test_a_list_has_as_many_operands_as_are_known() -> None:
    """Joins of three were drawn with two, and no instance had them."""
    part = TensorType((2, 3), "float32")
    call = drawn("relax.concat", [part, part, part], random.Random(0), exact=True, kept={"axis": 0})
    assert call.operands == (part, part, part)


def test_bounds_of_attributes_that_are_made_are_drawn_beside(tmp_path: Path) -> None:
    """That a repeat is at most three times was right in all models: no attribute was a larger number."""
    (case,) = (
        case for case in cases_in(CORPUS / "worked_out_attributes.egg") if case.name.startswith("repeat at most")
    )
    path = tmp_path / "mine.egg"
    path.write_text(case.text)
    assert {3, 4} <= set(promise_of(path).numbers)
