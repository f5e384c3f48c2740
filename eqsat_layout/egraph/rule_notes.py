"""What a person who wrote a rule should know: it was never applied and why, or what it asked for could not be made.

In: rules, what they matched in the regions of a program, the ops that were refused. Out: notes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from eqsat_layout.egraph.expressions import Expr, arguments_of, is_variable, quoted, show, variables
from eqsat_layout.egraph.rule_forms import REWRITTEN, Rule, rules_of
from eqsat_layout.egraph.rule_grammar import COMPUTED
from eqsat_layout.egraph.rules import Command, is_own
from eqsat_layout.notes import plain

_PHASES = ("logical", "settle", "flow", "build")
"""A rule in another ruleset never runs, which is said elsewhere."""


PYTHON = "python:"
"""How the names begin of what rules written in Python ask for."""


@dataclass
class Experience:
    """What became of the rules of the user's in one region.

    ``unmatched``: by the key of a rule that matched nothing, the facts up to the first that nothing matches.
    ``not_made``: why an op could not be made, by its name and the types of its operands. ``misfits``: pairs of types.
    ``declined``: names of what was asked for and never made, because the rule itself said no.
    """

    unmatched: dict[str, tuple[Expr, ...]] = field(default_factory=dict)
    not_made: dict[tuple[str, str], str] = field(default_factory=dict)
    misfits: tuple[tuple[str, str], ...] = ()
    declined: tuple[str, ...] = ()


def unmatched(
    commands: Iterable[Command], matches: Mapping[str, int], holds: Callable[[str], bool]
) -> dict[str, tuple[Expr, ...]]:
    """The rules of the user's that matched nothing, with the facts that nothing matches together."""
    rules = [rule for rule in users_rules(commands) if not matches.get(rule.key) and rule.ruleset in _PHASES]
    return {rule.key: _unmet(rule, holds) for rule in rules}


def users_rules(commands: Iterable[Command]) -> list[Rule]:
    """Those that do not come with the package."""
    one_per_file = {command.file: command for command in commands}
    theirs = {file for file, command in one_per_file.items() if not is_own(command)}
    return [rule for command in commands if command.file in theirs for rule in rules_of(command)]


def rule_notes(commands: Sequence[Command], regions: Sequence[Experience]) -> Iterator[str]:
    """Notes on a program, given what was found in each of its regions."""
    rules = users_rules(commands)
    for rule in rules:
        facts = [region.unmatched.get(rule.key) for region in regions]
        if regions and all(own is not None for own in facts):
            longest = max((own for own in facts if own is not None), key=len)
            is_python = any(map(_asks_python, rule.actions))
            why = _why_of_python(longest, rule.body) if is_python else _why(longest)
            yield f"rule {rule.label} was never applied: {why}"
    for name, operands, reason in dict.fromkeys((n, o, r) for g in regions for (n, o), r in g.not_made.items()):
        types = operands.replace(";", ", ").removesuffix(", ")
        what = "its result" if name.startswith(PYTHON) else name.partition("#")[0]
        yield f"{_asking(rules, name)}: {what} of ({types}) can't be made: {plain(reason)}"
    for name in dict.fromkeys(name for region in regions for name in region.declined):
        if all(name in region.declined for region in regions):
            yield f"{_asking(rules, name)} was never applied: its pattern is there, but its guard is never true"
    for before, after in dict.fromkeys(pair for region in regions for pair in region.misfits):
        yield f"{_asking(rules, None)}: a value of type {before} was to become one of type {after}"


def _unmet(rule: Rule, holds: Callable[[str], bool]) -> tuple[Expr, ...]:
    """The facts, in an order in which each has to do with those before it, up to the first that can't be met."""
    taken: list[Expr] = []
    known: set[str] = set()
    rest = list(rule.body)
    while rest:
        near = next((fact for fact in rest if known & variables(fact).keys() and not _is_guard(fact)), None)
        fact = near or next((f for f in rest if known >= variables(f).keys()), rest[0])
        rest.remove(fact)
        taken.append(fact)
        known |= variables(fact).keys()
        if not holds(" ".join(map(show, taken))):
            break
    return tuple(taken)


def _is_guard(fact: Expr) -> bool:
    """A comparison."""
    return not isinstance(fact, str) and fact[0] in COMPUTED


def _shown(fact: Expr) -> Expr:
    """A fact as it was written: what is rewritten has no name there."""
    return fact[2] if isinstance(fact, tuple) and fact[:2] == ("=", REWRITTEN) else fact


def _why(facts: Sequence[Expr]) -> str:
    *before, last = map(_shown, facts)
    if _is_guard(last):
        return f"its guard {show(last)} is never true"
    return f"nothing in the program matches {show(last)}" + (f", with {show(tuple(before))[1:-1]}" if before else "")


def _asks_python(term: Expr) -> bool:
    """What is to be made is what a function says."""
    return not isinstance(term, str) and (
        (term[0] == "Make" and isinstance(term[1], str) and term[1].startswith(f'"{PYTHON}'))
        or any(map(_asks_python, term))
    )


def _why_of_python(facts: Sequence[Expr], body: Sequence[Expr]) -> str:
    """The same of a rule written in Python: calls as they stand there, and not the facts that were made of them."""
    parts = [fact for fact in body if not isinstance(fact, str)]
    names = {fact[1]: str(fact[2]).strip('"') for fact in parts if fact[0] == "is"}
    calls = {
        fact[1]: fact[2] for fact in parts if fact[0] == "=" and not isinstance(fact[2], str) and fact[2][0] == "Op"
    }
    keys = {call[1]: value for value, call in calls.items()}

    def written(value: Expr) -> str:
        call = calls.get(value)
        if call is None:
            return str(value).removesuffix("__")
        return f"{names.get(call[1], '?')}({', '.join(map(written, arguments_of(call[2])[0]))})"

    kind, first, *rest = facts[-1] if not isinstance(facts[-1], str) else ("", "")
    value = keys.get(first, first)
    if kind not in ("=", "is", "default", "attr") or value not in calls:
        return _why(facts)
    what = {"default": "with the default of {0}", "attr": "with {0}={1}"}.get(str(kind), "")
    return f"nothing in the program matches {written(value)} {what}".rstrip().format(*(str(r).strip('"') for r in rest))


def _asking(rules: Iterable[Rule], name: str | None) -> str:
    """The rules that may have asked for an op of this name: those that say it, or a signature that stands for it."""
    found = [rule.label for rule in rules if any(_asks(term, name) for term in rule.actions)]
    return ("rule " if len(found) == 1 else "rules ") + ", ".join(found)


def _asks(term: Expr, name: str | None) -> bool:
    if isinstance(term, str):
        return False
    if term[0] == "Make" and (name is None or term[1] == quoted(name) or is_variable(term[1])):
        return True
    return any(_asks(part, name) for part in term)
