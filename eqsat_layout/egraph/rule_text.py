"""The text of rule files: a reader that takes less than egglog does, so that what we checked is what egglog runs.

In: the text of a file. Out: its top-level forms and its comments, each with its place. A form's text is printed from
what was read, every token where it stood, comments as blanks: egglog gets that text and never the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from eqsat_layout.egraph.expressions import Expr
from eqsat_layout.errors import RuleError

DEEPEST: Final = 200
"""Parentheses within parentheses; egglog's own reader overflows its stack where there are too many."""

LARGEST: Final = 16 << 20
"""Characters of a rule file."""

_BLANKS: Final = " \t\r\n"
_TOKEN: Final = re.compile(r"""[ \t\r\n]*(?:([()])|([!#-&*-:<-\[\]-~]+)|("(?:[^"\\]|\\["\\nt])*")|(;[^\n]*)|\Z)""")
_OTHER_BLANKS: Final = re.compile(r"[;\t\r]")
"""Where a text has none of these, there is nothing between its tokens but what is printed there, and blanks at the ends
of lines."""

_PARENTHESIS, _ATOM, _STRING, _COMMENT = range(1, 5)
"""An atom is printable ASCII but ``"``, ``'``, ``;``, parentheses and the backslash: egglog takes more, as ``a"b``."""


class Token(NamedTuple):
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
    tokens, offsets, comments = _tokens(text, file)
    return RuleText(tuple(_forms(tokens, offsets, text, file)), tuple(comments))


def _tokens(text: str, file: str) -> tuple[list[Token], list[int], list[Token]]:
    """The tokens, where each of them begins in the text, and the comments."""
    if len(text) > LARGEST:
        raise RuleError(f"{file}:1:1: a rule file of more than {LARGEST >> 20} million characters")
    tokens: list[Token] = []
    offsets: list[int] = []
    comments: list[Token] = []
    end, line, start_of_line = 0, 1, 0
    end_of_word = -1
    for found in _TOKEN.finditer(text):
        before, kind = end, found.lastindex
        if found.start() != before or kind is None:
            break  # something that is no token, or blanks at the end
        start, end = found.span(kind)
        if start != before and (newlines := text.count("\n", before, start)):
            line += newlines
            start_of_line = text.rfind("\n", before, start) + 1
        token = Token(found[kind], line, start - start_of_line + 1)
        if kind == _COMMENT:
            comments.append(token)
            continue
        tokens.append(token)
        offsets.append(start)
        if kind == _PARENTHESIS:
            continue
        if end_of_word == start:  # ``a"b``: egglog reads one name there, others read two tokens
            raise RuleError(f"{file}:{token.line}:{token.column}: expected a blank before {token.text[:20]!r}")
        end_of_word = end
        if kind == _STRING and "\n" in token.text:
            line += token.text.count("\n")
            start_of_line = text.rfind("\n", start, end) + 1
    start = _after_blanks(text, end)
    if start < len(text):
        line += text.count("\n", end, start)
        column = start - max(start_of_line, text.rfind("\n", end, start) + 1) + 1
        raise RuleError(f"{file}:{line}:{column}: {_complaint(text[start])}")
    return tokens, offsets, comments


def _after_blanks(text: str, offset: int) -> int:
    rest = text[offset:]
    return offset + len(rest) - len(rest.lstrip(_BLANKS))


def _complaint(char: str) -> str:
    if char == '"':
        return 'a string that never ends, or with an escape other than \\" \\\\ \\n \\t'
    return f"{char!r} (U+{ord(char):04X}) may stand in strings and comments only"


def _end(token: Token) -> tuple[int, int]:
    """Where the token after it would stand without a blank between them."""
    newlines = token.text.count("\n")
    if newlines:
        return token.line + newlines, len(token.text) - token.text.rfind("\n")
    return token.line, token.column + len(token.text)


def _forms(tokens: list[Token], offsets: list[int], source: str, file: str) -> list[Form]:
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
            text = "" if stack else _printed(tokens[first : number + 1], source[offsets[first] : offsets[number] + 1])
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


def _printed(tokens: list[Token], source: str) -> str:
    """The tokens where they stood, with nothing but blanks between them; ``source`` is the text that they are from."""
    if not _OTHER_BLANKS.search(source):
        return source
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
