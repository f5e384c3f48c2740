"""What a rule file may say: a list of the heads that may stand in parentheses, at every depth.

In: the forms of a file and what is declared before it. Out: what is declared after it, or :class:`RuleError` for
the first form that is not on the list: a rule file declares and rewrites, it runs no Python and touches no file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from eqsat_layout.egraph.rule_text import Form, Part, Token
from eqsat_layout.errors import RuleError, did_you_mean

COMPUTED: Final = frozenset(("+", "-", "*", "/", "%", "<", ">", "<=", ">=", "!=", "min", "max", "and", "or", "not"))
"""egglog's functions of numbers, strings and booleans that rules may use."""

_ACTIONS: Final = frozenset(("union", "set", "let", "delete", "subsume"))
_FACTS: Final = frozenset(("=",))
_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "rule": (":name", ":ruleset"),
    "rewrite": (":name", ":ruleset", ":when", ":subsume"),
    "birewrite": (":name", ":ruleset", ":when"),
    "constructor": (":cost", ":unextractable"),
    "function": (":merge", ":no-merge", ":unextractable"),
    "variant": (":cost", ":unextractable"),
}
_FLAGS: Final = frozenset((":subsume", ":no-merge", ":unextractable"))
_FORBIDDEN_NAME: Final = re.compile(r"py-|:|-?[0-9.]|@")
"""No name that is declared starts so: what runs Python, options, numbers, what egglog names itself."""

Declared = Mapping[str, int]
"""How many columns each relation and each function has."""


def check_forms(forms: Iterable[Form], file: str, declared: Declared) -> Declared:
    """``declared`` and what the forms declare, in order."""
    checker = _Checker(file, dict(declared))
    for form in forms:
        checker.command(form)
    return checker.declared


