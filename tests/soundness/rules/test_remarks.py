"""What is said of rules besides whether they were caught."""

from __future__ import annotations

from pathlib import Path

from soundness.rules.own_rules import own_rules

from eqsat_layout.soundness.rules.remarks import never_true


def test_a_guard_on_an_attribute_that_is_never_so_is_told_how_it_is(tmp_path: Path) -> None:
    """The axes of a view are numbers, whatever the program left out: nothing more was said."""
    _, (rule,) = own_rules(
        tmp_path,
        '(rule ((= y (Op k (Arg x (End)))) (is k "relax.permute_dims") (attr k "axes" "None")) ((union y x))'
        ' :ruleset logical :name "none")',
    )
    rows = {
        "is": [("turned", "relax.permute_dims"), ("sum", "relax.sum")],
        "attr": [("turned", "axes", "[1, 0]"), ("sum", "axes", "[0]")],
    }
    assert never_true(rule.body[2], rule, [rows]) == (
        '(attr k "axes" "None") is never true in the models, where it is "[1, 0]";'
        ' (default k "axes") says that it is as if it were left out'
    )
    assert never_true(rule.body[2], rule, []) == '(attr k "axes" "None") is never true in the models'
