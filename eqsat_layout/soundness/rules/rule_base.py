"""Rule files as a whole: what they declare, what their rules say, and what their relations mean.

In: commands of rule files and the ``;=`` lines between them. Out: :class:`RuleBase`. A ``;=`` line gives the meaning of
a relation: ``;= (alias y k x) := (= y (at k x))``; rules/README.md tells the language. What is not a rule that can be
read so is kept as :class:`Unread`, with the reason.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Final

from eqsat_layout.egraph.expressions import Expr, is_variable, literal_sort, parse, substituted, variables
from eqsat_layout.egraph.making import Builder
from eqsat_layout.egraph.rule_forms import Rule, rules_of
from eqsat_layout.egraph.rule_grammar import COMPUTED
from eqsat_layout.egraph.rules import Command, RuleSource, read_all, read_file
from eqsat_layout.errors import RuleError

_MEANING = ";= "
_ANYTHING = "_"
_DEEPEST = 50
"""Parentheses in each other in a meaning."""
_CLAIM_NOTHING = ("live", "row-ref", "row-list")
TAKE_BACK: Final = ("delete", "subsume")
"""Actions that claim nothing: what is concluded without a fact holds."""


@dataclass(frozen=True)
class Meaning:
    """``formula`` says what a row of the relation says of ``columns``; its other variables stand for everything."""

    columns: tuple[str, ...]
    formula: Expr
    file: str
    line: int


@dataclass(frozen=True)
class Unread:
    """A command that may act and that the fuzzer can't read."""

    file: str
    line: int
    why: str

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}: {self.why}"


