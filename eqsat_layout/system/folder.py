"""Where the package keeps what it knows of the machine: measurements, kernels, programs.

In: the environment. Out: a folder, which need not exist.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

LOCATION: Final = "EQSAT_LAYOUT_CACHE"
"""The environment variable that says where it lies."""


def default_directory() -> Path:
    """``$EQSAT_LAYOUT_CACHE``, else the folder ``eqsat_layout`` of the user's caches (XDG)."""
    own = os.environ.get(LOCATION)
    if own:
        return Path(own)
    caches = os.environ.get("XDG_CACHE_HOME", "")
    return Path(caches if os.path.isabs(caches) else os.path.expanduser("~/.cache")) / "eqsat_layout"
