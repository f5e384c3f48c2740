"""The memories of random models: flat memory, and one that is not.

In: nothing. Out: :data:`TWO_MEMORIES`, which the host is given as a target's, and :data:`ARRAYS`. Which device has such
ones does not matter to rules: what does is that a tensor may lie in either, and that from one to the other is a copy.
"""

from __future__ import annotations

from typing import Final

from eqsat_layout.maps import GLOBAL, Format, Memory
from eqsat_layout.tir.placement import FlatMemory

ARRAYS: Final = Memory("global.texture", axis_groups=3, largest=(3, 4, 8), dtypes=("float16", "float32"))
"""Small enough that some tensors of a model are too large for it."""

TWO_MEMORIES: Final = FlatMemory({GLOBAL: Memory(), ARRAYS.scope: ARRAYS})
"""Kernels read and write whole formats in both."""


def why_not_held(fmt: Format, dtype: str) -> str:
    """Why the memory of ``fmt`` holds no such tensor, in words; empty if it does, or is none of these."""
    memory = TWO_MEMORIES.memories.get(fmt.scope)
    return "" if memory is None else memory.why_not(fmt, dtype) or ""
