"""Why no model has an instance of a rule, and how soon that is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.soundness.rules.fuzzer import fuzz_rules
from eqsat_layout.soundness.rules.pace import AT_MOST
from eqsat_layout.soundness.rules.reports import Effort

NEVER = {
    "no kernel": ('(= y (Op k a)) (is k "relax.nn.pixel_shuffle")', "has no attribute 'pixel_shuffle'", 2),
    "operands": (
        '(= y (Op k (Arg x (Arg i (Arg j (End)))))) (is k "relax.negative")',
        "relax.negative has 1 operands that are tensors in the models, not 3",
        1,
    ),
    "no type": ('(= y (Op k a)) (is k "relax.abs") (typed y "float32")', 'no type is called "float32"', 1),
    "a function": ('(= y (Op k a)) (is k "relax.abs") (= n (size y)) (> n 3)', "nothing of the function 'size'", 1),
}


@pytest.mark.parametrize("case", NEVER)
def test_what_no_model_has_an_instance_of_is_said_at_once(case: str, tmp_path: Path) -> None:
    """It took as many models as a right rule, nine seconds for an op without a kernel; a function of somebody's own
    stopped the fuzzer: "can't tell the sort of 'n'"."""
    body, why, models = NEVER[case]
    path = tmp_path / "mine.egg"
    path.write_text(
        f'(function size (Tensor) i64 :merge (max old new)) (rule ({body}) ((live y)) :ruleset logical :name "{case}")'
    )
    report = fuzz_rules(rule_files([path]), Effort(at_most=AT_MOST), only=lambda rule: rule.file == str(path))
    (rule,) = report.rules
    assert why in rule.trouble
    assert report.models == models