@dataclass
class RuleBase:
    """Everything that some rule files say, in order; ``builders``: what rules written in Python make, by name;
    ``functions``: somebody's own, of which nothing is known but the sorts; ``globals``: what names stand for that a
    ``let`` outside of rules gives, and that are no variables in the rules behind it."""

    relations: dict[str, tuple[str, ...]] = field(default_factory=dict)
    constructors: dict[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    functions: dict[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    meanings: dict[str, Meaning] = field(default_factory=dict)
    rules: list[Rule] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    builders: dict[str, Builder] = field(default_factory=dict)
    globals: dict[str, Expr] = field(default_factory=dict)

    def variables(self, rule: Rule) -> dict[str, str]:
        """The variables of the body with their sorts, in order; :class:`RuleError` where one has none."""
        sorts: dict[str, str] = {}
        for _ in range(len(rule.body) + 1):  # (= x y) passes sorts on
            for fact in rule.body:
                self._collect(fact, sorts)
        for name in variables(rule.body):
            if name not in sorts:
                raise RuleError(f"{rule.file}:{rule.line}: can't tell the sort of {name!r}")
        return {name: sorts[name] for name in variables(rule.body)}

    def _collect(self, expr: Expr, sorts: dict[str, str]) -> str | None:
        """Notes the sorts of variables in ``expr`` and returns its own, if it is known."""
        if isinstance(expr, str):
            return literal_sort(expr) or sorts.get(expr)
        head, *parts = expr
        assert isinstance(head, str)
        made = self.constructors.get(head) or self.functions.get(head)
        if made or head in self.relations:
            columns, result = made or (self.relations[head], None)
            for part, sort in zip(parts, columns, strict=False):
                self._collect(part, sorts)
                if is_variable(part):
                    sorts.setdefault(str(part), sort)
            return result
        found = [self._collect(part, sorts) for part in parts]
        known = next((sort for sort in found if sort), None)
        for part in parts:
            if is_variable(part) and known:
                sorts.setdefault(str(part), known)
        return known if head in COMPUTED else None


def without_meaning(rule: Rule, base: RuleBase) -> tuple[str, ...]:
    """Relations that a rule concludes and that nobody gave a meaning to: what it says is judged where they are used.

    Questions are none, they claim nothing; and neither is ``live``, which says only what is to be paid for.
    """
    heads = dict.fromkeys(str(action[0]) for action in rule.actions if isinstance(action, tuple))
    claims = [h for h in heads if h in base.relations and h not in base.meanings and h not in _CLAIM_NOTHING]
    return tuple(h for h in claims if not h.startswith("ask-"))


def claims_anything(rule: Rule, base: RuleBase) -> bool:
    """Whether anything that a rule concludes has a meaning: relations without one are judged where they are used."""
    silent = {*without_meaning(rule, base), *_CLAIM_NOTHING, *TAKE_BACK}
    return any(not isinstance(a, tuple) or str(a[0]) not in silent for a in rule.actions)


def takes_back(rule: Rule) -> bool:
    """Whether all that it does is to take facts back: what is concluded without them holds."""
    return all(isinstance(action, tuple) and action[0] in TAKE_BACK for action in rule.actions)


def read_rule_base(sources: Iterable[RuleSource]) -> RuleBase:
    """Reads rule files, and rules written in Python.

    :class:`RuleError` for what egglog would not take either, and for a wrong meaning.
    """
    base = RuleBase()
    sources = list(sources)
    commands = read_all(sources)
    base.commands += commands
    for path in sources:
        if not isinstance(path, Path):
            base.builders[path.asked_for] = path.build
            _read(path.command, base)
            continue
        own = [command for command in commands if command.file == str(path)]
        for command in own:
            _read(command, base)
        declared = {name for command in own for name in _declared(command)}
        for meaning in _meanings(path):
            _add_meaning(base, declared, *meaning)
    _refuse_circles(base)
    return base


def _refuse_circles(base: RuleBase) -> None:
    """Raises :class:`RuleError` where a relation is explained by itself."""
    explained: set[str] = set()

    def explain(name: str, above: tuple[str, ...]) -> None:
        meaning = base.meanings[name]
        if name in above:
            raise RuleError(f"{meaning.file}:{meaning.line}: what {name!r} means is said by way of {name!r} itself")
        for used in _heads_in(meaning.formula) if name not in explained else ():
            if used in base.meanings:
                explain(used, (*above, name))
        explained.add(name)

    for name in base.meanings:
        explain(name, ())


def _heads_in(formula: Expr) -> Iterator[str]:
    if not isinstance(formula, str) and formula:
        yield str(formula[0])
        for part in formula[1:]:
            yield from _heads_in(part)


def _read(command: Command, base: RuleBase) -> None:
    form = parse(command.text)[0]
    assert not isinstance(form, str)
    head, *parts = form
    rules = rules_of(command)
    reader = _READERS.get(str(head))
    if rules:
        base.rules += [_with_names(_without_globals(rule, base.globals)) for rule in rules]
    elif head == "let":
        base.globals[str(parts[0])] = substituted(parts[1], base.globals)
    elif reader is not None:
        reader(parts, base)
    elif head not in ("ruleset", "sort", "check", "fail"):
        if head == "function":
            base.functions[str(parts[0])] = (tuple(map(str, parts[1])), str(parts[2]))
        base.unread.append(Unread(command.file, command.line, f"'{head}' is not a rule that can be fuzzed"))


def _without_globals(rule: Rule, known: Mapping[str, Expr]) -> Rule:
    """The rule with what the names stand for."""
    body, actions = (tuple(substituted(one, known) for one in forms) for forms in (rule.body, rule.actions))
    subsumed = None if rule.subsumed is None else substituted(rule.subsumed, known)
    return replace(rule, body=body, actions=actions, subsumed=subsumed) if known else rule


def _with_names(rule: Rule) -> Rule:
    """The rule with a name of its own for each ``_``, which stands for something else at every place."""
    if _ANYTHING not in variables(rule.body):
        return rule
    known = variables((rule.body, rule.actions))
    fresh = (name for number in itertools.count() if (name := f"_any{number}") not in known)

    def named(expr: Expr) -> Expr:
        if isinstance(expr, str):
            return next(fresh) if expr == _ANYTHING else expr
        return tuple(named(part) for part in expr)

    return replace(rule, body=tuple(named(fact) for fact in rule.body))


def _relation(parts: Sequence[Expr], base: RuleBase) -> None:
    base.relations[str(parts[0])] = tuple(map(str, parts[1]))


def _constructor(parts: Sequence[Expr], base: RuleBase) -> None:
    base.constructors[str(parts[0])] = (tuple(map(str, parts[1])), str(parts[2]))


_READERS = {
    "relation": _relation,
    "constructor": _constructor,
}


def _meanings(path: Path) -> Iterator[tuple[str, str, int]]:
    """Comments that start a line; what looks like one within a string is none."""
    for comment in read_file(path).comments:
        if comment.column == 1 and comment.text.startswith(_MEANING):
            yield comment.text.removeprefix(_MEANING).rstrip("\r"), str(path), comment.line


def _declared(command: Command) -> Iterator[str]:
    form = parse(command.text)[0]
    if isinstance(form, tuple) and form[:1] == ("relation",):
        yield str(form[1])


def _add_meaning(base: RuleBase, declared: set[str], text: str, file: str, line: int) -> None:
    def wrong(why: str) -> RuleError:
        return RuleError(f"{file}:{line}: {why}; a meaning is written ';= (relation columns...) := formula'")

    opened = text.count("(")
    if opened != text.count(")"):
        raise wrong("parentheses don't match")
    if opened > _DEEPEST and max(accumulate((c == "(") - (c == ")") for c in text)) > _DEEPEST:
        raise wrong(f"parentheses in more than {_DEEPEST} others")
    forms = parse(text)
    if len(forms) != 3 or forms[1] != ":=" or isinstance(forms[0], str):
        raise wrong("can't read this")
    name, *columns = map(str, forms[0])
    if name not in base.relations:
        raise wrong(f"there is no relation {name!r}")
    if name not in declared:
        raise wrong(f"what {name!r} means is said in the file that declares it, and nowhere else")
    if name in base.meanings:
        raise wrong(f"what {name!r} means was said before")
    if len(columns) != len(base.relations[name]) or len(set(columns)) != len(columns):
        raise wrong(f"{name!r} has {len(base.relations[name])} columns")
    base.meanings[name] = Meaning(tuple(columns), forms[2], file, line)
