"""What lies behind a node of a directed graph, circles and all.

In: a node, the nodes that each needs, and a set of bits for each. Out: the bits of everything that can be reached.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import reduce
from operator import or_
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def united(start: T, needs: Callable[[T], Iterable[T]], own: Callable[[T], int], known: dict[T, int]) -> int:
    """The bits of ``start`` and of all that it needs. ``known`` keeps what is worked out, for the next question.

    Tarjan's algorithm without recursion: the nodes of a circle have the same bits.
    """
    order: dict[T, int] = {}
    lowest: dict[T, int] = {}
    bits: dict[T, int] = {}
    opened: list[T] = []
    frames: list[tuple[T, Iterator[T]]] = []

    def enter(node: T) -> None:
        order[node] = lowest[node] = len(order)
        bits[node] = own(node)
        opened.append(node)
        frames.append((node, iter(needs(node))))

    if start not in known:
        enter(start)
    while frames:
        node, rest = frames[-1]
        for other in rest:
            if other in known:
                bits[node] |= known[other]
            elif other in order:
                lowest[node] = min(lowest[node], order[other])
            else:
                enter(other)
                break
        else:
            frames.pop()
            if lowest[node] == order[node]:
                circle = [opened.pop()]
                while circle[-1] != node:
                    circle.append(opened.pop())
                together = reduce(or_, (bits[member] for member in circle))
                known.update(dict.fromkeys(circle, together))
            if frames:
                above = frames[-1][0]
                lowest[above] = min(lowest[above], lowest[node])
                bits[above] |= known.get(node, bits[node])
    return known[start]
