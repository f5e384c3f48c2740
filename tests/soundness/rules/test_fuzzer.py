"""The rule fuzzer: it finds what is wrong, says where, and lets pass what is right."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from effort import tries

from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.errors import RuleError
from eqsat_layout.soundness import assert_rules_sound
from eqsat_layout.soundness.rules import fuzzer
from eqsat_layout.soundness.rules.counterexample import first_difference, first_elements
from eqsat_layout.soundness.rules.fuzzer import FEW_RULES, Fuzzer, Progress, fuzz_rules, in_groups
from eqsat_layout.soundness.rules.jobs import fuzz_in_processes
from eqsat_layout.soundness.rules.known_ops import imports, unusable
from eqsat_layout.soundness.rules.mutation import judge, mutants_of
from eqsat_layout.soundness.rules.ops import usual_call
from eqsat_layout.soundness.rules.pace import AT_MOST
from eqsat_layout.soundness.rules.reports import Effort, FuzzReport
from eqsat_layout.soundness.rules.rule_base import read_rule_base

BAD = Path(__file__).with_name("bad_rules.egg")
QUICK = Effort(cases=20, models=6, at_most=1000)


def fuzz(path: Path, effort: Effort = QUICK, seed: int = 0) -> FuzzReport:
    return fuzz_rules([*rule_files(), path], effort, seed, only=lambda rule: rule.file == str(path))


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.egg"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_classical_mistake_is_found() -> None:
    report = fuzz(BAD, Effort(at_most=AT_MOST))
    assert len(report.rules) == 15
    missed = [str(r.rule) for r in report.rules if not r.failures]
    assert not missed
    for rule in report.rules:
        assert rule.counterexample is not None
        assert f"{BAD}:{rule.rule.line}" in rule.counterexample.text
        assert "seed 0" in rule.counterexample.text


def test_the_rules_of_the_package_have_no_counterexample() -> None:
    report = fuzz_rules(rule_files(), Effort(cases=2, models=tries(12)))
    assert [str(r.rule) for r in report.rules if r.failures] == []
    assert report.is_clean, [(str(r.rule), r.trouble) for r in report.rules if r.trouble]
    assert report.compared > 1000
    assert report.instances > 10_000


def test_the_same_seed_gives_the_same() -> None:
    reports = [fuzz(BAD, Effort(cases=1, models=1), seed) for seed in (3, 3, 4)]
    found = [[(r.matches, r.failures, r.counterexample and r.counterexample.text) for r in x.rules] for x in reports]
    assert found[0] == found[1] != found[2]


def test_a_sound_rule_for_special_ops_finds_instances(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        ; x * sigmoid(x) == silu(x)
        (rule ((= y (Op k (Arg x (Arg s (End))))) (= s (Op j (Arg x (End))))
               (is k "relax.multiply") (is j "relax.sigmoid")
               (= z (Op l (Arg x (End)))) (is l "relax.nn.silu"))
              ((union y z)) :ruleset logical :name "silu")
        (rewrite (Op k (Arg (Op k (Arg x (End))) (End))) x
                 :when ((is k "relax.negative")) :ruleset logical :name "double negation")
        """,
    )
    assert all(report.is_sound for report in fuzz(path, Effort(cases=5, models=3)).rules)


