"""Rules that make ops which no program has: what they can say, what is refused, where they end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from compare import assert_same_fast
from programs import program
from tvm.relax import op

import eqsat_layout
from eqsat_layout.cost.model import Roofline
from eqsat_layout.egraph.rule_forms import Rule
from eqsat_layout.graph.graph import Signature
from eqsat_layout.graph.importer import import_module

SILU = """
; x * sigmoid(x) == silu(x)
(rule ((= y (Op k (Arg x (Arg s (End))))) (is k "relax.multiply")
       (= s (Op j (Arg x (End)))) (is j "relax.sigmoid"))
      ((becomes y (Make "relax.nn.silu" "" (Arg x (End))))) :ruleset logical :name "silu")
"""
CROP_OF_RELU = """
; crop (relu x) == relu (crop x)
(rule ((= y (Op c (Arg r (End)))) (is c "crop") (= r (Op k (Arg x (End)))) (is k "relax.nn.relu"))
      ((becomes y (Make k "" (Arg (Make c "" (Arg x (End))) (End))))) :ruleset logical :name "crop-of-relu")
"""
CONCAT_OF_CONCAT = """
; concat (concat x y) z == concat x y z, along the same axis
(rule ((= v (Op k (Arg u (Arg z (End))))) (= u (Op j (Arg x (Arg y (End)))))
       (is k "relax.concat") (is j "relax.concat") (attr k "axis" axis) (attr j "axis" axis))
      ((becomes v (Make k "" (Arg x (Arg y (Arg z (End))))))) :ruleset logical :name "concat-of-concat")
"""
TRANSPOSED_MATMUL = """
; (a b)^T == b^T a^T, for two axes
(rule ((= y (Op t (Arg m (End)))) (attr t "axes" "[1, 0]") (= m (Op k (Arg a (Arg b (End))))) (is k "relax.matmul"))
      ((let at (Make "relax.permute_dims" "axes=[1, 0]" (Arg a (End))))
       (let bt (Make "relax.permute_dims" "axes=[1, 0]" (Arg b (End))))
       (becomes y (Make k "" (Arg bt (Arg at (End)))))) :ruleset logical :name "transposed-matmul")
"""
POOL_OF_POOL = """
; picking every t-th of every s-th element is picking every (t * s)-th
(rule ((= y (Op k (Arg p (End)))) (= p (Op j (Arg x (End))))
       (is k "relax.nn.max_pool2d") (is j "relax.nn.max_pool2d")
       (attr k "pool_size" "[1, 1]") (attr j "pool_size" "[1, 1]") (default k "padding") (default j "padding")
       (attr k "strides" t) (attr j "strides" s))
      ((becomes y (Make k (+ "strides=" s " * " t) (Arg x (End))))) :ruleset logical :name "pool-of-pool")
"""
EXPANDED_CUMSUM = """
; the running sum over axis a of x == the sum over axis a + 1 of x with an axis more in front, that one
; taken away
(rule ((= y (Op k (Arg x (End)))) (is k "relax.cumsum") (attr k "axis" a) (int-attr k "axis" i) (< i 2))
      ((let wide (Make "relax.expand_dims" "axis=0" (Arg x (End))))
       (let sum (Make k (+ "axis=" a " + 1") (Arg wide (End))))
       (becomes y (Make "relax.squeeze" "axis=[0]" (Arg sum (End))))) :ruleset logical :name "expanded")
