"""Kernels that are planned with more registers than a compiler would give them by itself.

In: the text of a kernel, and its PrimFunc. Out: the text. Where blocks are small, ptxas keeps room for many of them on
a multiprocessor, and spills rather than take it: attention of 197 rows by heads of 64, a warp to a block, had 168
registers and 32 bytes spilled; told that one block is enough it has 212 and spills nothing.
"""

from __future__ import annotations

import re
from typing import Any, Final

_FEW_BLOCKS: Final = "eqsat_layout.few_blocks"
"""Attribute of a PrimFunc whose kernel may have as many registers as a single block can."""
_BOUNDS: Final = re.compile(r"__launch_bounds__\((\d+)\)")


def with_all_registers(func: Any) -> Any:
    """``func``, whose kernel may have them."""
    return func.with_attr(_FEW_BLOCKS, True)


def bounded(source: str, func: Any) -> str:
    """``source`` says so where ``func`` does."""
    return _BOUNDS.sub(r"__launch_bounds__(\1, 1)", source) if func.attrs and _FEW_BLOCKS in func.attrs else source
