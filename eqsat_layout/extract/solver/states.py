"""The states of a frontier sweep.

A state says what is demanded of the tensors that are live between two steps, at what cost it was reached, and how.
"""

from __future__ import annotations

from collections.abc import Callable

from eqsat_layout.extract.solver.options import Option
from eqsat_layout.extract.solver.order import Live

State = tuple[float, int, "Trail | None"]
"""Cost so far, demanded stores as bits, and how it was reached. Bits differ within a list, so trails never compare."""
Trail = tuple["Trail | None", int, Option] | tuple["Trail | None", "Trail | None"]
"""The trail before, the alias class that was supplied, and how; or the trail before a block, and the one in it."""
Narrow = Callable[[list[State], int, Live], list[State]]
"""Makes at most so many of too many states (sorted by cost): `beam` or `weaken`."""


def keep_cheaper(found: dict[int, State], state: State) -> None:
    """The state in ``found``, by its demands, unless one as cheap is there."""
    old = found.get(state[1])
    if old is None or state[0] < old[0]:
        found[state[1]] = state
