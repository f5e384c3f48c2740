"""How much code a text holds, before it is parsed.

In: a text. Out: nothing, or :class:`UnsafeScriptError`. A tree takes some hundred times the memory of its text;
constants do not, which are one string.
"""

from __future__ import annotations

import re
from typing import Final

from eqsat_layout.readers.text.script_literals import UnsafeScriptError

LARGEST: Final = 1 << 30
"""Characters of a text, most of which are constants."""

MOST_CODE: Final = 8 << 20
"""Characters of a text without its strings and comments. Networks of twenty thousand ops have some four million."""

_ASIDE: Final = re.compile(
    r"#[^\n]*+"
    r'|"""(?:[^"\\]++|\\.|"(?!""))*+"""'
    r"|'''(?:[^'\\]++|\\.|'(?!''))*+'''"
    r'|"(?:[^"\\\n]++|\\.)*+"'
    r"|'(?:[^'\\\n]++|\\.)*+'",
    re.DOTALL,
)


def check_script_size(text: str) -> None:
    """See above."""
    if len(text) > LARGEST:
        raise UnsafeScriptError(1, 1, f"holds more than {LARGEST >> 20} million characters")
    if len(text) > MOST_CODE:
        code = len(text) - sum(found.end() - found.start() for found in _ASIDE.finditer(text))
        if code > MOST_CODE:
            raise UnsafeScriptError(
                1, 1, f"holds more than {MOST_CODE >> 20} million characters of code: write it as JSON with save_json"
            )
