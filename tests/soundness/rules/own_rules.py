"""Rules of somebody's own, beside the package's."""

from __future__ import annotations

from pathlib import Path

from eqsat_layout.egraph.rule_forms import Rule
from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.soundness.rules.rule_base import RuleBase, read_rule_base


def own_rules(folder: Path, text: str) -> tuple[RuleBase, list[Rule]]:
    """What is known with a file of that ``text``, and the rules in it."""
    path = folder / "mine.egg"
    path.write_text(text, encoding="utf-8")
    base = read_rule_base([*rule_files(), path])
    return base, [rule for rule in base.rules if rule.file == str(path)]
