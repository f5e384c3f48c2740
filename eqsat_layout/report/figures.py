"""Numbers and names as a person reads them.

In: seconds, bytes, counts, names. Out: short texts with three digits and a unit. Tables, which take long to import, are
in :mod:`eqsat_layout.report.text`: planning says numbers only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

_UNPRINTABLE: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def format_seconds(seconds: float) -> str:
    """``12.3 us``, ``4.56 ms``, ``7.89 s``: three digits and the unit that fits."""
    if not math.isfinite(seconds):
        return f"{seconds} s"
    if abs(seconds) < 5e-12:  # what is left of sums that are equal
        return "0 s"
    for unit, scale in (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)):
        if abs(seconds) < 999.5 * scale:
            return f"{three_digits(seconds / scale)} {unit}"
    return f"{three_digits(seconds)} s"


def format_bytes(count: float) -> str:
    """``512 B``, ``1.50 KiB``, ``24.0 MiB``: binary units."""
    if abs(count) < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if abs(count) < 999.5:
            return f"{three_digits(count)} {unit}"
    return f"{three_digits(count / 1024)} TiB"


def count(number: int, noun: str) -> str:
    """``3 rounds``, ``1 round``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def spanned(names: Sequence[str]) -> str:
    """``relu``, ``relu and relu_1``, ``relu to relu_48``."""
    if len(names) < 2:
        return names[0] if names else "?"
    return f"{names[0]} {'and' if len(names) == 2 else 'to'} {names[-1]}"


def three_digits(value: float) -> str:
    """``1.23``, ``12.3``, ``123``."""
    magnitude = abs(value)
    return f"{value:.{2 if magnitude < 9.995 else 1 if magnitude < 99.95 else 0}f}"


def printable(text: str) -> str:
    """The text with escapes in the place of control characters, but for line ends, and of what turns its direction."""
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
