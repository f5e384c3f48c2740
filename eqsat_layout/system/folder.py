"""Where the package keeps what it knows of the machine: measurements, kernels, programs.

In: the environment. Out: a folder, which need not exist; and numbers that it says.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

_NUMBER: Final = re.compile(r"[0-9]{1,9}")
LOCATION: Final = "EQSAT_LAYOUT_CACHE"
"""The environment variable that says where it lies."""


def default_directory() -> Path:
    """``$EQSAT_LAYOUT_CACHE``, else the folder ``eqsat_layout`` of the user's caches (XDG)."""
    own = os.environ.get(LOCATION)
    if own:
        return Path(own)
    caches = os.environ.get("XDG_CACHE_HOME", "")
    return Path(caches if os.path.isabs(caches) else os.path.expanduser("~/.cache")) / "eqsat_layout"


def number_in_environment(variable: str, default: int) -> int:
    """The whole number that an environment variable is; ``default`` where it is none, or one of more than nine digits.

    Of digits 0 to 9: ``"\u00b2".isdigit()`` is true, and :func:`int` does not take it.
    """
    asked = os.environ.get(variable, "")
    return int(asked) if _NUMBER.fullmatch(asked) else default
