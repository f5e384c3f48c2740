"""What a reader gives.

In: nothing. Out: a record.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm


@dataclass(frozen=True)
class Model:
    """A module with the names that its inputs and outputs had, as far as they had any."""

    module: tvm.IRModule
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
