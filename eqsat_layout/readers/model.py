"""What a reader gives.

In: nothing. Out: a record, and the type of the sizes that a reader is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import tvm

Sizes: TypeAlias = Mapping[str, Sequence[int | None]]
"""By input; None leaves an axis open."""


@dataclass(frozen=True)
class Model:
    """A module with the names that its inputs and outputs had, as far as they had any."""

    module: tvm.IRModule
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
