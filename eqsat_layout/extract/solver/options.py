"""Ways to supply a demand for stores of one tensor: what is made, at which cost, and what of the operands that demands.

In: the nodes that make each store. Out: options of which none is better than another in both cost and demand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from eqsat_layout.extract.solver.minimal import minimal

MadeStores = tuple[tuple[int, int], ...]
"""Made stores, each with the index of its node in the problem."""


@dataclass(frozen=True, slots=True)
class ReducedNode:
    """A reduced node: cost, demanded operand stores as bits (`ReducedClass.regions`), index in the problem's store."""

    cost: float
    bits: int
    index: int


Option = tuple[float, int, MadeStores]
"""One way to supply a demand: cost with conversions, demanded operand stores as bits, what is made."""


_WORD: Final = 64
_PAIRS: Final = 1 << 16
"""That are compared at once."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeTable:
    """The cheapest nodes by store (rows) and by the operand stores that they demand (columns, ``bits``).

    Their costs, infinite where there is none, and their indices in the problem.
    """

    bits: tuple[int, ...]
    costs: NDArray[np.float64]
    indices: NDArray[np.int64]

    @staticmethod
    def of(ways: Sequence[Sequence[ReducedNode]]) -> NodeTable:
        """Of the nodes that make each store."""
        bits = tuple(dict.fromkeys(way.bits for own in ways for way in own))
        places = {one: place for place, one in enumerate(bits)}
        costs = np.full((len(ways), len(bits)), math.inf)
        indices = np.full(costs.shape, -1)
        for store, own in enumerate(ways):
            for way in own:
                place = places[way.bits]
                if (way.cost, way.index) < (costs[store, place], indices[store, place]):
                    costs[store, place], indices[store, place] = way.cost, way.index
        return NodeTable(bits, costs, indices)


class KnownOptions:
    """Options that are known: their costs, and the demanded operand stores in words of 64 bits."""

    def __init__(self, options: Sequence[Option], width: int) -> None:
        self._bytes = math.ceil(width / _WORD) * _WORD // 8
        self._costs = np.array([option[0] for option in options])
        self._words = self.words_of([option[1] for option in options])

    def words_of(self, masks: Sequence[int]) -> NDArray[np.uint64]:
        """A row of words for each mask."""
        data = b"".join(mask.to_bytes(self._bytes, "little") for mask in masks)
        return np.frombuffer(data, dtype="<u8").reshape(len(masks), self._bytes * 8 // _WORD)

    def not_beaten(self, costs: NDArray[np.float64], words: NDArray[np.uint64]) -> list[tuple[int, int]]:
        """The places of ``costs`` that no known option has as cheaply with some of those operand stores.

        ``words[i, j]``: of the place (i, j).
        """
        every, missing = costs.ravel(), ~words.reshape(-1, words.shape[-1]).T
        left, start = np.arange(every.size), 0
        while len(left) and start < len(self._costs):  # the cheapest come first, and beat most
            some = slice(start, start + max(1, _PAIRS // len(left)))
            beyond = np.zeros((len(left), len(self._costs[some])), dtype=np.uint64)
            for own, lacks in zip(self._words[some].T, missing, strict=True):
                beyond |= own & lacks[left, None]
            left = left[~((beyond == 0) & (self._costs[some] <= every[left, None])).any(axis=1)]
            start = some.stop
        return [divmod(place, costs.shape[1]) for place in left.tolist()]


def ways_to_make(
    made: tuple[int, ...], ways: Sequence[Sequence[ReducedNode]], conversions: float, known: KnownOptions
) -> tuple[Option, ...]:
    """One of the ways for each made store, but for what is no better than what is ``known``."""
    partial: tuple[Option, ...] = ((conversions, 0, ()),)
    for m, of_store in zip(made, ways, strict=True):
        costs = np.add.outer([option[0] for option in partial], [way.cost for way in of_store])
        words = known.words_of([option[1] for option in partial])[:, None] | known.words_of([w.bits for w in of_store])
        found: list[Option] = []
        for before, place in known.not_beaten(costs, words):
            (_, bits, choice), way = partial[before], of_store[place]
            found.append((float(costs[before, place]), bits | way.bits, (*choice, (m, way.index))))
        partial = undominated(found)
    return partial


def undominated(found: list[Option]) -> tuple[Option, ...]:
    """Those that no other beats: less demand and no more cost is never worse, for a completion stays a completion."""
    ordered = sorted(found, key=lambda o: (o[0], o[1].bit_count(), o[1], o[2]))
    return tuple(ordered[place] for place in minimal([option[1] for option in ordered]))
