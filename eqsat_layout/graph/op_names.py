"""The ops that Relax has.

In: TVM's registry. Out: their names, and those that are nearest to a name that is none of them.
"""

from __future__ import annotations

import difflib
from functools import cache

import tvm

RELAX = "relax."
"""What their names begin with."""

_NEAR = 3


@cache
def relax_ops() -> frozenset[str]:
    """Names of all of them."""
    return frozenset(name for name in map(str, tvm.ir.Op.list_op_names()) if name.startswith(RELAX))


def nearest_ops(name: str) -> list[str]:
    """Ops of the same last name first: relax.relu is relax.nn.relu."""
    last = name.rpartition(".")[2]
    same = sorted(op for op in relax_ops() if op.rpartition(".")[2] == last)
    return (same or difflib.get_close_matches(name, sorted(relax_ops()), _NEAR))[:_NEAR]
