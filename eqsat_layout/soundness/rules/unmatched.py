"""Why no model has an instance of a rule.

In: a rule, its base, and the lexicons of the models so far. Out: the reason, empty if there is none known.
:func:`why_never_matched` gives those that no other model changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eqsat_layout.egraph.expressions import arguments_of, forms_of, is_variable, unquoted
from eqsat_layout.egraph.rule_forms import Rule
from eqsat_layout.graph.op_calls import parameters
from eqsat_layout.soundness.rules.body_searches import body_search_of
from eqsat_layout.soundness.rules.lexicon import Lexicon
from eqsat_layout.soundness.rules.needed_answers import NO_NAMES
from eqsat_layout.soundness.rules.remarks import no_such_type
from eqsat_layout.soundness.rules.rule_base import RuleBase
from eqsat_layout.soundness.rules.schema import takes_operands

_ENOUGH = 2
"""Vocabularies without a call of an op, each with searches of its own, before none is expected."""


def why_never_matched(rule: Rule, base: RuleBase, lexicons: Sequence[Lexicon]) -> str:
    """Why whatever model has no instance of a rule."""
    read = next((str(form[0]) for form in forms_of(rule.body) if form[0] in base.functions), "")
    if read:
        return f"the models hold nothing of the function {read!r}"
    for name, count in operand_counts(rule):
        if parameters(name) is not None and not takes_operands(name, count):
            return other_operands(rule, lexicons) or f"{name} does not take {count} operands that are tensors"
    is_missing = len(lexicons) >= _ENOUGH and any(_has_none(name, lexicons) for name in named_ops(rule))
    return no_such_type(body_search_of(base, rule.body)) or (why_missing(rule, lexicons) if is_missing else "")


def why_missing(rule: Rule, lexicons: Sequence[Lexicon]) -> str:
    """Which op that a body names some vocabulary lacks, and why."""
    for name in named_ops(rule):
        for lexicon in lexicons:
            if name in lexicon.vocabulary.missing:
                return f"{name}: {lexicon.vocabulary.missing[name]}"
    return ""


def other_operands(rule: Rule, lexicons: Sequence[Lexicon]) -> str:
    """Which op of a body takes other numbers of operands than there."""
    signatures = [s for lexicon in lexicons for s in lexicon.vocabulary.signatures.values()]
    for name, count in operand_counts(rule):
        known = sorted({len(s.operands) for s in signatures if s.name == name})
        if known and count not in known:
            return f"{name} has {' or '.join(map(str, known))} operands that are tensors in the models, not {count}"
    return ""


def _has_none(name: str, lexicons: Sequence[Lexicon]) -> bool:
    vocabularies = [lexicon.vocabulary for lexicon in lexicons]
    signatures = (s for vocabulary in vocabularies for s in vocabulary.signatures.values())
    return all(name in one.missing for one in vocabularies) and all(s.name != name for s in signatures)


def operand_counts(rule: Rule) -> Iterator[tuple[str, int]]:
    """The names of ops in terms of the body, with how many operands they have there."""
    names = {f[1]: unquoted(str(f[2])) for f in rule.body if isinstance(f, tuple) and f[0] == "is" and len(f) == 3}
    for term in forms_of(rule.body):
        if term[:1] == ("Op",) and len(term) == 3 and term[1] in names:
            operands, rest = arguments_of(term[2])
            if rest == ("End",):
                yield names[term[1]], len(operands)


def named_ops(rule: Rule) -> Iterator[str]:
    """Names of ops that the body asks for."""
    for fact in rule.body:
        if isinstance(fact, tuple) and fact[0] == "is" and not is_variable(fact[2]):
            name = unquoted(str(fact[2]))
            if name not in NO_NAMES:
                yield name
