"""The selection problem as an integer program: for small ones with a wide frontier or large cycles.

In: a `Reduced`, and a solution to begin with. Out: `Improved`: choices and a lower bound. Needs HiGHS.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from eqsat_layout.extract.solver.options import MadeStores
from eqsat_layout.extract.solver.problem import Solution, StoreId
from eqsat_layout.extract.solver.reduce import Reduced

COLUMNS = 2_000
"""Larger programs are left alone: the frontier's beam does better there."""
BRANCHES = 500
"""Branch-and-bound nodes: a limit that, unlike a clock, is the same on every run."""


@dataclass(frozen=True, slots=True)
class Improved:
    """A selection, its cost (inf: none found), and a bound that no selection's cost is below."""

    cost: float
    lower_bound: float
    choices: dict[int, MadeStores]


def improve(reduced: Reduced, start: Solution | None, seconds: float) -> Improved | None:
    """Solve within the limits, from ``start`` on; None where the program is too large or there is no time."""
    if seconds <= 0:
        return None
    if not reduced.goals:  # all is free; HiGHS calls an empty program neither solved nor infeasible
        return Improved(0.0, 0.0, {})
    at_least = sum(one.size + sum(map(len, one.ways)) for one in reduced.of_class.values())
    model = _Model.of(reduced) if at_least <= COLUMNS else None
    if model is None or len(model.costs) > COLUMNS:
        return None
    return model.solve(start, seconds)