class _Checker:
    """Knows what may be called at a place of the file."""

    def __init__(self, file: str, declared: dict[str, int]) -> None:
        self.file, self.declared = file, declared
        self._commands: Mapping[str, Callable[[Form], None]] = {
            "sort": self._sort,
            "datatype": self._datatype,
            "datatype*": self._datatypes,
            "constructor": self._function,
            "function": self._function,
            "relation": self._relation,
            "ruleset": self._words,
            "unstable-combined-ruleset": self._words,
            "rule": self._rule,
            "rewrite": self._rewrite,
            "birewrite": self._rewrite,
            "let": self._action,
            "union": self._action,
            "set": self._action,
            "check": self._check,
            "fail": self._fail,
        }

    def command(self, form: Form) -> None:
        """One command, at the top or within ``fail``."""
        head = _head(form)
        reader = self._commands.get(head.text) if head is not None else None
        if reader is None:
            raise self._refusal(form, head, self._commands, "a declaration or a rule")
        reader(form)

    def _fail(self, form: Form) -> None:
        for part in form.parts[1:]:
            self.command(self._form(part))

    def _words(self, form: Form) -> None:
        self._tokens(form.parts[1:])

    def _tokens(self, parts: Sequence[Part]) -> None:
        for part in parts:
            self._token(part)

    def _sort(self, form: Form) -> None:
        if len(form.parts) != 2:
            raise self._error(form, "a sort is declared as (sort NAME)")
        self._token(form.parts[1])

    def _datatype(self, form: Form) -> None:
        self._variants(form.parts[1:], form)

    def _datatypes(self, form: Form) -> None:
        for part in form.parts[1:]:
            self._variants(self._form(part).parts, form)

    def _variants(self, parts: Sequence[Part], form: Form) -> None:
        if not parts:
            raise self._error(form, "a datatype has a name")
        self._token(parts[0])
        for part in parts[1:]:
            variant = self._form(part)
            sorts, options = _split_options(variant.parts[1:])
            self._declare(variant.parts[0] if variant.parts else variant, len(sorts))
            self._tokens(sorts)
            self._options(options, "variant", variant)

    def _relation(self, form: Form) -> None:
        if len(form.parts) != 3:
            raise self._error(form, "a relation is declared as (relation NAME (SORT...))")
        columns = self._form(form.parts[2]).parts
        self._declare(form.parts[1], len(columns))
        self._tokens(columns)

    def _function(self, form: Form) -> None:
        parts, options = _split_options(form.parts[1:])
        if len(parts) != 3 or isinstance(parts[2], Form):
            kind = self._token(form.parts[0])
            raise self._error(form, f"a {kind} is declared as ({kind} NAME (SORT...) SORT)")
        columns = self._form(parts[1]).parts
        self._declare(parts[0], len(columns))
        self._tokens(columns)
        self._token(parts[2])
        self._options(options, form.parts[0], form)

    def _rule(self, form: Form) -> None:
        if len(form.parts) < 3:
            raise self._error(form, "a rule is written as (rule (FACT...) (ACTION...))")
        self._facts(form.parts[1])
        for part in self._form(form.parts[2]).parts:
            self._action(self._form(part))
        self._options(form.parts[3:], form.parts[0], form)

    def _rewrite(self, form: Form) -> None:
        if len(form.parts) < 3:
            raise self._error(form, "a rewrite is written as (rewrite BEFORE AFTER)")
        self._term(form.parts[1])
        self._term(form.parts[2])
        self._options(form.parts[3:], form.parts[0], form)

    def _check(self, form: Form) -> None:
        for part in form.parts[1:]:
            self._fact(part)

    def _facts(self, part: Part) -> None:
        for fact in self._form(part).parts:
            self._fact(fact)

    def _fact(self, part: Part) -> None:
        self._term(part, _FACTS)

    def _action(self, form: Form) -> None:
        self._term(form, _ACTIONS)

    def _term(self, part: Part, also: frozenset[str] = frozenset()) -> None:
        """A name, a literal, or a form whose head may be called; ``also`` may stand at its top only."""
        if isinstance(part, Token):
            return
        head = _head(part)
        if head is None or not (head.text in self.declared or head.text in COMPUTED or head.text in also):
            raise self._refusal(part, head, {*self.declared, *also}, "a declared name")
        columns, count = self.declared.get(head.text), len(part.parts) - 1
        if columns not in (None, count):
            raise self._error(part, f"{head.text!r} has {columns} columns, not {count}")
        for inner in part.parts[1:]:
            self._term(inner)

    def _options(self, parts: Sequence[Part], of: Part | str, form: Form) -> None:
        known = _OPTIONS[of.text if isinstance(of, Token) else str(of)]
        rest = list(parts)
        while rest:
            key = rest.pop(0)
            if not isinstance(key, Token) or key.text not in known:
                raise self._error(key, f"expected one of {', '.join(known)}")
            if key.text in _FLAGS:
                continue
            if not rest:
                raise self._error(form, f"{key.text} says nothing")
            value = rest.pop(0)
            if key.text == ":when":
                self._facts(value)
            elif key.text == ":merge":
                self._term(value)
            else:
                self._token(value)

    def _declare(self, part: Part, columns: int) -> None:
        name = self._token(part)
        if _FORBIDDEN_NAME.match(name) or name.startswith('"'):
            raise self._error(part, f"a rule file may not declare {name!r}")
        if name in self.declared:  # egglog says so too, but not all that reads rule files runs it
            raise self._error(part, f"{name!r} is declared already, here or in a file that is read before")
        self.declared[name] = columns

    def _form(self, part: Part) -> Form:
        if isinstance(part, Token):
            raise self._error(part, f"expected a form in parentheses, found {part.text[:20]!r}")
        return part

    def _token(self, part: Part) -> str:
        if isinstance(part, Form):
            raise self._refusal(part, _head(part), (), "a name or a literal")
        return part.text

    def _refusal(self, form: Form, head: Token | None, known: Iterable[str], expected: str) -> RuleError:
        """``known``: the names that are ``expected`` where the form stands."""
        if head is None:
            return self._error(form, "expected a form that starts with a name")
        name = head.text[:40]
        said = f"a rule file may not use '{name}' here, where {expected} is expected"
        is_of_egglog = name in {*self._commands, *_ACTIONS}  # no slip
        near = "" if is_of_egglog else did_you_mean(name, known)
        return self._error(head, f"{said}; {near}".rstrip("; "))

    def _error(self, part: Part, message: str) -> RuleError:
        return RuleError(f"{self.file}:{part.line}:{part.column}: {message}")


def _head(form: Form) -> Token | None:
    first = form.parts[0] if form.parts else None
    return first if isinstance(first, Token) else None


def _split_options(parts: Sequence[Part]) -> tuple[Sequence[Part], Sequence[Part]]:
    """Those before the first ``:option`` and the rest."""
    for number, part in enumerate(parts):
        if isinstance(part, Token) and part.text.startswith(":"):
            return parts[:number], parts[number:]
    return parts, ()
