"""Kernels that are planned with more registers than a compiler would give them by itself.

In: the text of a kernel, and its PrimFunc. Out: the text. Where blocks are small, ptxas keeps room for many of them on
a multiprocessor, and spills rather than take it: attention of 197 rows by heads of 64, a warp to a block, had 168
registers and 32 bytes spilled. Told how many blocks the plan counts on, it has 212 and spills nothing.
"""

from __future__ import annotations

import re
from typing import Any, Final

from eqsat_layout.targets.cuda.machine import blocks_by_registers

_PLANNED: Final = "eqsat_layout.registers"
"""Attribute of a PrimFunc: registers of a thread, as planned."""
_BOUNDS: Final = re.compile(r"__launch_bounds__\((\d+)\)")


def with_registers(func: Any, planned: int) -> Any:
    """``func``, whose threads are planned with so many registers."""
    return func.with_attr(_PLANNED, planned)


def with_launch_bounds(source: str, func: Any) -> str:
    """``source`` says how many blocks are to run together, where ``func`` is planned so."""
    if not func.attrs or _PLANNED not in func.attrs:
        return source
    registers = int(func.attrs[_PLANNED])
    return _BOUNDS.sub(lambda m: f"__launch_bounds__({m[1]}, {blocks_by_registers(registers, int(m[1]))})", source)