"""


def planned(tmp_path: Path, rule: str, mod: Any, **options: Any) -> eqsat_layout.Plan:
    path = tmp_path / "mine.egg"
    path.write_text(rule)
    return eqsat_layout.plan(mod, "llvm", rules=[path], **options)


def silu(b: Any, x: Any) -> Any:
    return b.emit(op.multiply(x, b.emit(op.sigmoid(x))))


def crop_of_relu(b: Any, x: Any) -> Any:
    return b.emit(op.strided_slice(b.emit(op.nn.relu(x)), [0], [1], [3]))


def concats(b: Any, x: Any, y: Any, z: Any) -> Any:
    return b.emit(op.concat([b.emit(op.concat([x, y], axis=0)), z], axis=0))


def transposed_matmul(b: Any, x: Any, y: Any) -> Any:
    both = b.emit(op.matmul(b.emit(op.permute_dims(x)), b.emit(op.permute_dims(y))))
    return b.emit(op.permute_dims(both))


def pools(b: Any, x: Any) -> Any:
    first = b.emit(op.nn.max_pool2d(x, (1, 1), strides=(2, 3)))
    return b.emit(op.nn.max_pool2d(first, (1, 1), strides=(2, 1)))


def cumsum(b: Any, x: Any) -> Any:
    return b.emit(op.cumsum(x, axis=1))


EXAMPLES = {
    "silu": (SILU, silu, [(64, 128)], "R.nn.silu(", "R.sigmoid("),
    "concat": (CONCAT_OF_CONCAT, concats, [(64, 512), (3, 512), (2, 512)], "(x0, x1, x2)", "(x0, x1)"),
    "attributes": (POOL_OF_POOL, pools, [(1, 8, 96, 96)], "strides=[4, 3]", "strides=[2, 3]"),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_rules_make_ops(name: str, tmp_path: Path) -> None:
    rule, body, shapes, there, gone = EXAMPLES[name]
    mod = program(body, *shapes)
    plan = planned(tmp_path, rule, mod)
    text = plan.module.script()
    assert there in text, text
    assert gone not in text, text
    assert_same_fast(mod, plan.module)
    assert plan.cost < eqsat_layout.plan(mod, "llvm").cost


class Prefers(Roofline):
    """What the program itself has is dear."""

    def __init__(self, mod: Any):
        super().__init__()
        self._there = set(import_module(mod).signatures)

    def run(self, op: Signature, *formats: Any, **more: Any) -> float:
        return super().run(op, *formats, **more) * (1000 if op.key in self._there else 1)


FORCED = {
    "crop": (CROP_OF_RELU, crop_of_relu, [(16, 8)]),
    "matmul": (TRANSPOSED_MATMUL, transposed_matmul, [(6, 4), (3, 6)]),
    "axis": (EXPANDED_CUMSUM, cumsum, [(4, 6)]),
}


@pytest.mark.parametrize("name", FORCED)
def test_what_rules_make_computes_the_same(name: str, tmp_path: Path) -> None:
    rule, body, shapes = FORCED[name]
    mod = program(body, *shapes)
    plan = planned(tmp_path, rule, mod, cost_model=Prefers(mod), validate=True)
    assert any("mine.egg" in origin for origin in str(plan.explain()).splitlines()), plan.explain()
    assert_same_fast(mod, plan.module)


REFUSED = {
    "no-op": (
        '(Make "relax.nn.sil" "" (Arg x (End)))',
        "there is no op 'relax.nn.sil' that takes tensors; did you mean",
    ),
    "no-attribute": ('(Make "relax.nn.relu" "axis=1" (Arg x (End)))', "relax.nn.relu has no attribute 'axis'"),
    "ill-typed": ('(Make "relax.matmul" "" (Arg x (Arg x (End))))', "Matmul"),
    "other-type": (
        '(Make "relax.sum" "" (Arg x (End)))',
        "a value of type float32[64,128] was to become one of type float32[]",
    ),
    "no-value": ('(Make "relax.sum" "axis=[0][3]" (Arg x (End)))', "has no value"),
    "no-python": ('(Make "relax.sum" "axis=open(1)" (Arg x (End)))', "attributes are numbers, strings, lists"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_a_note_with_its_reason(name: str, tmp_path: Path) -> None:
    term, reason = REFUSED[name]
    mod = program(lambda b, x: b.emit(op.nn.relu(x)), (64, 128))
    rule = f'(rule ((= y (Op k (Arg x (End)))) (is k "relax.nn.relu")) ((becomes y {term})) :ruleset logical)'
    plan = planned(tmp_path, rule, mod)
    assert plan.module.same_as(mod)
    assert any(reason in note for note in plan.notes), plan.notes


def test_a_rule_that_makes_ops_for_ever_is_stopped_and_named(tmp_path: Path) -> None:
    rule = """
    (rule ((= y (Op k (Arg x (End)))) (is k "relax.nn.leakyrelu") (attr k "alpha" v))
          ((becomes y (Make k (+ "alpha=" v " * 0.5") (Arg x (End))))) :ruleset logical :name "smaller")
    """
    mod = program(lambda b, x: b.emit(op.nn.leakyrelu(x, 0.5)), (4, 8))
    plan = planned(tmp_path, rule, mod, limits=eqsat_layout.Limits(steps=100))
    assert any("still at work: rule 'smaller' of mine.egg:2" in note for note in plan.notes), plan.notes


def test_two_refused_terms_join_nothing(tmp_path: Path) -> None:
    """Terms that can't be made are equal to nothing: relu and exp are not the same because both were to become one."""
    bad = '(Make "relax.matmul" "" (Arg x (End)))'
    rule = "\n".join(
        f'(rule ((= y (Op k (Arg x (End)))) (is k "relax.{name}")) ((becomes y {bad})) :ruleset logical)'
        for name in ("nn.relu", "exp")
    )
    mod = program(lambda b, x: (b.emit(op.nn.relu(x)), b.emit(op.exp(x))), (4, 8))
    assert_same_fast(mod, planned(tmp_path, rule, mod).module)


