"""Why a plan is as it is: what each transform that stays saves, and how ops came to their layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from programs import AVX2, constant, program
from tvm import relax
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
        assert f" {stay.transform.before}, " in stay.reason
        assert f" {stay.transform.after}; " in stay.reason
    ends = [t for t in explanation.transforms if not t.made_by or not t.wanted_by]
    assert [t.dearer for t in ends] == [None, None]  # a frozen op and Relax's own layout: nothing else will do
    assert "no program was found without it" in ends[0].reason


def test_every_op_says_how_it_came_to_its_layouts() -> None:
    choices = eqsat_layout.plan(program(at_odds, (1, 8, 6, 6), frozen=LAYOUTS)).explain().choices
    assert [(c.tensor, c.op, c.result) for c in choices if c.op != "nn.relu"] == [
        ("first", "nn.conv2d", "NCHW4c"),
        ("second", "nn.conv2d", "NHWC"),
    ]
    assert [c.origin for c in choices if c.op == "nn.conv2d"] == ["frozen", "frozen"]
    (relu,) = [c for c in choices if c.op == "nn.relu"]
    assert relu.origin.startswith("layout flows backward")
    assert relu.rules == ("impls", "back", "back/operand", "run")  # wanted by the second, and made so


def test_a_transform_that_a_kernel_does_by_the_way_costs_nothing() -> None:
    """It was priced at all that the kernel costs, and the sum was more than the plan."""

    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.nn.conv2d(x, constant(8, 8, 3, 3), padding=1), "first")
        return builder.emit(op.take(builder.emit(op.permute_dims(y, [1, 0, 2, 3])), relax.const(0, "int64"), axis=1))

    plan = eqsat_layout.plan(program(body, (4, 8, 6, 6), frozen={"relax.nn.conv2d": ["NHWC", "HWIO"]}))
    stays = plan.explain().transforms
    row = next(change for change in plan.changes if change.op == "layout transforms")
    assert sum(stay.cost for stay in stays) == pytest.approx(row.after)
    free = [stay for stay in stays if stay.cost == 0]
    assert free
    assert all("at no cost of its own" in stay.reason for stay in free)


def test_a_plan_that_changes_nothing_has_nothing_to_explain() -> None:
    explanation = eqsat_layout.plan(program(lambda b, x: op.nn.relu(x), (4, 6))).explain()
    assert explanation.transforms == ()
    assert explanation.choices == ()
    assert "main is unchanged: no program that was found costs less than it does as written" in str(explanation)
    assert "How the ops are run" not in str(explanation)  # a table without rows


def test_equal_rows_of_explain_are_one_row() -> None:
    """ResNet-50 was explained in 738 lines: a row for every op."""

    def chain(builder: Any, x: Any) -> Any:
        for seed in range(6):
            y = builder.emit(op.nn.conv2d(x, constant(8, 8, 1, 1, seed=seed)), f"conv{seed}")
            x = builder.emit(op.nn.relu(y), f"relu{seed}")
        return x

    explanation = eqsat_layout.plan(program(chain, (1, 8, 6, 6), frozen=PACKED)).explain()
    assert len(explanation.choices) == 12
    groups = explanation.groups()
    assert sum(map(len, groups)) == 12
    assert len(groups) <= 4
    assert all(len({(c.op, c.result, c.origin, c.rules) for c in group}) == 1 for group in groups)
    text = str(explanation)
    assert "conv0 to conv5" in text
    assert len(text.splitlines()) < 25


@pytest.mark.parametrize("layouts", [None, LAYOUTS])
def test_plain_data(layouts: Any) -> None:
    explanation = eqsat_layout.plan(program(at_odds, (1, 8, 6, 6), frozen=layouts)).explain()
    data = explanation.to_dict()
    assert len(data["transforms"]) == len(explanation.transforms)
    assert len(data["choices"]) == len(explanation.choices)


# ---- rules -----------------------------------------------------------------------------------------------------------


def rules_of(body: Any, *mine: Path, frozen: Any = LAYOUTS, shape: Any = (1, 8, 6, 6), target: Any = None) -> Any:
    """The rules behind the first op of each kind and origin."""
    plan = eqsat_layout.plan(program(body, shape, frozen=frozen), target, rules=mine)
    assert plan.changed
    return {(c.op, c.origin): c.rules for c in reversed(plan.explain().choices)}


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.egg"
    path.write_text(text)
    return path


def between(*steps: Any) -> Any:
    """``steps`` between two convolutions that are frozen to the same layout."""

    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.nn.conv2d(x, constant(8, 8, 1, 1)))
        for step in steps:
            y = builder.emit(step(y))
        return builder.emit(op.nn.conv2d(y, constant(8, 8, 1, 1, seed=1)))

    return body


PACKED = {"relax.nn.conv2d": ["NCHW4c", "OIHW4i4o"]}


def test_a_layout_that_flows_forward_says_so() -> None:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.nn.conv2d(x, constant(8, 8, 1, 1)), "first")
        return builder.emit(op.mean(builder.emit(op.nn.relu(y)), axis=[2, 3]))

    found = rules_of(body, frozen={"first": LAYOUTS["first"]})
    assert found["nn.conv2d", "frozen"] == ("impls", "run")
    assert found["nn.relu", "layout flows forward from operand 0"] == ("impls", "fwd", "run")
    assert found["mean", "layout flows forward from operand 0"] == ("impls", "fwd", "run")


def test_candidates_and_alternatives_say_so() -> None:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.nn.relu(builder.emit(op.nn.conv2d(x, constant(32, 32, 3, 3), padding=1))))
        return builder.emit(op.nn.conv2d(builder.emit(op.nn.relu(y)), constant(32, 32, 1, 1, seed=1)))

    found = rules_of(body, frozen=None, shape=(1, 32, 56, 56), target=AVX2)
    candidates = [rules for (name, origin), rules in found.items() if origin.startswith("candidate")]
    assert candidates
    assert set(candidates) == {("impls", "run")}
    parts = {name: rules for (name, origin), rules in found.items() if origin.startswith("winograd F(")}
    assert len(parts) == 5  # Winograd's stages
    assert all("alternative/op" in rules for rules in parts.values())
    (result,) = [rules for name, rules in parts.items() if name.endswith("winograd_result")]
    assert "alternative" in result  # the equality by which it replaces the convolution


def test_what_runs_as_it_was_written_says_so() -> None:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.nn.conv2d(x, constant(8, 8, 1, 1)), "first")
        y = builder.emit(op.nn.conv2d(builder.emit(op.nn.relu(y)), constant(8, 8, 1, 1, seed=1)), "second")
        return builder.emit(op.flip(builder.emit(op.cumsum(y, axis=1)), axis=1))

    found = rules_of(body, frozen={"first": LAYOUTS["first"], "second": LAYOUTS["first"]})
    assert found["flip", "as written"] == ("run",)  # it is wanted so from outside
    assert found["cumsum", "as written"] == ("impls", "run")
    assert found["nn.relu", "layout flows backward from result 0"] == ("impls", "back", "back/operand", "run")


def test_folded_weights_and_composed_views_name_the_equalities() -> None:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.permute_dims(builder.emit(op.permute_dims(x, [0, 2, 3, 1])), [0, 3, 1, 2]))
        weight = builder.emit(op.permute_dims(constant(1, 1, 8, 8), [3, 2, 0, 1]))
        return builder.emit(op.nn.relu(builder.emit(op.nn.conv2d(y, weight))))

    found = rules_of(body, frozen=PACKED)
    assert found["nn.conv2d", "frozen"] == ("compose", "identity", "fold", "impls", "run")


TWICE = """
; -(-x) == x
(rewrite (Op k (Arg (Op k (Arg x (End))) (End))) x :when ((is k "relax.negative")) :ruleset logical)
; relu (relu x) == relu x
(rule ((= y (Op k (Arg x (End)))) (is k "relax.nn.relu") (= x (Op k a)))
      ((union y x)) :ruleset logical :name "relu twice")
