"""What the rule fuzzer says of many rules in one file: they share the models, which take most of the time."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.soundness.rules.fuzzer import fuzz_rules
from eqsat_layout.soundness.rules.reports import Effort, RuleReport

Reports = dict[str, RuleReport]

NOT_FUZZED = {
    "no op": ('(rule ((= y (Op k a)) (is k "relax.no_such_op")) ((live y))', "relax.no_such_op: no such op"),
    "a view": (
        '(rule ((= y (Op k a)) (is k "relax.expand_dims")) ((live y))',
        "relax.expand_dims: programs have it as a view, a pad or a crop, which are named otherwise",
    ),
    "a call that is a view": (
        '(rule ((= y (Op k (Arg x (End)))) (is k "relax.einsum") (attr k "subscripts" "\'ij->ji\'")) ((live y))',
        "no instance: relax.einsum (subscripts=ij->ji): it is a view, a pad or a crop",
    ),
    # TVM knows its type, and has no kernel of it
    "no kernel": (
        '(rule ((= y (Op k a)) (is k "relax.nn.pixel_shuffle")) ((live y))',
        "relax.nn.pixel_shuffle: no call of it is found that can be run: module 'tvm.topi.nn' has no attribute",
    ),
    "no axis": (
        '(rule ((= y (Op k a)) (is k "relax.nn.softmax") (int-attr k "axis" i) (< i -9)) ((live y))',
        "no instance: (< i -9) is never true in the models",
    ),
    "operands": (
        '(rule ((= y (Op k (Arg x (Arg i (Arg j (End)))))) (is k "relax.one_hot")) ((live y))',
        "no instance: relax.one_hot has 1 operands that are tensors in the models, not 3",
    ),
    # it is a view, of which rules are told with axes from the front
    "a permutation": (
        '(rule ((= y (Op k a)) (is k "relax.permute_dims") (attr k "axes" "[-1, 0]")) ((live y))',
        'no instance: (attr k "axes" "[-1, 0]") is never true in the models',
    ),
    "no row": ("(rule ((row-ref 1234567)) ((row-ref 1))", "(row-ref 1234567) is never true in the models"),
    # the one is bool, the other not: it was "ok on 725 instances", in which it claimed nothing
    "another type": (
        '(rule ((= y (Op k (Arg x (End)))) (is k "relax.isnan")) ((may-become y x))',
        "no instance in which (may-become ...) claims anything: (and (ok t) (same-type y t)) is never true",
    ),
    "no type": (
        '(rule ((= y (Op k (Arg x (End)))) (is k "relax.exp") (typed x "float32")) ((live y))',
        'no instance: no type is called "float32"; that of 2 x 3 numbers is "float32[2,3]"',
    ),
    "a sort": ("(sort S) (relation s (S)) (rule ((s x)) ((s x))", "no random instances of sort 'S'"),
}
"""The beginning of a rule, and what is said of it."""

ODD_OPS = ("flatten", "full_like", "quantize", "bucketize", "logical_and")
SORTS = ("sort", "argsort")


def fuzzed(path: Path, rules: Iterable[str], effort: Effort) -> Reports:
    """One rule per line, and its name."""
    path.write_text("\n".join(rules), encoding="utf-8")
    found = fuzz_rules([*rule_files(), path], effort, only=lambda rule: rule.file == str(path))
    return {report.rule.name: report for report in found.rules}


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    """Rules of which one model says enough."""
    rules = [
        "(relation near (Tensor Tensor))",
        '(rule ((alias y k x)) ((near y x)) :ruleset logical :name "mark")',
        '(rule ((near y x)) ((union y x)) :ruleset logical :name "near is one")',
        '(rule ((alias y k x) (is k "view")) ((alias y k x)) :ruleset logical :name "guarded")',
        *(f'{rule} :ruleset logical :name "{name}")' for name, (rule, _) in NOT_FUZZED.items()),
        *(
            f'(rule ((= y (Op k (Arg x r))) (is k "relax.{op}")) ((live y)) :ruleset logical :name "{op}")'
            for op in ODD_OPS
        ),
    ]
    return fuzzed(tmp_path_factory.mktemp("rules") / "mine.egg", rules, Effort(cases=1, models=1))


@pytest.fixture(scope="module")
def caught(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    """Wrong rules, in models until all of them have failed."""
    rules = [
        *(
            f'(rule ((= y (Op k (Arg (Op r (Arg x (End))) (End)))) (is k "relax.{op}") (is r "relax.nn.relu")'
            f' (= z (Op k (Arg x (End))))) ((union y z)) :ruleset logical :name "{op}")'
            for op in SORTS
        ),
        '(rule ((= y (Op k (Arg x (End)))) (is k "relax.nn.relu") (= z (Op j (Arg x (End)))) (is j "relax.abs"))'
        ' ((union y z)) :ruleset logical :name "relu and abs")',
        "(relation apart (Tensor Tensor))",
        ";= (apart x y) := (=> (= x y) (false))",
        '(rule ((alias y k x) (!= y x)) ((apart y x)) :ruleset logical :name "apart")',
        '(rule ((= y (Op k (Arg (Op k (Arg x (End))) (End)))) (is k "relax.nn.max_pool2d")'
        ' (= z (Op k (Arg x (End))))) ((union y z)) :ruleset logical :name "pool")',
        '(rule ((= y (Op k (Arg x (Arg c (End))))) (filled-with c "4") (is k "relax.mod") (filled-with d "3"))'
        ' ((becomes y (Make "relax.bitwise_and" "" (Arg x (Arg d (End)))))) :ruleset logical :name "mask")',
    ]
    return fuzzed(tmp_path_factory.mktemp("rules") / "mine.egg", rules, Effort(models=12, at_most=1000))


@pytest.mark.parametrize("name", NOT_FUZZED)
def test_what_cannot_be_fuzzed_is_reported(looked_at: Reports, name: str) -> None:
    report = looked_at[name]
    assert NOT_FUZZED[name][1] in report.trouble
    assert not report.is_sound


@pytest.mark.parametrize("op", ODD_OPS)
def test_what_is_not_one_kernel_of_all_its_operands_is_in_the_models(looked_at: Reports, op: str) -> None:
    assert looked_at[op].is_sound, looked_at[op].trouble


def test_the_report_says_what_was_concluded_through_what_has_no_meaning(looked_at: Reports) -> None:
    mark, use = looked_at["mark"], looked_at["near is one"]
    assert any(
        "(near ...) has no meaning, judged where it is used: mine.egg:3 near is one" in line for line in mark.remarks
    )
    assert use.counterexample is not None
    assert "through (near ...), which has no meaning, from mine.egg:2 mark" in use.counterexample.text


def test_a_guard_that_is_never_false_is_said(looked_at: Reports) -> None:
    assert '(is k "view") is never false in the models: nothing tests it' in looked_at["guarded"].remarks


@pytest.mark.parametrize("op", SORTS)
def test_what_sorts_is_in_the_models(caught: Reports, op: str) -> None:
    assert caught[op].failures


def test_a_counterexample_shows_one_world(caught: Reports) -> None:
    """The elements of the two sides are those that stand beside their tensors."""
    counterexample = caught["relu and abs"].counterexample
    assert counterexample is not None
    lines = counterexample.text.splitlines()
    numbers = {line.split(" = ")[0].strip(): line.split(" = ", 1)[1] for line in lines if " = " in line}
    left, name = lines[lines.index(next(li for li in lines if li.startswith("  y = ("))) :][0], numbers["k"]
    assert name == "relax.nn.relu"
    tensor = next(line for line in lines if line.startswith("  y = t")).split(" = ")[1]
    shown = next(line for line in lines if line.startswith(f"  {tensor} = "))
    assert left.split("[")[1] == shown.split("[")[1]


def test_what_has_not_been_found_equal_yet_is_not_known_to_differ(caught: Reports) -> None:
    assert caught["apart"].failures


def test_terms_that_few_ops_fit_in_are_built(caught: Reports) -> None:
    """A pool that gives the shape that it takes, and is more than the identity, is rarely drawn by chance."""
    assert caught["pool"].failures


def test_constants_that_only_the_result_has_are_in_the_models(caught: Reports) -> None:
    """No operand was the number, nothing matched, and a wrong rule was "could not be checked"."""
    assert caught["mask"].failures
