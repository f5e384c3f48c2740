"""Notes: what a person should know of a run, and faults that were worked around.

In: texts from the steps of planning and building. Out: a list for who asks, log records under ``eqsat_layout``, and in
strict mode an exception instead of a work-around.
"""

from __future__ import annotations

import logging
import os
import re
import traceback
from collections.abc import Iterator
from typing import Final

from eqsat_layout.errors import EqsatError

STRICT_VARIABLE: Final = "EQSAT_LAYOUT_STRICT"
"""The environment variable that turns strict mode on where it is neither empty nor ``0``."""

_logger = logging.getLogger("eqsat_layout")


class Notes:
    """Texts in the order in which they came. ``strict``: faults raise; default as :data:`STRICT_VARIABLE` says."""

    def __init__(self, strict: bool | None = None):
        self.strict = is_strict() if strict is None else strict
        self.has_faults = False
        self._texts: dict[str, None] = {}

    def add(self, text: str) -> None:
        """Something that a person should know; the same text is kept once."""
        if text not in self._texts:
            self._texts[text] = None
            _logger.info(text)

    def fault(self, text: str, error: BaseException) -> None:
        """Something failed that should not, and is worked around; strict mode raises :class:`EqsatError` instead."""
        reason = first_line(error)
        if self.strict:
            raise EqsatError(f"{text}: {reason}") from error
        self.has_faults = True
        if (whole := f"{text}: {reason}") not in self._texts:
            self._texts[whole] = None
            _logger.warning("%s: %s", text, reason)
            _logger.debug("%s", text, exc_info=error)

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


def is_strict() -> bool:
    """Whether the environment asks for strict mode."""
    return os.environ.get(STRICT_VARIABLE, "") not in ("", "0")


def first_line(error: BaseException) -> str:
    """What an exception says, in one line: its type where it says nothing."""
    kind, said = type(error).__name__, first_of(str(error))
    return said if said.startswith(f"{kind}: ") else f"{kind}: {said}" if said else kind


def said_by(error: BaseException) -> str:
    """The same without the type in front, unless a key is all that it says."""
    return first_line(error) if isinstance(error, KeyError) else first_of(str(error)) or type(error).__name__


def first_of(text: str) -> str:
    """The first line that says something: rows of carets, under what a compiler points at, say nothing.

    Behind a traceback, as TVM puts it in front of what was raised in a thread, that is the last line. One that ends in
    a colon says it together with the next.
    """
    lines = [line.strip() for line in plain(text).splitlines() if line.strip(" \t^~-")]
    if lines and lines[0].startswith("Traceback ("):
        return lines[-1]
    return " ".join(lines[: 2 if lines and lines[0].endswith(":") else 1])


def plain(text: str) -> str:
    """``text`` with ops, sizes and shapes as people write them, where TVM prints them as its script has them. Of a
    constant it prints a remark on how to see it, in a line of its own, in the middle of what it says."""
    for pattern, written in _AS_PRINTED:
        text = pattern.sub(written, text)
    return text


_AS_PRINTED: Final = (
    (re.compile(r'metadata\["ir\.GenericConst"\]\[\d+\]\s*(# Metadata omitted\.[^\n]*?to show it\.)?'), "a constant"),
    (
        re.compile(r'ir\.Op\(span=None, ty=ir\.Type\(span=None\), name="([\w.]+)".*?support_level=\d+\)', re.DOTALL),
        r"\1",
    ),
    (re.compile(r"T\.int64\((-?\d+)\)"), r"\1"),
    (re.compile(r"R\.shape\((\[[^\]]*\])\)"), r"\1"),
)


def last_of(error: BaseException) -> str:
    """The last line that says something, which is the message where a trace of C++ comes before it (rows of carets say
    nothing); of an error that says nothing, as TVM's assertions do, the line of code that raised it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" \t^~-")]
    places = traceback.extract_tb(error.__traceback__)
    return lines[-1] if lines else (places and places[-1].line) or type(error).__name__
