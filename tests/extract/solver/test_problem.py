"""What counts as a solution, and what a malformed problem is told."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat_layout.errors import EqsatError
from eqsat_layout.extract.solver.frontier import solve
from eqsat_layout.extract.solver.options import ReducedNode
from eqsat_layout.extract.solver.problem import AliasClass, ENode, ExtractionError, Problem, Solution, cost_of
from eqsat_layout.extract.solver.reduced_class import ReducedClass

ONE = ((0.0,),)
X = AliasClass(((ENode(2.0),), ()), ((0.0, 3.0), (math.inf, 0.0)))
Y = AliasClass(((ENode(1.0, ((0, 1), (0, 1), (0, 0))),),), ONE)
PROBLEM = Problem((X, Y), ((1, 0),))
MADE = {(0, 0): 0, (1, 0): 0}
SOURCE = {(0, 0): 0, (0, 1): 0, (1, 0): 0}


def test_conversions_and_nodes_are_paid_once() -> None:
    assert cost_of(PROBLEM, MADE, SOURCE) == 6.0
    assert solve(PROBLEM) == Solution(6.0, 6.0, MADE, SOURCE)


@pytest.mark.parametrize(
    ("made", "source", "words"),
    [
        (MADE, {(0, 0): 0, (0, 1): 0}, "goal"),
        (MADE, {(0, 0): 0, (1, 0): 0}, "not supplied"),
        ({(1, 0): 0}, SOURCE, "not made"),
        ({**MADE, (0, 1): 0}, SOURCE, "has no node"),
        ({**MADE, (2, 0): 0}, SOURCE, "no store"),
    ],
)
def test_what_is_no_solution_is_refused(made: dict, source: dict, words: str) -> None:
    with pytest.raises(ExtractionError, match=words):
        cost_of(PROBLEM, made, source)


def test_illegal_conversions_and_circles_are_refused() -> None:
    back = AliasClass(((), (ENode(1.0),)), X.convert)
    with pytest.raises(ExtractionError, match="can't be converted"):
        cost_of(Problem((back,), ((0, 0),)), {(0, 1): 0}, {(0, 0): 1})
    a, b = (AliasClass(((ENode(1.0, ((other, 0),)),),), ONE) for other in (1, 0))
    with pytest.raises(ExtractionError, match="out of itself"):
        cost_of(Problem((a, b), ((0, 0),)), {(0, 0): 0, (1, 0): 0}, {(0, 0): 0, (1, 0): 0})


@pytest.mark.parametrize(
    ("classes", "goals", "words"),
    [
        ((X,), ((0, 2),), "goal"),
        ((X,), ((1, 0),), "goal"),
        ((AliasClass(((ENode(1.0), ENode(-1.0)),), ONE),), ((0, 0),), "negative"),
        ((AliasClass(((ENode(math.nan),),), ONE),), ((0, 0),), "not a number"),
        ((AliasClass(((ENode(1.0),),), ((1.0,),)),), ((0, 0),), "itself"),
        ((AliasClass(((ENode(1.0),),), ((0.0, 1.0),)),), ((0, 0),), "1 x 1"),
        ((AliasClass(((ENode(1.0, ((5, 0),)),),), ONE),), ((0, 0),), "does not exist"),
        ((AliasClass(((ENode(1.0, ((1, 7),)),),), ONE), X), ((0, 0),), "does not exist"),
        ((AliasClass(((),), ONE),), ((0, 0),), "can't be made"),
    ],
)
def test_malformed_problems_are_named(classes: tuple[AliasClass, ...], goals: tuple, words: str) -> None:
    with pytest.raises(EqsatError, match=words):
        solve(Problem(classes, goals))


def test_like_families_with_unlike_operands_are_checked_each() -> None:
    user = [AliasClass(((ENode(1.0, ((kid, 1),)),),), ONE) for kid in (2, 3)]
    small = AliasClass(((ENode(1.0),),), ONE)
    with pytest.raises(ExtractionError, match="does not exist"):
        solve(Problem((*user, X, small), ((0, 0), (1, 0))))


costs = st.sampled_from([0.0, 1.0, 2.0, 5.0, math.inf])


@given(
    st.lists(costs, min_size=9, max_size=9), st.integers(1, 7), st.integers(0, 15), st.integers(0, 15), st.booleans()
)
def test_a_repair_bounds_what_any_completion_costs_more(
    matrix: list[float], makeable: int, has: int, lacks: int, final: bool
) -> None:
    """Against its definition: every made set that serves ``lacks``, every later demand (bit 3 is "any store")."""
    convert = tuple(tuple(0.0 if i == j else matrix[3 * i + j] for j in range(3)) for i in range(3))
    ways = tuple((ReducedNode(1.0, 1, 0),) if makeable >> s & 1 else () for s in range(3))
    reduced_class = ReducedClass(0, ways, convert, ((0, 1),))
    bound = reduced_class.repair(has, lacks, final)

    def supply(made: int, demand: int) -> float:
        if demand and not made:
            return math.inf
        return sum(
            min(convert[m][r] for m in range(3) if made >> m & 1) for r in range(3) if demand >> r & 1
        )  # fmt: skip

    for made in range(8):
        if made & ~makeable:
            continue
        for later in [0] if final else range(16):
            before = supply(made, lacks | later)
            if before < math.inf:
                assert supply(made, has | later) - before <= bound
