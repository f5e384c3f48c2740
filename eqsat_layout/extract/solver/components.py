"""Strongly connected components of the alias classes: what can only be ordered together.

In: roots and a function that gives the operand alias classes of one. Out: components, operands before users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence


def components(roots: Iterable[int], operands: Callable[[int], Sequence[int]]) -> list[tuple[int, ...]]:
    """Strongly connected components of what the roots reach, operands before users (Tarjan, without recursion)."""
    found: list[tuple[int, ...]] = []
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    path: list[int] = []
    on_path: set[int] = set()
    for root in roots:
        if root in number:
            continue
        work = [(root, iter(operands(root)))]
        number[root] = low[root] = len(number)
        path.append(root)
        on_path.add(root)
        while work:
            f, rest = work[-1]
            for kid in rest:
                if kid not in number:
                    number[kid] = low[kid] = len(number)
                    path.append(kid)
                    on_path.add(kid)
                    work.append((kid, iter(operands(kid))))
                    break
                if kid in on_path and number[kid] < low[f]:
                    low[f] = number[kid]
            else:
                work.pop()
                if work and low[f] < low[work[-1][0]]:
                    low[work[-1][0]] = low[f]
                if low[f] == number[f]:
                    start = path.index(f) if path[-1] != f else len(path) - 1
                    component = tuple(sorted(path[start:]))
                    del path[start:]
                    on_path.difference_update(component)
                    found.append(component)
    return found
