"""What the rest of a frontier sweep costs at least, whatever state it is in.

In: some states (demands) before each step, those of a relaxation for example. Out: for any state a bound from below on
the cost of completing it; states that can't end below a known cost need not be followed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from eqsat_layout.extract.solver.order import EliminationOrder
from eqsat_layout.extract.solver.states import State


class Remaining:
    """The bounds, worked out backwards: a state's is the least of a step's cost and the bound of what it leads to.

    Proof. Completing ``has`` costs at most repair(has, lacks) more than completing ``lacks`` (`ReducedClass.repair`),
    so completing any state costs at least what completing a known one does, less the repair of the known one for it.
    Any states will do as the known ones; good are those that demand no more than those that the sweep meets.
    """

    def __init__(
        self,
        order: EliminationOrder,
        known: Mapping[int, Sequence[int]],
        after: Callable[[int, int], Sequence[State]],
        is_late: Callable[[], bool] = lambda: False,
    ) -> None:
        """``known``: demands by step; ``after``: the states after a step from one demand on, none left out.

        Once ``is_late``, the bounds of the steps that are not worked out yet are 0.
        """
        self.order, self.known = order, dict(known)
        self.least = {step: np.zeros(len(demands)) for step, demands in known.items()}
        for step in range(len(order.steps) - 1, min(known) - 1, -1):
            if is_late():
                break
            self.least[step] = np.array([self._through(step, after(step, bits)) for bits in known[step]])

    def _through(self, step: int, reached: Sequence[State]) -> float:
        if not reached:
            return np.inf
        return float((np.array([state[0] for state in reached]) + self.of(step + 1, reached)).min())

    def of(self, step: int, states: Sequence[State]) -> npt.NDArray[np.float64]:
        """At least so much is to come for each of the states before a step (not the first)."""
        if not self.known[step] or not states:
            return np.zeros(len(states))
        repairs = self.order.steps[step - 1].live.repair_all(self.known[step], [state[1] for state in states])
        rest = np.where(np.isfinite(repairs), self.least[step][:, None], 0.0)
        rest -= np.where(np.isfinite(repairs), repairs, 0.0)
        found: npt.NDArray[np.float64] = np.maximum(rest.max(axis=0), 0.0)
        return found