"""


def test_a_users_rewrite_is_named_with_its_file_and_line(tmp_path: Path) -> None:
    mine = written(tmp_path, TWICE)
    negated = rules_of(between(op.negative, op.negative, op.abs), mine, frozen=PACKED)
    assert negated["nn.conv2d", "frozen"] == ("mine.egg:3", "impls", "run")
    assert {rules for (name, _), rules in negated.items() if name == "abs"} == {
        ("impls", "back", "back/operand", "run")
    }
    clipped = rules_of(between(op.nn.relu, op.nn.relu), mine, frozen=PACKED)
    (relu,) = [rules for (name, _), rules in clipped.items() if name == "nn.relu"]
    assert relu[0] == "relu twice (mine.egg:5)"
    assert not any("mine.egg:3" in rule for rules in clipped.values() for rule in rules)


def test_a_users_rule_that_did_nothing_for_an_op_is_not_named(tmp_path: Path) -> None:
    """It matches, but what it says is not used, or holds without it."""
    mine = written(
        tmp_path,
        """
(rule ((= y (Op k (Arg x (End)))) (is k "relax.nn.relu")) ((want y "1x8x6x6>c.a.b.d")) :ruleset flow :name "unused")
(rule ((= y (Op k (Arg x (End)))) (= z (Op k (Arg x (End))))) ((union y z)) :ruleset logical :name "known")
(rule ((want y f) (= y (Op k a)) (back k f v gs)) ((run y f v a)) :ruleset build :name "again")
""",
    )
    found = rules_of(between(op.nn.relu, op.abs), mine, frozen=PACKED)
    assert not [rules for rules in found.values() if any("mine.egg" in rule for rule in rules)]


def test_users_rules_that_build_on_each_other_are_all_named(tmp_path: Path) -> None:
    mine = written(
        tmp_path,
        """
(relation positive (Tensor))
(rule ((= y (Op k (Arg x (End)))) (is k "relax.nn.relu")) ((positive y)) :ruleset logical :name "relu is positive")
(rule ((positive x) (= y (Op k (Arg x (End)))) (is k "relax.abs")) ((union y x)) :ruleset logical)
(rule ((positive x)) ((positive x)) :ruleset logical :name "no news")
""",
    )
    found = rules_of(between(op.nn.relu, op.abs), mine, frozen=PACKED)
    assert {name for name, _ in found} == {"nn.conv2d", "nn.relu"}
    (relu,) = [rules for (name, _), rules in found.items() if name == "nn.relu"]
    assert relu[:2] == ("relu is positive (mine.egg:3)", "mine.egg:4")


def test_a_users_rule_that_wants_a_format_is_named(tmp_path: Path) -> None:
    mine = written(
        tmp_path,
        """
(rule ((want x f) (= y (Op k (Arg x (End)))) (is k "relax.nn.relu") (live x))
      ((want y f)) :ruleset flow :name "relu as its operand")
""",
    )

    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.nn.conv2d(x, constant(8, 8, 1, 1)), "first")
        return builder.emit(op.mean(builder.emit(op.nn.relu(y)), axis=[2, 3]))

    found = rules_of(body, mine, frozen={"first": LAYOUTS["first"]})
    (relu,) = [rules for (name, _), rules in found.items() if name == "nn.relu"]
    assert relu == ("impls", "relu as its operand (mine.egg:2)", "run")
    (mean,) = [rules for (name, _), rules in found.items() if name == "mean"]
    assert mean == ("impls", "fwd", "relu as its operand (mine.egg:2)", "run")