@dataclass(slots=True, eq=False)
class _Model:
    """Columns: per node taken, per store made and available, per conversion used, per cyclic alias class its place."""

    reduced: Reduced
    costs: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    goals: list[int] = field(default_factory=list)
    nodes: dict[tuple[int, int, int], int] = field(default_factory=dict)
    made: dict[StoreId, int] = field(default_factory=dict)
    available: dict[StoreId, int] = field(default_factory=dict)
    steps: dict[tuple[int, int, int], int] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)
    rows: list[tuple[list[int], list[float], float, bool]] = field(default_factory=list)

    @classmethod
    def of(cls, reduced: Reduced) -> _Model:
        model = cls(reduced)
        for component in reduced.components:
            for f in component:
                model._columns(f)
                if len(component) > 1:
                    model.places[f] = model._column(0.0, float(len(component)), False)
        for component in reduced.components:
            for f in component:
                model._supply(f)
                model._operands(f, component)
        for f, demand in reduced.goals.items():
            model.goals += [model.available[f, s] for s in range(demand.bit_length()) if demand >> s & 1]
        return model

    def _column(self, cost: float, upper: float, whole: bool) -> int:
        self.costs.append(cost)
        self.upper.append(upper)
        self.whole.append(whole)
        return len(self.costs) - 1

    def _columns(self, f: int) -> None:
        reduced_class = self.reduced.of_class[f]
        for m in reduced_class.makeable:
            self.made[f, m] = self._column(0.0, 1.0, False)
            for k, way in enumerate(reduced_class.ways[m]):
                self.nodes[f, m, k] = self._column(way.cost, 1.0, True)
        for s in range(reduced_class.size):
            self.available[f, s] = self._column(0.0, 1.0, False)
            for m in reduced_class.makeable:
                if reduced_class.convert[m][s] < math.inf:
                    self.steps[f, m, s] = self._column(reduced_class.convert[m][s], 1.0, True)

    def _supply(self, f: int) -> None:
        """Available needs a conversion; a conversion needs a made store; made needs a node."""
        reduced_class = self.reduced.of_class[f]
        for s in range(reduced_class.size):
            steps = [self.steps[f, m, s] for m in reduced_class.makeable if (f, m, s) in self.steps]
            self._row([*steps, self.available[f, s]], [1.0] * len(steps) + [-1.0], 0.0)
            for m in reduced_class.makeable:
                if (f, m, s) in self.steps:
                    self._row([self.made[f, m], self.steps[f, m, s]], [1.0, -1.0], 0.0)
        for m in reduced_class.makeable:
            nodes = [self.nodes[f, m, k] for k in range(len(reduced_class.ways[m]))]
            self._row([*nodes, self.made[f, m]], [1.0] * len(nodes) + [-1.0], 0.0, equal=True)

    def _operands(self, f: int, component: tuple[int, ...]) -> None:
        """Taken needs its operands available; in a cycle, users come after their operands."""
        reduced_class, kids = self.reduced.of_class[f], self.reduced.kids[f]
        for m in reduced_class.makeable:
            using: dict[StoreId, list[int]] = {}
            after: dict[int, list[int]] = {}
            for k, way in enumerate(reduced_class.ways[m]):
                column = self.nodes[f, m, k]
                for kid, (first, size) in zip(kids, reduced_class.regions, strict=True):
                    stores = [s for s in range(size) if way.bits >> first + s & 1]
                    for s in stores:
                        using.setdefault((kid, s), []).append(column)
                    if stores and kid in component:
                        after.setdefault(kid, []).append(column)
            for store, columns in using.items():
                self._row([self.available[store], *columns], [1.0] + [-1.0] * len(columns), 0.0)
            n = float(len(component))
            for kid, columns in after.items():
                row = [self.places[f], self.places[kid], *columns]
                self._row(row, [1.0, -1.0] + [-n - 1.0] * len(columns), -n)

    def _row(self, columns: list[int], factors: list[float], least: float, *, equal: bool = False) -> None:
        self.rows.append((columns, factors, least, equal))

    def solve(self, start: Solution | None, seconds: float) -> Improved:
        import highspy

        highs: Any = highspy.Highs()
        # costs are seconds, down to 1e-6: brought to a size that the solver's tolerances are made for
        top = start.cost if start is not None else max(self.costs, default=1.0)
        scale = 1e4 / top if top > 0 else 1.0
        for name, value in _options(seconds).items():
            highs.setOptionValue(name, value)
        highs.passModel(self._program(highspy, scale))
        if start is not None:
            solution = highspy.HighsSolution()
            solution.col_value = self._warm(start)
            highs.setSolution(solution)
        highs.run()
        info, status = highs.getInfo(), highs.getModelStatus()
        bound = info.mip_dual_bound / scale
        # the solver's own tolerance on feasibility is taken off, except from a proof of optimality
        bound = bound * (1 - 1e-7) if math.isfinite(bound) and bound > 0 else 0.0
        if info.primal_solution_status != 2:
            return Improved(math.inf, bound, {})
        cost = info.objective_function_value / scale
        if status == highspy.HighsModelStatus.kOptimal:
            bound = cost
        return Improved(cost, bound, self._choices(highs.getSolution().col_value))

    def _program(self, highspy: Any, scale: float) -> Any:
        import numpy as np

        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.costs), len(self.rows)
        lp.col_cost_ = np.array(self.costs) * scale
        lower = np.zeros(len(self.costs))
        lower[self.goals] = 1.0
        lp.col_lower_, lp.col_upper_ = lower, np.array(self.upper)
        kinds = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
        lp.integrality_ = [kinds[whole] for whole in self.whole]
        lp.row_lower_ = np.array([least for _, _, least, _ in self.rows])
        lp.row_upper_ = np.array([least if equal else highspy.kHighsInf for _, _, least, equal in self.rows])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.cumsum([0, *(len(columns) for columns, _, _, _ in self.rows)])
        lp.a_matrix_.index_ = np.array([c for columns, _, _, _ in self.rows for c in columns])
        lp.a_matrix_.value_ = np.array([v for _, factors, _, _ in self.rows for v in factors])
        return lp

    def _warm(self, start: Solution) -> list[float]:
        values = [0.0] * len(self.costs)
        for (f, m, k), column in self.nodes.items():
            if start.made.get((f, m)) == self.reduced.of_class[f].ways[m][k].index:
                values[column] = values[self.made[f, m]] = 1.0
        for (f, s), m in start.source.items():
            if (f, s) in self.available and (f, m) in self.made and values[self.made[f, m]]:
                values[self.available[f, s]] = values[self.steps[f, m, s]] = 1.0
        order = {f: self._depth(start, f) for f in self.places}
        for f, column in self.places.items():
            values[column] = float(order[f])
        return values

    def _depth(self, start: Solution, f: int) -> int:
        """How many layers of the cycle's alias classes lie below f in the solution."""
        layer, depth = {f}, -1
        while layer:
            depth += 1
            layer = {
                kid
                for g in layer
                for m in range(self.reduced.of_class[g].size)
                if (index := start.made.get((g, m))) is not None
                for kid, _ in self.reduced.problem.classes[g].nodes[m][index].children
                if kid in self.places
            }
        return depth

    def _choices(self, values: list[float]) -> dict[int, MadeStores]:
        chosen: dict[int, list[tuple[int, int]]] = {}
        for (f, m, k), column in self.nodes.items():
            if values[column] > 0.5:
                chosen.setdefault(f, []).append((m, self.reduced.of_class[f].ways[m][k].index))
        return {f: tuple(choice) for f, choice in chosen.items()}


def _options(seconds: float) -> dict[str, object]:
    return {
        "output_flag": False,
        "threads": 1,
        "random_seed": 0,
        "presolve": "off",  # that of HiGHS 1.15.1 calls 17 optimal where 5 is feasible (test_frontier.py)
        "mip_rel_gap": 0.0,
        "mip_abs_gap": 0.0,
        "mip_feasibility_tolerance": 1e-9,
        "primal_feasibility_tolerance": 1e-9,
        "dual_feasibility_tolerance": 1e-9,
        "mip_max_nodes": BRANCHES,
        **({"time_limit": seconds} if math.isfinite(seconds) else {}),
    }