def test_a_relation_without_a_meaning_is_followed_to_where_it_is_used(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        (relation twice (Tensor Tensor))
        (rule ((alias y k x) (alias x j z)) ((twice y z)) :ruleset logical :name "twice")
        (rule ((twice y z)) ((union y z)) :ruleset logical :name "twice is nothing")
        """,
    )
    twice, nothing = fuzz(path, Effort(cases=20, models=2)).rules
    assert twice.is_sound
    assert nothing.failures
    with pytest.raises(AssertionError, match=r"mine\.egg:4: rule 'twice is nothing' is not sound"):
        assert_rules_sound(path, cases=5)


def test_a_meaning_of_ones_own_is_checked(tmp_path: Path) -> None:
    rules = """
        (relation equal (Tensor Tensor))
;= (equal x y) := (= x y)
        (rule ((alias y k x) (identity k)) ((equal x y)) :ruleset logical :name "right")
        (rule ((alias y k x)) ((equal x y)) :ruleset logical :name "wrong")
    """
    right, wrong = fuzz(written(tmp_path, rules)).rules
    assert right.is_sound
    assert wrong.failures


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (";= (nothing x) := (= x x)", "there is no relation 'nothing'"),
        (";= (mine x y) := (= x x)", "'mine' has 1 columns"),
        (";= (mine x) (= x x)", "can't read this"),
        (";= (mine x) := (= x x", "parentheses don't match"),
        (";= (mine x) := " + "(not " * 51 + "(= x x)" + ")" * 51, "parentheses in more than 50 others"),
    ],
)
def test_a_malformed_meaning_is_refused(tmp_path: Path, line: str, message: str) -> None:
    path = written(tmp_path, f"(relation mine (Tensor))\n{line}\n")
    with pytest.raises(RuleError, match=rf"mine\.egg:2: {message}"):
        fuzz(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (";= (identity k) := (= k k)\n", "what 'identity' means is said in the file that declares it"),
        ("(relation mine (Tensor))\n;= (mine x) := (= x x)\n;= (mine x) := (ok x)\n", "was said before"),
    ],
)
def test_a_meaning_is_not_replaced(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        read_rule_base([*rule_files(), written(tmp_path, text)])


def test_a_meaning_inside_a_string_is_none(tmp_path: Path) -> None:
    text = '(relation mine (Tensor))\n(rule ((is k "\n;= (mine x) := (= x x)\n") (= y (Op k a))) ((mine y)) :name "r")'
    assert "mine" not in read_rule_base([*rule_files(), written(tmp_path, text)]).meanings


def test_what_is_no_rule_is_reported(tmp_path: Path) -> None:
    report = fuzz(written(tmp_path, '(union (Param "a") (Param "b"))'), Effort(cases=1, models=1))
    assert report.unread == ["mine.egg:1: 'union' is not a rule that can be fuzzed"]
    assert not report.is_clean


def test_rules_that_are_wrong_together_only_are_found(tmp_path: Path) -> None:
    """Each is true of the facts that there are; with what the other makes, a false merge follows."""
    path = written(
        tmp_path,
        """
        (relation mark (Tensor))
        (rule ((alias y k x)) ((mark y)) :ruleset logical :name "mark")
        (rule ((mark y) (mark x) (want x f) (want y f)) ((union x y)) :ruleset logical :name "marked are one")
        """,
    )
    report = fuzz(path)
    assert report.false_merges or any(r.failures for r in report.rules)


def test_rules_whose_terms_multiply_are_not_run_together_for_ever(tmp_path: Path) -> None:
    """Every merge gives the rule more to match: one round more took longer than anybody waited."""
    path = written(
        tmp_path,
        """
        (rewrite (Op k (Arg (Op k (Arg x (Arg y (End)))) (Arg z (End))))
                 (Op k (Arg x (Arg (Op l (Arg y (Arg z (End)))) (End))))
                 :when ((is k "relax.divide") (is l "relax.multiply")) :ruleset logical :name "divide twice")
        """,
    )
    report = fuzz(path, Effort(cases=1, models=1))
    assert report.false_merges or any(r.failures for r in report.rules)


def test_processes_share_the_work(tmp_path: Path) -> None:
    report = fuzz_in_processes([*rule_files(), BAD], Effort(cases=2, models=2), only=[BAD], jobs=2)
    assert len(report.rules) == 15
    assert report.models >= 2
    assert all(r.counterexample is None or r.rule.file == str(BAD) for r in report.rules)


def test_a_slow_machine_finds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many models were made, and which ops were in them, depended on seconds."""
    rule = '(rule ((= y (Op k (Arg x (End)))) (is k "relax.argmax")) ((live y)) :ruleset logical :name "r")'
    path = written(tmp_path, rule)
    clocks = {name: getattr(time, name) for name in ("perf_counter", "process_time")}
    found = []
    for times in (1, 1000):
        for known in (imports, unusable, usual_call):
            known.cache_clear()
        for name, clock in clocks.items():
            monkeypatch.setattr(time, name, lambda clock=clock, times=times: times * clock())
        report = fuzz(path, Effort(cases=10, models=2, at_most=AT_MOST))
        found.append([(report.models, r.instances, r.matches, r.trouble) for r in report.rules])
    assert found[0] == found[1]
    assert found[0][0][0] == 2


def test_mutants_are_caught() -> None:
    """Some rules here; ``bench.soundness.rules`` has them all."""
    files = rule_files()
    base = read_rule_base(files)
    mutants = [
        m for rule in base.rules if rule.name in ("compose", "view", "crop-of-pad") for m in mutants_of(rule, base)
    ]
    verdict = judge(base, mutants, models=120)
    assert len(mutants) > 60
    assert [str(m) for m in verdict.survivors] == []
    assert len(verdict.caught) > 15


def test_a_mutant_is_looked_at_after_another_one_of_its_rule_was_caught() -> None:
    """One that is known to be wrong is looked at no longer, by its key: all mutants of a rule had one."""
    base = read_rule_base(rule_files())
    mutants = [mutant.rule for rule in base.rules if rule.name == "view" for mutant in mutants_of(rule, base)]
    assert len({mutant.key for mutant in mutants}) == len(mutants) > 1


def test_a_second_rule_of_a_name_is_refused_with_both_places(tmp_path: Path) -> None:
    path = written(tmp_path, '(rule ((alias y k x) (identity k)) ((union y x)) :ruleset logical :name "identity")')
    with pytest.raises(RuleError, match=r'mine\.egg:1:73: a rule is called "identity" already: .*compose\.egg:\d+'):
        fuzz(path)


def test_a_counterexample_shows_the_last_bit() -> None:
    """Of log(exp(x)) and x both sides were shown as the same numbers."""
    numbers = np.float32([1.5, 0.1, np.nextafter(np.float32(1.5), np.float32(2)), np.nan])
    assert first_elements(numbers) == "[1.5 0.1 1.5000001 nan]"


def test_what_is_wrong_together_names_the_rules(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        (function twin (Tensor) Tensor :merge old)
        (rule ((alias y k x)) ((set (twin y) x)) :ruleset logical :name "twin/set")
        (rule ((= x (twin y)) (want x f) (want y f)) ((union x y)) :ruleset logical :name "twin/use")
        (rule ((alias y k x)) ((alias y k x)) :ruleset logical :name "idle")
        """,
    )
    wrong = fuzz(path, Effort(cases=1, models=1)).false_merges
    assert "from mine.egg:3 twin/set and mine.egg:4 twin/use" in wrong[0]


def test_a_chain_ends_when_what_it_claims_is_known_to_be_wrong(tmp_path: Path) -> None:
    """The first rule claims nothing by itself, so that it never failed, and the whole budget was used."""
    path = written(
        tmp_path,
        """
        (relation mark (Tensor))
        (rule ((= y (Op k (Arg x (End)))) (is k "relax.abs")) ((mark y)) :ruleset logical :name "marks")
        (rule ((mark x) (= y (Op k (Arg x (End)))) (is k "relax.negative"))
              ((union y x)) :ruleset logical :name "marked")
        """,
    )
    report = fuzz(path, Effort(models=8, at_most=1000))
    assert any(r.failures for r in report.rules)
    assert report.models == 1


def test_rules_among_many_are_looked_for_as_those_among_few() -> None:
    """Of a file of more than 24 rules models had no terms on purpose: of 45 wrong rules 8 were caught."""
    rules = read_rule_base(rule_files()).rules
    groups = in_groups(rules, Effort(at_most=AT_MOST))
    assert [rule for group in groups for rule in group] == rules
    assert len(groups) > 1
    assert all(len(group) <= FEW_RULES for group in groups)
    assert in_groups(rules, Effort()) == [rules]


def test_progress_tells_of_all_rules_whatever_group_is_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that were in different groups told of different numbers of rules: merging them was an IndexError."""
    rule = '(rule ((= y (Op k (Arg x (End)))) (is k "relax.abs")) ((live y)) :ruleset logical :name "{}")'
    path = written(tmp_path, "\n".join(map(rule.format, "abc")))
    told: list[tuple[str, ...]] = []

    def begun(self: Fuzzer, effort: Effort, progress: Progress) -> FuzzReport:
        found = FuzzReport(self.reports, 0)
        progress(found, 0.5)
        return found

    monkeypatch.setattr(fuzzer, "FEW_RULES", 1)
    monkeypatch.setattr(Fuzzer, "run", begun)
    fuzz_rules(
        [*rule_files(), path],
        Effort(at_most=1),
        only=lambda rule: rule.file == str(path),
        progress=lambda found, share: told.append(tuple(r.rule.name for r in found.rules)),
    )
    assert told == [("a", "b", "c")] * 3


def test_a_difference_behind_the_elements_that_are_shown_is_told() -> None:
    """Of tensors of 320 elements the first 24 are shown: both sides looked alike."""
    left, right = np.zeros((1, 320), "int8"), np.zeros((1, 320), "int8")
    right[0, 71] = 3
    assert list(first_difference(left, right)) == ["first at [0, 71]: 0 and 3"]
    assert list(first_difference(left, left)) == []
    assert list(first_difference(left[:, 70:], right[:, 70:])) == []
