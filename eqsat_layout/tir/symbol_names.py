"""Names of symbolic sizes that the text of an extent can hold: some are called ``?``, ``2*n``, ``batch.size``.

In: a variable, or its name. Out: an identifier: the name itself where it is one.
"""

from __future__ import annotations

import keyword
import re
from typing import Any, Final

_TAKEN: Final = frozenset((*keyword.kwlist, "min", "max"))
"""Words that the text of an extent has a meaning for."""


def symbol_name(symbol: Any) -> str:
    """Where a name had to be made, another variable may bear it: whoever collects names must look."""
    name = symbol if isinstance(symbol, str) else str(symbol.name)
    if name.isascii() and name.isidentifier() and name not in _TAKEN:  # Python reads others as what they look like
        return name
    return "v_" + re.sub(r"\W", lambda letter: f"_{ord(letter[0]):x}_", name, flags=re.ASCII)
