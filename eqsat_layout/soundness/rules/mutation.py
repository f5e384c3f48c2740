"""Mutants of rules: whether the fuzzer would notice a slip of the pen.

In: rules. Out: every rule that differs in one token, or lacks one fact, and what became of it: caught by a
counterexample, or sound all the same, with z3's proof as the explanation. What is neither is a survivor.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from eqsat_layout.egraph.expressions import Expr, is_variable, literal_sort
from eqsat_layout.egraph.rule_forms import Rule
from eqsat_layout.errors import RuleError
from eqsat_layout.soundness.rules.fuzzer import FEW_RULES, Fuzzer
from eqsat_layout.soundness.rules.prover import Prover
from eqsat_layout.soundness.rules.reports import Effort, FuzzReport
from eqsat_layout.soundness.rules.rule_base import RuleBase

ROUND = 10
"""Models after which the mutants that were caught are let go."""
FEW = 4 * FEW_RULES
"""Up to so many mutants are fuzzed in groups of which the models are made: each round takes longer, and finds more."""
KINDS = ('"view"', '"pad"', '"crop"')


@dataclass(frozen=True)
class Mutant:
    """``rule`` is ``original`` with ``change``."""

    original: Rule
    rule: Rule
    change: str

    def __str__(self) -> str:
        return f"{self.original}: {self.change}: {self.rule.text}"


@dataclass(frozen=True)
class Verdict:
    """What became of the mutants. ``sound``: proved to conclude nothing false, they only conclude other things.
    ``unmatched``: the survivors of which no model has an instance, such as those that take the name of an op for the
    types of its operands: they conclude nothing."""

    caught: tuple[Mutant, ...]
    sound: tuple[Mutant, ...]
    survivors: tuple[Mutant, ...]
    unmatched: tuple[Mutant, ...] = ()

    @property
    def score(self) -> float:
        """Share of the unsound mutants that are caught."""
        wrong = len(self.caught) + len(self.survivors)
        return len(self.caught) / wrong if wrong else 1.0


def judge(
    base: RuleBase,
    mutants: Iterable[Mutant],
    seconds: float = math.inf,
    seed: int = 0,
    models: float = math.inf,
) -> Verdict:
    """Proves what can be proved of the mutants and fuzzes the rest, all in the same models: so many at most, or for
    ``seconds``, until all are caught."""
    prover = Prover(base)
    sound: list[Mutant] = []
    doubtful: list[Mutant] = []
    for mutant in mutants:
        (sound if prover.prove(mutant.rule).proved else doubtful).append(mutant)
    left, caught = doubtful, []
    matched: set[str] = set()
    start, made = time.perf_counter(), 0
    while left and made < models and time.perf_counter() < start + seconds:
        size = FEW_RULES if len(left) <= FEW else len(left)
        groups = [left[n : n + size] for n in range(0, len(left), size)]
        found = [r for group in groups for r in _round(base, group, seed, made).rules]
        wrong = {r.rule.name for r in found if r.failures}
        matched |= {r.rule.name for r in found if r.matches}
        caught += [m for m in left if m.rule.name in wrong]
        left = [m for m in left if m.rule.name not in wrong]
        made += ROUND
    unmatched = tuple(mutant for mutant in left if mutant.rule.name not in matched)
    return Verdict(tuple(caught), tuple(sound), tuple(left), unmatched)


def _round(base: RuleBase, mutants: Sequence[Mutant], seed: int, first: int) -> FuzzReport:
    """A few models; those that are left after it are fewer, so the next ones are cheaper."""
    fuzzer = Fuzzer(base, [m.rule for m in mutants], seed, until_caught=True)
    return fuzzer.run(Effort(cases=0, models=ROUND), first=first)


def mutants_of(rule: Rule, base: RuleBase) -> Iterator[Mutant]:
    """All mutants of a rule that egglog would take: each has a name of its own."""
    seen = {rule.text}
    for change, made in _all_changes(rule, base):
        if made.text in seen:
            continue
        seen.add(made.text)
        suffix = f"~{len(seen) - 1}"  # also of the key: what is known to be wrong is looked at no longer
        named = replace(made, name=rule.name + suffix, key=rule.key + suffix)
        if _is_well_formed(named, base):
            yield Mutant(rule, named, change)


def _all_changes(rule: Rule, base: RuleBase) -> Iterator[tuple[str, Rule]]:
    for i in range(len(rule.body)):
        if len(rule.body) > 1:
            yield f"without fact {i + 1}", replace(rule, body=rule.body[:i] + rule.body[i + 1 :])
    for change, body in _changes(rule.body, rule, base, inside=False):
        yield change, replace(rule, body=tuple(body))
    for change, actions in _changes(rule.actions, rule, base, inside=False):
        yield change, replace(rule, actions=tuple(actions))


def _changes(expr: Expr, rule: Rule, base: RuleBase, *, inside: bool) -> Iterator[tuple[str, Expr]]:
    """``expr`` with one token changed for one of the same kind."""
    if isinstance(expr, str):
        for other in _instead(expr, rule, base):
            yield f"{other} for {expr}", other
        return
    for i, part in enumerate(expr):
        if i == 0 and inside and isinstance(part, str):
            others = ["-"] if part == "+" and '"' not in "".join(map(str, expr)) else _other_heads(part, base)
            options: list[tuple[str, Expr]] = [(f"{other} for {part}", other) for other in others]
        else:
            options = list(_changes(part, rule, base, inside=True))
        for change, made in options:
            yield change, (*expr[:i], made, *expr[i + 1 :])


def _instead(token: str, rule: Rule, base: RuleBase) -> list[str]:
    if token in KINDS:
        return [kind for kind in KINDS if kind != token]
    if literal_sort(token) == "i64":
        return [str(int(token) + 1)]
    if not is_variable(token):
        return []
    sorts = _sorts(rule, base)
    return [name for name, sort in sorts.items() if name != token and sort == sorts.get(token)]


def _other_heads(head: str, base: RuleBase) -> list[str]:
    """Relations of the same columns that have a meaning, and constructors of the same arguments and result."""
    if head in base.constructors:
        return [name for name, term in base.constructors.items() if name != head and term == base.constructors[head]]
    columns = base.relations.get(head)
    if columns is None:
        return []
    asks = head.startswith("ask-")
    return [
        name
        for name, other in base.relations.items()
        if name != head and other == columns and name.startswith("ask-") == asks
    ]


def _sorts(rule: Rule, base: RuleBase) -> dict[str, str]:
    """Sorts of the body's variables and of those that actions let."""
    sorts = dict(base.variables(rule))
    for action in rule.actions:
        if isinstance(action, tuple) and action[0] == "let":
            term = action[2]
            head = term[0] if isinstance(term, tuple) else ""
            sorts[str(action[1])] = base.constructors.get(str(head), ((), "Tensor"))[1]
    return sorts


def _is_well_formed(rule: Rule, base: RuleBase) -> bool:
    """Sorts agree and actions use what the body binds; egglog would refuse the rest."""
    try:
        bound = set(base.variables(rule))
    except RuleError:
        return False
    for fact in rule.body:
        if not _agrees(fact, _sorts(rule, base), base):
            return False
    for action in rule.actions:
        if isinstance(action, tuple) and action[0] == "let":
            if not _uses(action[2]) <= bound:
                return False
            bound.add(str(action[1]))
        elif not _uses(action) <= bound or not _agrees(action, _sorts(rule, base), base):
            return False
    return True


def _uses(expr: Expr) -> set[str]:
    if isinstance(expr, str):
        return {expr} if is_variable(expr) else set()
    return {name for part in expr[1:] for name in _uses(part)}


def _agrees(expr: Expr, sorts: dict[str, str], base: RuleBase) -> bool:
    if isinstance(expr, str):
        return True
    head, *parts = expr
    columns = base.constructors.get(str(head), (base.relations.get(str(head), ()), ""))[0]
    for part, sort in zip(parts, columns, strict=False):
        if isinstance(part, str) and (literal_sort(part) or sorts.get(part)) != sort:
            return False
    return all(_agrees(part, sorts, base) for part in parts)