NEVER = {
    "no-op": ('(is k "relax.nn.softmax") (= x (Op j (Arg z (End)))) (is j "relax.exp")', 'matches (is j "relax.exp")'),
    "no-attribute": ('(is k "relax.nn.softmax") (attr k "axis" "7")', 'matches (attr k "axis" "7")'),
    "guard": ('(is k "relax.nn.softmax") (int-attr k "axis" a) (< a -3)', "its guard (< a -3) is never true"),
}


def test_what_is_rewritten_is_noted_as_it_was_written(tmp_path: Path) -> None:
    """The note spoke of "rewritten__", which stands in no rule."""
    rule = """(rewrite (Op k (Arg x (Arg z (End)))) x :when ((is k "relax.add")) :ruleset logical :name "mine")"""
    (note,) = planned(tmp_path, rule, program(lambda b, x: b.emit(op.nn.relu(x)), (4, 8))).notes
    assert note.endswith("nothing in the program matches (Op k (Arg x (Arg z (End))))")


@pytest.mark.parametrize("name", NEVER)
def test_a_rule_that_is_never_applied_is_noted_with_the_reason(name: str, tmp_path: Path) -> None:
    body, reason = NEVER[name]
    rule = f'(rule ((= y (Op k (Arg x (End)))) {body}) ((union y y)) :ruleset logical :name "mine")'
    mod = program(lambda b, x: b.emit(op.nn.softmax(b.emit(op.nn.relu(x)))), (4, 8))
    notes = planned(tmp_path, rule, mod).notes
    assert len(notes) == 1, notes
    assert notes[0].startswith("rule mine (mine.egg:1) was never applied: "), notes
    assert reason in notes[0]


def test_a_rule_that_gains_nothing_is_noted(tmp_path: Path) -> None:
    """What only rules say that never matched was said, not of those that matched in vain."""
    mod = program(lambda b, x: b.emit(op.nn.softmax(b.emit(op.nn.relu(x)))), (4, 8))
    dearer = (
        '(rule ((= y (Op k (Arg x (End)))) (is k "relax.nn.relu"))\n'
        '      ((becomes y (Make k "" (Arg (Make k "" (Arg x (End))) (End))))) :ruleset logical :name "twice")'
    )
    (note,) = planned(tmp_path, dearer, mod).notes
    assert note == "rule twice (mine.egg:1) was applied, and gained nothing: nothing that is run came from it"


def test_a_rule_that_gains_something_is_not_said_to_gain_nothing(tmp_path: Path) -> None:
    silu = program(lambda b, x: b.emit(op.multiply(x, b.emit(op.sigmoid(x)))), (64, 128))
    assert not planned(tmp_path, SILU, silu).notes
    gone = (
        "(rewrite (Op k (Arg (Op k (Arg x (End))) (End))) x\n"
        '    :when ((is k "relax.negative")) :ruleset logical :name "twice negative")'
    )
    twice = program(lambda b, x: b.emit(op.negative(b.emit(op.negative(b.emit(op.nn.relu(x)))))), (64, 128))
    assert not planned(tmp_path, gone, twice).notes


def test_notes_on_many_rules_take_no_time_for_every_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rule's place was worked out for each note: a file of ten thousand rules took seven minutes."""
    asked: list[Rule] = []
    label = Rule.label
    monkeypatch.setattr(Rule, "label", property(lambda rule: asked.append(rule) or label.fget(rule)))
    rules = [
        f'(rule ((= y (Op k (Arg x (End)))) (is k "relax.exp{i}")) ((union y x)) :ruleset logical :name "r{i}")'
        for i in range(60)
    ]
    notes = planned(tmp_path, "\n".join(rules), program(lambda b, x: b.emit(op.nn.relu(x)), (4, 8))).notes
    assert len(notes) >= 60
    assert len(asked) < 6 * 60
