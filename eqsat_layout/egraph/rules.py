"""Rule files: finding them, splitting them into commands, refusing what a rule file may not do.

In: paths of ``.egg`` files. Out: commands with their file and position, printed from what was read and checked. Errors
are :class:`RuleError` with ``file:line:column``.
"""

from __future__ import annotations

import codecs
import itertools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, Protocol

from eqsat_layout.egraph.rule_grammar import Declared, check_forms
from eqsat_layout.egraph.rule_text import Form, RuleText, Token, read_rule_text
from eqsat_layout.errors import EqsatError, RuleError
from eqsat_layout.system.readable import check_size


@dataclass(frozen=True)
class Command:
    """One top-level command of a rule file; ``line`` and ``column`` (from 1) are those of its opening parenthesis."""

    text: str
    file: str
    line: int
    column: int


class WrittenRule(Protocol):
    """A rule that stands in no rule file: ``command`` is its text, and ``build`` makes what that asks for by a name."""

    @property
    def command(self) -> Command: ...

    @property
    def asked_for(self) -> str: ...

    def build(self, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Any: ...


RuleSource = Path | WrittenRule
"""A rule file, or a rule written in Python."""

_COMMENT: Final = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t]*;[^\n]*')
"""Or a string, which may have a semicolon in it."""
_BEGINS_LINE: Final = re.compile(r"^(?=\()", re.MULTILINE)

_MAKING: Final = "make.egg"
"""Nothing in it matches before a rule asks for an op."""

LARGEST: Final = 64 << 20
"""Bytes of a rule file."""
LOADING: Final = ("handles", "load")
"""Rulesets that are run before a program is there, to the end."""


@cache
def rules_dir() -> Path:
    """The folder of the shipped ``*.egg`` files: inside an installed package, beside it in a checkout.

    Looked for once: every rule is asked whether it comes from there, again and again.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "rules", package.parent / "rules"):
        if _rules_in(folder):
            return folder
    raise EqsatError(f"the rule files are missing: neither {package / 'rules'} nor {package.parent / 'rules'} has any")


def without_making(commands: Iterable[Command]) -> list[Command]:
    """Those that do something in a program where nothing asks for an op that is not in it, as only users' rules do."""
    making = str(rules_dir() / _MAKING)
    return [command for command in commands if command.file != making]


def _rules_in(folder: Path) -> list[Path]:
    try:
        return sorted(folder / name for name in os.listdir(folder) if name.endswith(".egg"))
    except OSError:
        return []


def rule_files(extra: Iterable[str | Path] | None = None) -> list[Path]:
    """The package's own rule files in loading order, then the user's."""
    own = _rules_in(rules_dir())
    if not own:
        raise RuleError(f"{rules_dir()}: no rule files found; the installation is incomplete")
    return own + [Path(path) for path in extra or ()]


def is_own(command: Command) -> bool:
    """Whether it comes with the package."""
    return _is_shipped(command.file)


@lru_cache
def _is_shipped(file: str) -> bool:
    return os.path.dirname(file) == str(rules_dir())


def read_all(sources: Iterable[RuleSource]) -> list[Command]:
    """The commands of some files and rules, in order. A file may use what those before it and the package declare."""
    sources = list(sources)
    texts = _shipped_texts()
    own = _commands_by_file(texts)
    files = [str(source) for source in sources if isinstance(source, Path) and str(source) in own]
    if len(set(files)) == len(sources):
        return [command for file in files for command in own[file]]
    shipped, declared = _checked(texts)
    commands: list[Command] = []
    named: dict[str, str] = {}
    for source in sources:
        file = str(source) if isinstance(source, Path) else source.command.file
        forms = shipped.get(file)
        if forms is None:
            read = read_file(source) if isinstance(source, Path) else read_rule_text(source.command.text, file)
            forms = read.forms
            declared = check_forms(forms, file, declared)
            _check_rulesets(forms, file)
        _check_names(forms, file, named)
        commands += _commands(forms, file) if isinstance(source, Path) else [source.command]
    return commands


def _check_names(forms: Iterable[Form], file: str, named: dict[str, str]) -> None:
    """Refuses a second rule of a name, for which egglog panics; ``named`` says where the first stands."""
    for form in forms:
        for key, value in itertools.pairwise(form.parts):
            if isinstance(key, Token) and key.text == ":name" and isinstance(value, Token):
                where = f"{file}:{value.line}:{value.column}"
                if value.text in named:
                    raise RuleError(f"{where}: a rule is called {value.text} already: {named[value.text]}")
                named[value.text] = where


def _check_rulesets(forms: Iterable[Form], file: str) -> None:
    """Refuses rules of somebody's own where a program is loaded: what these would match is held to no limit."""
    for form in forms:
        for key, value in itertools.pairwise(form.parts):
            if isinstance(key, Token) and key.text == ":ruleset" and isinstance(value, Token) and value.text in LOADING:
                raise RuleError(
                    f"{file}:{value.line}:{value.column}: the rules of {value.text} load the program, and are the "
                    "package's: say :ruleset logical, settle, flow or build"
                )


def read_file(path: Path) -> RuleText:
    """The forms and comments of one file, not yet checked."""
    return read_rule_text(text_of(path), str(path))


def text_of(path: Path) -> str:
    """:class:`RuleError` names a file that can't be read."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise RuleError(f"{path}: can't read the rule file: a pipe or a device")
        check_size(path, LARGEST)
        text = path.read_bytes().removeprefix(codecs.BOM_UTF8).decode()
        return text.replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RuleError(f"{path}: can't read the rule file: {reason}") from error


def _commands(forms: Iterable[Form], file: str) -> list[Command]:
    return [Command(form.text, file, form.line, form.column) for form in forms]


def _shipped_texts() -> tuple[tuple[str, str], ...]:
    return tuple((str(path), text_of(path)) for path in rule_files())


@lru_cache(maxsize=1)  # every plan reads them
def _commands_by_file(texts: tuple[tuple[str, str], ...]) -> dict[str, list[Command]]:
    """What :func:`read_rule_text` reads of the shipped files, in a tenth of the time: each command begins a
    line, and nothing else does with a parenthesis."""
    found: dict[str, list[Command]] = {}
    for file, text in texts:
        found[file] = own = []
        line = 1
        for before, part in itertools.pairwise(_BEGINS_LINE.split(_COMMENT.sub(lambda found: found[1] or "", text))):
            line += before.count("\n")
            own.append(Command(part.rstrip(), file, line, 1))
    return found


@lru_cache(maxsize=1)
def _checked(texts: tuple[tuple[str, str], ...]) -> tuple[Mapping[str, Sequence[Form]], Declared]:
    found: dict[str, Sequence[Form]] = {}
    declared: Declared = {}
    for file, text in texts:
        found[file] = forms = read_rule_text(text, file).forms
        declared = check_forms(forms, file, declared)
    return found, declared
