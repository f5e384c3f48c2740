"""The text of rule files: a reader that takes less than egglog does, so that what we checked is what egglog runs.

In: the text of a file. Out: its top-level forms and its comments, each with its place. A form's text is printed from
what was read, every token where it stood, comments as blanks: egglog gets that text and never the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from eqsat_layout.egraph.expressions import Expr
from eqsat_layout.errors import RuleError

DEEPEST: Final = 200
"""Parentheses within parentheses; egglog's own reader overflows its stack where there are too many."""

LARGEST: Final = 16 << 20
"""Characters of a rule file."""

_BLANK: Final = re.compile(r"[ \t\r\n]+")
_COMMENT: Final = re.compile(r";[^\n]*")
_STRING: Final = re.compile(r'"(?:[^"\\]|\\["\\nt])*"')
_ATOM: Final = re.compile(r"[!#-&*-:<-\[\]-~]+")
"""Printable ASCII but ``"``, ``'``, ``;``, parentheses and the backslash: egglog takes more, such as ``a"b``."""


@dataclass(frozen=True)
class Token:
    """A parenthesis, string, name or number."""

    text: str
    line: int
    column: int


@dataclass(frozen=True)
class Form:
    """A form in parentheses; ``parts`` are tokens and forms. Lines and columns count from 1, in characters."""

    parts: tuple[Form | Token, ...]
    line: int
    column: int
    text: str = ""

    @property
    def expr(self) -> Expr:
        """The same without places."""
        return tuple(part.text if isinstance(part, Token) else part.expr for part in self.parts)


Part = Form | Token


@dataclass(frozen=True)
class RuleText:
    """``comments`` are whole, with their semicolon."""

    forms: tuple[Form, ...]
    comments: tuple[Token, ...]


@lru_cache(maxsize=64)  # the files of the package are read again and again
def read_rule_text(text: str, file: str) -> RuleText:
    """The forms and comments of a file; :class:`RuleError` with ``file:line:column`` where it is no rule text."""
    tokens, comments = _tokens(text, file)
    return RuleText(tuple(_forms(tokens, file)), tuple(comments))


def _tokens(text: str, file: str) -> tuple[list[Token], list[Token]]:
    if len(text) > LARGEST:
        raise RuleError(f"{file}:1:1: a rule file of more than {LARGEST >> 20} million characters")
    tokens: list[Token] = []
    comments: list[Token] = []
    offset, line, start_of_line = 0, 1, 0
    while offset < len(text):
        column, char = offset - start_of_line + 1, text[offset]
        if char in "()":
            tokens.append(Token(char, line, column))
            offset += 1
            continue
        kind = _BLANK if char in " \t\r\n" else _COMMENT if char == ";" else _STRING if char == '"' else _ATOM
        found = kind.match(text, offset)
        if found is None:
            raise RuleError(f"{file}:{line}:{column}: {_complaint(char)}")
        if kind is _COMMENT:
            comments.append(Token(found[0], line, column))
        elif kind is not _BLANK:
            if tokens and _touches(tokens[-1], line, column):
                raise RuleError(f"{file}:{line}:{column}: expected a blank before {found[0][:20]!r}")
            tokens.append(Token(found[0], line, column))
        newlines = found[0].count("\n")
        if newlines:
            line += newlines
            start_of_line = offset + found[0].rfind("\n") + 1
        offset = found.end()
    return tokens, comments


def _complaint(char: str) -> str:
    if char == '"':
        return 'a string that never ends, or with an escape other than \\" \\\\ \\n \\t'
    return f"{char!r} (U+{ord(char):04X}) may stand in strings and comments only"


def _touches(before: Token, line: int, column: int) -> bool:
    """``a"b"``: egglog reads one name there, others read two tokens."""
    return before.text not in "()" and "\n" not in before.text and _end(before) == (line, column)


def _end(token: Token) -> tuple[int, int]:
    """Where the token after it would stand without a blank between them."""
    newlines = token.text.count("\n")
    if newlines:
        return token.line + newlines, len(token.text) - token.text.rfind("\n")
    return token.line, token.column + len(token.text)


def _forms(tokens: list[Token], file: str) -> list[Form]:
    done: list[Form] = []
    stack: list[tuple[int, list[Part]]] = []
    for number, token in enumerate(tokens):
        if token.text == "(":
            if len(stack) == DEEPEST:
                raise RuleError(f"{file}:{token.line}:{token.column}: more than {DEEPEST} parentheses deep")
            stack.append((number, []))
        elif token.text == ")":
            if not stack:
                raise RuleError(f"{file}:{token.line}:{token.column}: a closing parenthesis without an opening one")
            first, parts = stack.pop()
            opened = tokens[first]
            text = "" if stack else _printed(tokens[first : number + 1])
            form = Form(tuple(parts), opened.line, opened.column, text)
            (stack[-1][1] if stack else done).append(form)
        elif stack:
            stack[-1][1].append(token)
        else:
            raise RuleError(
                f"{file}:{token.line}:{token.column}: expected a command in parentheses, found {token.text[:20]!r}"
            )
    if stack:
        opened = tokens[stack[0][0]]
        raise RuleError(f"{file}:{opened.line}:{opened.column}: the parenthesis opened here is never closed")
    return done


def _printed(tokens: list[Token]) -> str:
    """The tokens where they stood, with nothing but blanks between them."""
    line, column = tokens[0].line, tokens[0].column
    parts: list[str] = []
    for token in tokens:
        if token.line > line:
            parts.append("\n" * (token.line - line))
            column = 1
        parts.append(" " * (token.column - column))
        parts.append(token.text)
        line, column = _end(token)
    return "".join(parts)
