"""What every source becomes: an IRModule with the names that the user knows.

In: a module and names. Out: a :class:`Source`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm


@dataclass(frozen=True)
class Source:
    """``module`` and its function ``entry``; ``inputs``: a name for each parameter of it, ``outputs``: for results, as
    far as the model names them."""

    module: tvm.IRModule
    entry: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...] = ()

    @property
    def function(self) -> Any:
        """What runs."""
        return self.module[self.entry]
