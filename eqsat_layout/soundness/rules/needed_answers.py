"""What of the host's answers a rule needs.

In: rules and a rule base. Out: whether anything that they read is there only after a question. A file of somebody's own
mostly speaks of values: the questions about layouts, which are most of the work of a model, are nothing to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from eqsat_layout.egraph.rule_forms import Rule
from eqsat_layout.soundness.rules.remarks import heads
from eqsat_layout.soundness.rules.rule_base import RuleBase

_COMPLETE = ("live", "typing", "typed", "rest", "item", "use", "constants", "filled-with")
"""Relations of which models have all rows that are true, or some of all, whatever was asked."""


def needs_answers(rules: Iterable[Rule], base: RuleBase, given: Collection[str]) -> bool:
    """Whether rules read what only answers bring, or what other rules conclude from that.

    ``given``: relations that the host tells without being asked.
    """
    waiting = [head for rule in rules for head in heads(rule)]
    read: set[str] = {*given, *_COMPLETE}
    while waiting:
        relation = waiting.pop()
        if relation in read or relation not in base.relations:
            continue
        read.add(relation)
        sources = [rule for rule in base.rules if relation in _concluded(rule)]
        if not sources and not relation.startswith("row-"):
            return True
        waiting += [head for rule in sources for head in heads(rule)]
    return False


def _concluded(rule: Rule) -> set[str]:
    return {str(action[0]) for action in rule.actions if isinstance(action, tuple)}
