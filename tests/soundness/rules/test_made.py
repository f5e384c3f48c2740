"""Rules that ask for ops are fuzzed as all are: what the host makes is evaluated; what it can't make claims nothing."""

from __future__ import annotations

from pathlib import Path

from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.soundness.rules.fuzzer import Effort, fuzz_rules

RULES = """
(rule ((= y (Op k (Arg x (Arg s (End))))) (is k "relax.multiply") (= s (Op j (Arg x (End)))) (is j "relax.sigmoid"))
      ((becomes y (Make "relax.nn.silu" "" (Arg x (End))))) :ruleset logical :name "right")
(rule ((= y (Op k (Arg x (End)))) (is k "relax.exp"))
      ((becomes y (Make "relax.nn.relu" "" (Arg x (End))))) :ruleset logical :name "wrong")
(rule ((= y (Op k (Arg x (End)))) (is k "relax.nn.softmax"))
      ((becomes y (Make k "axis=0" (Arg x (End))))) :ruleset logical :name "wrong-attribute")
(rule ((= y (Op c (Arg r (End)))) (is c "crop") (= r (Op k (Arg x (End)))) (is k "relax.nn.relu"))
      ((becomes y (Make k "" (Arg (Make c "" (Arg x (End))) (End))))) :ruleset logical :name "nested")
(rule ((= y (Op k (Arg x (End)))) (is k "relax.exp"))
      ((becomes y (Make "relax.matmul" "" (Arg x (End))))) :ruleset logical :name "never-made")
"""


def test_rules_that_ask_for_ops_are_fuzzed(tmp_path: Path) -> None:
    path = tmp_path / "mine.egg"
    path.write_text(RULES)
    report = fuzz_rules([*rule_files(), path], Effort(cases=5, models=8), only=lambda r: r.file == str(path))
    by_name = {r.rule.name: r for r in report.rules}
    assert {name for name, r in by_name.items() if r.failures} == {"wrong", "wrong-attribute"}
    assert {name for name, r in by_name.items() if r.is_sound} == {"right", "nested"}
    assert "can't be made" in by_name["never-made"].trouble
    counterexample = by_name["wrong"].counterexample
    assert counterexample is not None
    assert '(Make "relax.nn.relu" "" (Arg x (End))) = ' in counterexample.text
