"""What looks like a slip in a rule that egglog takes all the same.

In: a rule. Out: lines for a person, without its place: a rule that no phase runs, names of ops and attributes
that do not exist, a name or an attribute's text without its quotes, a variable that stands in one place only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from eqsat_layout.egraph.attribute_text import read_value, shown
from eqsat_layout.egraph.expressions import Expr, is_variable, quoted, unquoted
from eqsat_layout.egraph.rule_forms import REWRITTEN, Rule, rules_of
from eqsat_layout.egraph.rules import Command, is_own
from eqsat_layout.errors import Refused
from eqsat_layout.graph.op_calls import parameters
from eqsat_layout.graph.op_names import RELAX, nearest_ops, relax_ops

_ATTRIBUTES = ("attr", "int-attr", "default")
"""The facts that name an attribute of an op."""


def lint_notes(commands: Iterable[Command]) -> list[str]:
    """What a plan says of rules that do not come with the package, with their places; the rest is said by ``fuzz``."""
    own = [command for command in commands if not is_own(command)]
    return [f"rule {rule.label}: {line}" for command in own for rule in rules_of(command) for line in _slips(rule)]


def lint(rule: Rule) -> Iterator[str]:
    """All that is found."""
    yield from _slips(rule)
    once = [name for name, count in _occurrences(rule).items() if count == 1 and not name.startswith("_")]
    if once:
        yield f"used once: {', '.join(once)} (a name that starts with _ says that this is meant)"


def _slips(rule: Rule) -> Iterator[str]:
    """What keeps a rule from ever being applied."""
    if not rule.ruleset:
        yield "it is in no ruleset, so it never runs: say :ruleset logical, settle, flow or build"
    names: dict[Expr, str] = {}
    for fact in rule.body:
        if isinstance(fact, tuple) and fact[:1] == ("is",) and len(fact) == 3 and isinstance(fact[2], str):
            names[fact[1]] = unquoted(fact[2])
            yield from _lint_name(fact[2])
    for fact in rule.body:
        if isinstance(fact, tuple) and len(fact) > 2 and fact[0] in _ATTRIBUTES and isinstance(fact[2], str):
            yield from _lint_attribute(names.get(fact[1], ""), fact[2])
            if fact[0] == "attr" and len(fact) > 3 and str(fact[3]).startswith('"'):
                yield from _lint_value(fact[2], unquoted(str(fact[3])))


def _lint_name(name: str) -> Iterator[str]:
    if name.startswith(RELAX):
        yield f"{name} is a variable here, which stands for any name: write {quoted(name)}"
    elif name.startswith('"') and unquoted(name).startswith(RELAX) and unquoted(name) not in relax_ops():
        near = nearest_ops(unquoted(name))
        yield f"there is no op {unquoted(name)}" + (f": did you mean {' or '.join(near)}?" if near else "")


def _lint_attribute(op: str, name: str) -> Iterator[str]:
    known = [parameter.name for parameter in parameters(op) or () if not parameter.is_tensor]
    if name.startswith('"') and parameters(op) is not None and unquoted(name) not in known:
        own = f"it has {', '.join(known)}" if known else "it has none"
        yield f"{op} has no attribute {unquoted(name)}; {own}"


def _lint_value(name: str, text: str) -> Iterator[str]:
    """Texts of attributes are compared letter by letter."""
    try:
        written = shown(read_value(text))
    except Refused:
        written = repr(text)
    if written != text:
        yield f"the attribute {unquoted(name)} is never {quoted(text)}: write {quoted(written)}"


def _occurrences(rule: Rule) -> Counter[str]:
    found: Counter[str] = Counter()

    def visit(expr: Expr, *, head: bool = False) -> None:
        if isinstance(expr, tuple):
            for place, part in enumerate(expr):
                visit(part, head=place == 0 and isinstance(part, str))
        elif not head and is_variable(expr) and expr != REWRITTEN:
            found[expr] += 1

    for form in (*rule.body, *rule.actions):
        visit(form)
    return found
