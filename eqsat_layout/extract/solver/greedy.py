"""A simple solver: from the goals down, each tensor supplied in the way that looks cheapest.

In: a `Problem`. Out: a `Solution` without proof: the start of the exact methods, and their peer in benchmarks.
"""

from __future__ import annotations

import math
import time

from eqsat_layout.extract.solver.expand import solution
from eqsat_layout.extract.solver.options import MadeStores
from eqsat_layout.extract.solver.problem import ExtractionError, Problem, Solution, SolverStats
from eqsat_layout.extract.solver.reduce import Reduced, reduce
from eqsat_layout.extract.solver.reduced_class import ReducedClass


def solve_greedy(problem: Problem) -> Solution:
    """A feasible selection in linear time; its bound is the sum of what no solution can avoid.

    Raises ExtractionError if a goal can't be made, or where the greedy way through a cycle ends blind.
    """
    start = time.perf_counter()
    reduced = reduce(problem)
    chosen = greedy_choices(reduced)
    if chosen is None:
        raise ExtractionError("the greedy solver found no selection that does not make a tensor of itself")
    stats = SolverStats(len(problem.classes), len(chosen), method="greedy", seconds=time.perf_counter() - start)
    return solution(reduced, chosen, reduced.lower_bound(), stats)


def greedy_choices(reduced: Reduced) -> dict[int, MadeStores] | None:
    """What is made of each alias class that is needed; None where the way through a cycle ends blind.

    A store's price is its cheapest node with its operands' prices, each divided by the tensor's users, who share it.
    """
    ranks = {f: rank for component in reduced.components for f, rank in _ranks(reduced, component).items()}
    order = [f for component in reduced.components for f in sorted(component, key=lambda f: (ranks[f], f))]
    place = {f: i for i, f in enumerate(order)}
    prices = _prices(reduced, order, place)
    demand: dict[int, int] = dict(reduced.goals)
    chosen: dict[int, MadeStores] = {}
    for f in reversed(order):
        if f not in demand:
            continue
        best = math.inf
        picked: tuple[MadeStores, int] | None = None
        reduced_class, kids = reduced.of_class[f], reduced.kids[f]
        for cost, bits, choice in reduced_class.transitions(demand[f]).options:
            for kid, stores in _demands(reduced_class, kids, bits):
                if place[kid] > place[f]:  # against the way through a cycle
                    cost = math.inf
                    break
                for s in _bits(stores & ~demand.get(kid, 0)):
                    cost += prices[kid][s]
            if cost < best:
                best, picked = cost, (choice, bits)
        if picked is None:
            return None
        chosen[f] = picked[0]
        for kid, stores in _demands(reduced_class, kids, picked[1]):
            demand[kid] = demand.get(kid, 0) | stores
    return chosen


def _ranks(reduced: Reduced, component: tuple[int, ...]) -> dict[int, int]:
    """An order in which the alias classes of a cycle can be begun: 1, 2, ...; 0 for an alias class on its own."""
    if len(component) == 1:
        return {component[0]: 0}
    ranks: dict[int, int] = {}
    available: dict[int, int] = {}
    while len(ranks) < len(component):
        begun = len(ranks)
        for f in component:
            if f in ranks:
                continue
            reduced_class, kids = reduced.of_class[f], reduced.kids[f]
            stores = 0
            for m, ways in enumerate(reduced_class.ways):
                for way in ways:
                    inner = [(k, s) for k, s in _demands(reduced_class, kids, way.bits) if k in component]
                    if all(s & ~available.get(k, 0) == 0 for k, s in inner):
                        for s, cost in enumerate(reduced_class.convert[m]):
                            stores |= (cost < math.inf) << s
            if stores:
                ranks[f] = len(ranks) + 1
                available[f] = stores
        if len(ranks) == begun:
            for f in component:
                ranks.setdefault(f, len(ranks) + 1)
    return ranks


def _prices(reduced: Reduced, order: list[int], place: dict[int, int]) -> dict[int, list[float]]:
    users = dict.fromkeys(order, 0)
    for f in order:
        for kid in reduced.kids[f]:
            users[kid] += 1
    prices: dict[int, list[float]] = {}
    ways_of: dict[int, list[tuple[int, float, list[tuple[int, list[int]]]]]] = {}
    for f in order:
        reduced_class, kids = reduced.of_class[f], reduced.kids[f]
        if reduced_class.number not in ways_of:
            places = tuple(range(len(kids)))
            ways_of[reduced_class.number] = [
                (m, way.cost, [(i, _bits(stores)) for i, stores in _demands(reduced_class, places, way.bits)])
                for m, ways in enumerate(reduced_class.ways)
                for way in ways
            ]
        # against the way through a cycle there is no price
        below = [prices[kid] if place[kid] <= place[f] else [math.inf] * reduced.of_class[kid].size for kid in kids]
        made = [math.inf] * reduced_class.size
        for m, cost, demands in ways_of[reduced_class.number]:
            for i, stores in demands:
                cost += sum([below[i][s] for s in stores])
            made[m] = min(made[m], cost)
        share = max(1, users[f])
        prices[f] = [
            min((made[m] + reduced_class.convert[m][s] for m in range(reduced_class.size)), default=math.inf) / share
            for s in range(reduced_class.size)
        ]
    return prices


def _demands(reduced_class: ReducedClass, kids: tuple[int, ...], bits: int) -> list[tuple[int, int]]:
    """The demanded operand alias classes with their stores (bits)."""
    found = []
    for kid, (first, size) in zip(kids, reduced_class.regions, strict=True):
        stores = bits >> first & (1 << size) - 1
        if stores:
            found.append((kid, stores))
    return found


def _bits(mask: int) -> list[int]:
    return [i for i in range(mask.bit_length()) if mask >> i & 1]
