"""Small selection problems, and the truth about them by trying everything."""

from __future__ import annotations

import itertools
import math
import random

from hypothesis import strategies as st

from eqsat_layout.extract.solver.problem import AliasClass, ENode, Problem, same_bytes


def seeded_problem(seed: int, classes: int, *, cyclic: bool, forks: int = 2) -> Problem:
    """A random problem: non-metric conversions, some illegal, shared and repeated operands, one to three stores."""
    rng = random.Random(seed)
    whole = rng.random() < 0.5
    sizes = [rng.randint(1, 3) for _ in range(classes)]

    def cost() -> float:
        return float(rng.randint(0, 6)) if whole else rng.choice((0.0, *(rng.random() * 5 for _ in range(5))))

    found = []
    for f, size in enumerate(sizes):
        pool = [g for g in range(classes) if (cyclic or g > f)]
        nodes = []
        for _ in range(size):
            ways = []
            for _ in range(rng.choice((0, 1, 1, forks))):
                operands = [rng.choice(pool) for _ in range(rng.randint(0, min(3, len(pool))))]
                ways.append(ENode(cost(), tuple((g, rng.randrange(sizes[g])) for g in operands)))
            nodes.append(tuple(ways))
        if not any(nodes):
            nodes[0] = (ENode(cost()),)
        convert = [[cost() if rng.random() > 0.15 else math.inf for _ in range(size)] for _ in range(size)]
        for i in range(size):
            convert[i][i] = 0.0
        found.append(AliasClass(tuple(nodes), tuple(map(tuple, convert))))
    goals = tuple((g, rng.randrange(sizes[g])) for g in range(min(2, classes)) if g == 0 or rng.random() < 0.6)
    return Problem(tuple(found), goals)


def problems(*, cyclic: bool) -> st.SearchStrategy[Problem]:
    """Problems that `brute_force` can still solve."""
    return st.builds(
        lambda seed, classes: seeded_problem(seed, classes, cyclic=cyclic), st.integers(0, 2**32), st.integers(2, 6)
    )


def brute_force(problem: Problem) -> float:
    """The least cost over all sets of made stores and their nodes; inf if there is no solution."""
    best = math.inf
    choices = []
    for alias_class in problem.classes:
        per_store = [range(-1, len(ways)) for ways in alias_class.nodes]
        choices.append([{s: k for s, k in enumerate(c) if k >= 0} for c in itertools.product(*per_store)])
    for made in itertools.product(*choices):
        cost = _cost(problem, made, best)
        if cost < best and not _circular(problem, made):
            best = cost
    return best


def _cost(problem: Problem, made: tuple[dict[int, int], ...], enough: float) -> float:
    cost, demanded = 0.0, set(problem.goals)
    for f, stores in enumerate(made):
        for s, k in stores.items():
            node = problem.classes[f].nodes[s][k]
            cost += node.cost
            demanded.update(node.children)
    copied = {(f, same_bytes(problem.classes[f].convert)[s]) for f, s in demanded}  # by views of one copy
    for f, s in copied:
        if cost >= enough:
            break
        cost += min((problem.classes[f].convert[m][s] for m in made[f]), default=math.inf)
    return cost


def _circular(problem: Problem, made: tuple[dict[int, int], ...]) -> bool:
    needs = {
        f: {g for s, k in stores.items() for g, _ in problem.classes[f].nodes[s][k].children}
        for f, stores in enumerate(made)
        if stores
    }
    while True:
        settled = [f for f, others in needs.items() if not others & needs.keys()]
        if not settled:
            return bool(needs)
        for f in settled:
            del needs[f]
