"""Repeats of a picture: the same ops in a row, again and again, of which one time is enough to look at.

In: a picture. Out: :class:`Fold` for each repeat that is worth it, none inside another.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

from eqsat_layout.report.html.picture import Picture

_LONGEST: Final = 400
"""Nodes of one time, at most."""
_LEAST: Final = 4
"""Nodes that a fold must hide."""

_Key = tuple[int, tuple[int, ...]]
"""A number for what is drawn of a node, and its sources."""


@dataclass(frozen=True)
class Fold:
    """Nodes ``first`` to ``first + count * period``: the same ``period`` nodes ``count`` times."""

    first: int
    period: int
    count: int


def folds_of(picture: Picture) -> list[Fold]:
    """The repeats, each as long as it can be, from the top; of equally long ones the one with the shortest period."""
    keys = _keys(picture)
    runs = {period: _runs(keys, period) for period in range(1, min(_LONGEST, len(keys) // 2) + 1)}
    found: list[Fold] = []
    i = 0
    while i < len(keys):
        best = Fold(i, 1, 1)
        for period, lengths in runs.items():
            count = lengths[i] // period + 1 if i < len(lengths) else 1
            if count > 1 and period * (count - 1) > best.period * (best.count - 1):
                best = Fold(i, period, count)
        if best.period * (best.count - 1) >= _LEAST and _is_whole(picture, best):
            found.append(best)
            i += best.period * best.count
        else:
            i += 1
    return found


def _keys(picture: Picture) -> list[_Key]:
    """What makes two nodes the same: all that is drawn of them, and their sources."""
    sources: list[list[int]] = [[] for _ in picture.nodes]
    for edge in picture.edges:
        sources[edge.target].append(edge.source)
    facts: dict[Hashable, int] = {}
    return [
        (facts.setdefault((n.kind, n.op, n.layout, n.shape, n.constants, len(own)), len(facts)), tuple(own))
        for n, own in zip(picture.nodes, sources, strict=True)
    ]


def _runs(keys: Sequence[_Key], period: int) -> list[int]:
    """For each place, how many nodes from there on are the same as those a period later."""
    lengths = [0] * (len(keys) - period)
    ahead = 0
    for i in reversed(range(len(lengths))):
        ahead = ahead + 1 if _are_same(keys[i], keys[i + period], period) else 0
        lengths[i] = ahead
    return lengths


def _are_same(one: _Key, later: _Key, period: int) -> bool:
    """Each source of ``later`` is as far back as that of ``one``, or the same: what all times read, such as a mask."""
    return one[0] == later[0] and all(b in (a, a + period) for a, b in zip(one[1], later[1], strict=True))


def _is_whole(picture: Picture, fold: Fold) -> bool:
    """No kernel reaches over the ends of a time."""
    kernels: dict[int, set[int]] = {}
    for i, node in enumerate(picture.nodes):
        if node.kernel >= 0:
            inside = fold.first <= i < fold.first + fold.period * fold.count
            kernels.setdefault(node.kernel, set()).add((i - fold.first) // fold.period if inside else -1)
    return all(len(times) == 1 for times in kernels.values())
