"""How many examples of a property are tried that takes a build each: a third of them, or all in ``make test-long``."""

from __future__ import annotations

import os
from typing import Final

LONG: Final = "EQSAT_LAYOUT_LONG_TESTS"


def tries(count: int) -> int:
    """Of ``count`` examples, those that this run tries: at least four."""
    return count if os.environ.get(LONG) else max(min(count, 4), count // 3)
