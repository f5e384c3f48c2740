"""What of the host's answers, and of ops that it does not name, a rule needs.

In: rules and a rule base. Out: whether anything that they read is there only after a question, and whether they match
ops whose names they do not say. A file of somebody's own mostly speaks of values of ops that it names: the questions
about layouts, which are most of the work of a model, are nothing to it, and the other ops are the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from eqsat_layout.egraph.expressions import forms_of, is_variable, unquoted
from eqsat_layout.egraph.rule_forms import Rule
from eqsat_layout.egraph.rule_grammar import COMPUTED
from eqsat_layout.soundness.rules.fitting_parts import KINDS
from eqsat_layout.soundness.rules.remarks import heads
from eqsat_layout.soundness.rules.rule_base import RuleBase

_TOLD = ("is", "attr", "default", "int-attr")
_COMPLETE = (*_TOLD, "live", "typing", "typed", "rest", "item", "use", "constants", "filled-with")
"""Relations of which models have all rows that are true, or some of all, whatever was asked: none, where there is no op
of which one would be true."""
_OF_NAMES = (*_TOLD, "typed", "filled-with", "=")
"""Facts of a body that match no op but those which stand in it with their names."""
NO_NAMES = (*KINDS, "frozen")
"""What ops of any name are called: of views those that other ops and answers bring are needed too."""


def names_its_ops(rules: Iterable[Rule]) -> bool:
    """Whether rules say what each op is called that their bodies match."""
    return all(_names_all(rule) for rule in rules)


def _names_all(rule: Rule) -> bool:
    forms = list(forms_of(rule.body))
    named = {
        form[1]
        for form in forms
        if form[0] == "is" and not is_variable(form[2]) and unquoted(str(form[2])) not in NO_NAMES
    }
    ops = {form[1] for form in forms if form[0] == "Op"}
    return ops <= named and all(head in _OF_NAMES or head in COMPUTED for head in heads(rule))


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
