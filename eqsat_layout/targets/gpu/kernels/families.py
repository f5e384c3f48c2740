"""Which family of kernels a PrimFunc is of.

In: a PrimFunc and families, the fastest first. Out: launches of the first one that takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from eqsat_layout.errors import Refused
from eqsat_layout.notes import Notes

Family: TypeAlias = Callable[[Any], Any]
"""From a PrimFunc to one that launches threads; :class:`Refused` where it is not of the family."""
Otherwise: TypeAlias = Callable[[Any], tuple[Any, bool]]
"""The same for any PrimFunc, and whether some of it is left to a single thread."""


def of_first_family(
    name: str, func: Any, families: Sequence[Family], otherwise: Otherwise, thread: str, notes: Notes
) -> Any:
    """``func`` as launches; ``otherwise`` where all refuse, with a note. ``thread``: what the target calls one."""
    reasons: list[str] = []
    for family in families:
        try:
            return family(func)
        except Refused as reason:
            reasons.append(str(reason))
    made, has_one = otherwise(func)
    if has_one:
        notes.add(f"kernel {name} runs in one {thread}: {reasons[-1]}")
    return made
