"""The exact extraction beside greedy and ILP on problems of real models: ``python -m bench.planning.solvers``.

The problems are those that ``eqsat_layout.plan`` gives to its solver. ILP is HiGHS on the reduced problem (which helps
it), with ``--seconds`` each. Real models need the dependency group ``bench``; ``--quick`` takes those that don't.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TVM_NUM_THREADS", "1")

from rich.console import Console
from rich.table import Table

from bench.networks import hard_for_tvm
from bench.planning import peers
from eqsat_layout.cost.database import Database
from eqsat_layout.extract.solver import ilp
from eqsat_layout.extract.solver.frontier import solve
from eqsat_layout.extract.solver.greedy import solve_greedy
from eqsat_layout.extract.solver.problem import ExtractionError, Problem
from eqsat_layout.extract.solver.reduce import reduce
from eqsat_layout.models import resnet50
from eqsat_layout.planning.search import plan_regions, search_of
from eqsat_layout.report.figures import format_seconds
from eqsat_layout.system.collector import collector_paused
from eqsat_layout.targets.lowering import prepared
from eqsat_layout.targets.registry import target as target_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", nargs="+")
    parser.add_argument("--quick", action="store_true", help="the built-in ResNet-50 and the synthetic networks")
    parser.add_argument("--seconds", type=float, default=60.0, help="for the ILP")
    options = parser.parse_args()
    named = {spec.partition(":")[0]: spec for spec in peers.REAL}
    quick = ("resnet50 built in", *hard_for_tvm.NETWORKS)
    usual = quick if options.quick else (*peers.REAL, *hard_for_tvm.NETWORKS)
    specs = [named.get(m, m) for m in options.model or usual]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("", "alias classes", "nodes", "exact", "gap", "s", "greedy", "s", "ILP", "its bound", "s"):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    console = Console(width=None if sys.stdout.isatty() else peers.WIDTH)
    for spec in specs:
        mod = prepared(resnet50()) if spec == quick[0] else peers.load(spec)[0]
        for problem in problems(mod):
            table.add_row(spec.partition(":")[0], *cells(problem, options.seconds))
    console.print(table)


def problems(mod: Any) -> Iterator[Problem]:
    """What ``eqsat_layout.plan`` has to solve; trivial regions are left out."""
    target = target_of()
    search = search_of(mod, target, {}, Database().read())
    with collector_paused():
        regions = plan_regions(search)
    return (r.selection.problem for r in regions if len(r.selection.problem.classes) > 4)


def cells(problem: Problem, seconds: float) -> Iterator[str]:
    """One row: sizes, then cost and seconds of each solver; costs but the first as what they are above it."""
    yield str(len(problem.classes))
    yield str(sum(len(ways) for alias_class in problem.classes for ways in alias_class.nodes))
    start = time.perf_counter()
    exact = solve(problem)
    yield from (format_seconds(exact.cost), f"{exact.gap:.2%}", f"{time.perf_counter() - start:.2f}")
    start = time.perf_counter()
    try:
        greedy = f"{solve_greedy(problem).cost / exact.cost - 1:+.2%}"
    except ExtractionError:
        greedy = "none"
    yield from (greedy, f"{time.perf_counter() - start:.2f}")
    ilp.COLUMNS, ilp.BRANCHES = 10**9, 10**9
    start = time.perf_counter()
    found = ilp.improve(reduce(problem), None, seconds)
    spent = f"{time.perf_counter() - start:.2f}"
    if found is None:
        yield from ("none", "", spent)
    else:
        yield from (f"{found.cost / exact.cost - 1:+.2%}", f"{found.lower_bound / exact.cost - 1:+.2%}", spent)


if __name__ == "__main__":
    main()
