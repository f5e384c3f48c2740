"""Rule files: finding them, splitting them into commands, refusing what a rule file may not do.

In: paths of ``.egg`` files. Out: commands with their file and position. Errors are :class:`RuleError` with
``file:line:column``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from eqsat_layout.errors import EqsatError, RuleError

_PYTHON = re.compile(r"\(\s*(py-[\w-]+)(?=[\s()])")
_COMMAND = re.compile(r"\(\s*([^\s()]+)")
_DECLARATIONS = ("sort", "datatype", "datatype*", "constructor", "relation", "function", "ruleset", "let")
_RULES = ("rule", "rewrite", "birewrite", "unstable-combined-ruleset", "union", "set", "check", "fail")
_ALLOWED = frozenset(_DECLARATIONS + _RULES)


@dataclass(frozen=True)
class Command:
    """One top-level command of a rule file; ``line`` and ``column`` (from 1) are those of its opening parenthesis."""

    text: str
    file: str
    line: int
    column: int


def rules_dir() -> Path:
    """The folder of the shipped ``*.egg`` files: inside an installed package, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "rules", package.parent / "rules"):
        if any(folder.glob("*.egg")):
            return folder
    raise EqsatError(f"the rule files are missing: neither {package / 'rules'} nor {package.parent / 'rules'} has any")


def rule_files(extra: Iterable[str | Path] | None = None) -> list[Path]:
    """The project's own rule files in loading order, then the user's."""
    own = sorted(rules_dir().glob("*.egg"))
    if not own:
        raise RuleError(f"{rules_dir()}: no rule files found; the installation is incomplete")
    return own + [Path(path) for path in extra or ()]


def is_own(command: Command) -> bool:
    """Whether it comes with the package."""
    return Path(command.file).parent == rules_dir()


def read_commands(path: Path) -> list[Command]:
    """The commands of one file, in order."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RuleError(f"{path}: can't read the rule file: {error}") from error
    commands = split_commands(text, str(path))
    for command in commands:
        _check_allowed(command)
    return commands


def split_commands(text: str, file: str) -> list[Command]:
    """Splits at top-level parentheses, so that an error is known to lie in one command and not in the whole file."""
    commands: list[Command] = []
    depth = start = 0
    for i, char in _code_characters(text):
        if char == "(":
            if depth == 0:
                start = i
            depth += 1
        elif char == ")":
            depth -= 1
            if depth < 0:
                raise RuleError(f"{file}:{_position(text, i)}: a closing parenthesis without an opening one")
            if depth == 0:
                line, column = _line_column(text, start)
                commands.append(Command(text[start : i + 1], file, line, column))
        elif depth == 0 and not char.isspace():
            raise RuleError(f"{file}:{_position(text, i)}: expected a command in parentheses, found {char!r}")
    if depth:
        raise RuleError(f"{file}:{_position(text, start)}: the parenthesis opened here is never closed")
    return commands


def _check_allowed(command: Command) -> None:
    """A rule file declares and rewrites: it runs no Python, reads and writes no files, and sets no schedule."""
    code = _without_comments_and_strings(command.text)
    found = _PYTHON.search(code)
    head = _COMMAND.match(code)
    if found is None and head is not None and head[1] not in _ALLOWED:
        found = head
    if found is not None:
        line = command.line + code[: found.start()].count("\n")
        raise RuleError(f"{command.file}:{line}: a rule file may not use '{found[1]}'; it only declares and rewrites")


def _code_characters(text: str) -> Iterable[tuple[int, str]]:
    """Characters outside comments and strings."""
    i = 0
    while i < len(text):
        char = text[i]
        if char == ";":
            end = text.find("\n", i)
            i = len(text) if end < 0 else end
            continue
        if char == '"':
            i += 1
            while i < len(text) and text[i] != '"':
                i += 2 if text[i] == "\\" else 1
            i += 1
            continue
        yield i, char
        i += 1


def _without_comments_and_strings(text: str) -> str:
    kept = dict(_code_characters(text))
    return "".join(kept.get(i, "\n" if char == "\n" else "_") for i, char in enumerate(text))


def _line_column(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _position(text: str, offset: int) -> str:
    line, column = _line_column(text, offset)
    return f"{line}:{column}"
