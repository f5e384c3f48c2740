"""Stores that are the same bytes: one store for the solver, views in its answer."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat_layout.extract.solver.frontier import solve
from eqsat_layout.extract.solver.problem import AliasClass, ENode, ExtractionError, Problem, cost_of, same_bytes
from tests.extract.solver.small_problems import problems


def doubled(problem: Problem, seed: int) -> Problem:
    """Each store twice, as 2s and 2s + 1; nodes are made in one of the two and read either."""
    rng = random.Random(seed)
    classes = []
    for alias_class in problem.classes:
        nodes: list[list[ENode]] = []
        for ways in alias_class.nodes:
            pair: list[list[ENode]] = [[], []]
            for node in ways:
                children = tuple((f, 2 * s + rng.randrange(2)) for f, s in node.children)
                pair[rng.randrange(2)].append(ENode(node.cost, children))
            nodes += pair
        twice = [s for s in range(len(alias_class.nodes)) for _ in range(2)]
        convert = tuple(tuple(alias_class.convert[s][t] for t in twice) for s in twice)
        classes.append(AliasClass(tuple(map(tuple, nodes)), convert))
    goals = tuple((f, 2 * s + rng.randrange(2)) for f, s in problem.goals)
    return Problem(tuple(classes), goals)


@settings(max_examples=100)
@given(problems(cyclic=True), st.integers(0, 2**32))
def test_stores_that_are_the_same_bytes_cost_what_one_costs(problem: Problem, seed: int) -> None:
    twice = doubled(problem, seed)
    try:
        expected = solve(problem).cost
    except ExtractionError:
        with pytest.raises(ExtractionError):
            solve(twice)
        return
    found = solve(twice)
    assert found.cost == pytest.approx(expected)
    assert cost_of(twice, found.made, found.source) == pytest.approx(expected)


def test_one_copy_serves_two_views() -> None:
    """A row-major matrix is copied to an image; two readers see the image in two shapes, and pay once."""
    convert = ((0.0, 5.0, 5.0), (5.0, 0.0, 0.0), (5.0, 0.0, 0.0))
    tensor = AliasClass(((ENode(1.0),), (), ()), convert)
    readers = [AliasClass(((ENode(1.0, ((0, view),)),),), ((0.0,),)) for view in (1, 2)]
    found = solve(Problem((tensor, *readers), ((1, 0), (2, 0))))
    assert found.cost == 1 + 5 + 2
    assert [found.source[0, 1], found.source[0, 2]] == [0, 1], "the second is a view of the first"
    assert found.proven


def test_of_nodes_that_differ_in_views_only_the_first_is_taken() -> None:
    """Fewest views are not best: attention was not joined to one kernel where its softmax had lost an axis."""
    convert = ((0.0, 0.0), (0.0, 0.0))
    tensor = AliasClass(((), (ENode(1.0),)), convert)
    reader = AliasClass(((ENode(1.0, ((0, 0),)), ENode(1.0, ((0, 1),))),), ((0.0,),))
    found = solve(Problem((tensor, reader), ((1, 0),)))
    assert (found.made[1, 0], found.source) == (0, {(1, 0): 0, (0, 0): 1})


def test_stores_are_the_same_bytes_only_if_nothing_tells_them_apart() -> None:
    assert same_bytes(((0.0, 0.0, 3.0), (0.0, 0.0, 3.0), (3.0, 3.0, 0.0))) == (0, 0, 2)
    assert same_bytes(((0.0, 0.0, 3.0), (0.0, 0.0, 4.0), (3.0, 3.0, 0.0))) == (0, 1, 2)
    assert same_bytes(((0.0, 0.0), (1.0, 0.0))) == (0, 1), "free one way only"


def test_a_view_of_a_copy_that_nothing_supplies_is_no_solution() -> None:
    convert = ((0.0, 5.0, 5.0), (5.0, 0.0, 0.0), (5.0, 0.0, 0.0))
    problem = Problem((AliasClass(((ENode(1.0),), (), ()), convert),), ((0, 1), (0, 2)))
    assert cost_of(problem, {(0, 0): 0}, {(0, 1): 0, (0, 2): 1}) == 6
    with pytest.raises(ExtractionError, match="not made"):
        cost_of(problem, {(0, 0): 0}, {(0, 1): 2, (0, 2): 1})
