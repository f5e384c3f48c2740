"""Where to cut a sequence into windows so that their gains are largest in all.

In: for one element after the other, what windows that end with it gain. Out: the windows, each as soon as what comes
later can't change it: where the best ways to all ends from which a window can still begin have a cut in common
(the survivor paths of Viterbi's algorithm).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise


class BestCuts:
    """The cuts of a sequence that grows. ``longest``: elements of a window."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._gained = [0.0]  # up to each cut
        self._before = [0]  # the cut before each, on the best way to it
        self._settled = 0

    def add(self, gains: Mapping[int, float]) -> None:
        """One more element: by its first element, what each window that ends here gains. An element alone gains 0."""
        end = len(self._gained)
        choices = [(self._gained[-1], end - 1)]
        choices += [(self._gained[first] + gain, first) for first, gain in gains.items() if gain > 0]
        gained, before = max(choices, key=lambda choice: choice[0])
        self._gained.append(gained)
        self._before.append(before)

    def settled(self) -> list[tuple[int, int]]:
        """The windows, as first element and end, that are settled since this was asked last."""
        end = len(self._gained) - 1
        open_cuts = range(max(self._settled, end - self._longest + 1), end + 1)  # where later windows can begin
        return self._up_to(max(set.intersection(*(set(self._way(cut)) for cut in open_cuts))))

    def rest(self) -> list[tuple[int, int]]:
        """The windows that are left: no element comes any more."""
        return self._up_to(len(self._gained) - 1)

    def _up_to(self, end: int) -> list[tuple[int, int]]:
        cuts = [*self._way(end)][::-1]
        self._settled = end
        return list(pairwise(cuts))

    def _way(self, cut: int) -> Iterator[int]:
        """The cuts of the best way from what is settled to ``cut``, the last one first."""
        while cut > self._settled:
            yield cut
            cut = self._before[cut]
        yield self._settled
