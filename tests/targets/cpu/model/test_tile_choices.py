"""The cheapest of all register tiles: those that are judged together do not see each other."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from targets.machines import AVX2, AVX512, HALVES, NEON

from eqsat_layout.targets.cpu.model.operand_loads import OperandLoad
from eqsat_layout.targets.cpu.model.tile_choices import cheapest_tiles
from eqsat_layout.targets.cpu.model.tile_problem import TileProblem

strides = st.sampled_from([0, 1, None, 56])
loads = st.builds(
    OperandLoad,
    strides=st.tuples(strides, strides, st.sampled_from([0, 1, 2])),
    steps=st.sampled_from([1, 9, 576]),
    element_bytes=st.just(4),
    run=st.sampled_from([16, 512]),
    total=st.sampled_from([1000, 10**8]),
    readings=st.sampled_from([0, 49]),
)
problems = st.builds(
    TileProblem,
    loads=st.tuples(loads, loads),
    steps=st.sampled_from([1, 576]),
    width=st.sampled_from([4, 8, 16]),
    spare=st.integers(1, 2),
    periods=st.sampled_from([(), (16,), (8, 32)]),
    has_window=st.booleans(),
    is_depthwise=st.booleans(),
)
machines = st.sampled_from([AVX2, AVX512, HALVES, NEON])
sizes = st.integers(1, 30)


@given(problems, st.lists(st.tuples(sizes, sizes), min_size=1, max_size=5), st.sampled_from([14, 64, 96]), machines)
def test_extents_that_are_judged_together(problem, outer, lanes, machine):
    axes = tuple((*extents, lanes) for extents in outer)
    alone = [cheapest_tiles(problem, (extents,), machine)[0] for extents in axes]
    assert list(cheapest_tiles(problem, axes, machine)) == alone
    for extents, found in zip(axes, alone, strict=True):
        if found is None:
            continue
        cycles, tile = found
        assert 0 < cycles < math.inf
        assert lanes % (tile.lanes * tile.sizes[-1]) == 0
        assert all(extent % size == 0 for extent, size in zip(extents, tile.sizes[:-1], strict=False))
        assert -(-tile.lanes // problem.width) * math.prod(tile.sizes) < machine.registers
        for period in problem.periods:
            assert period % tile.lanes == 0


@given(problems, sizes, sizes, machines)
def test_an_axis_that_is_held_is_taken_whole(problem, held, other, machine):
    (found,) = cheapest_tiles(problem, ((held, other, 64),), machine, held=0)
    if found is not None and held <= 28:
        assert found[1].sizes[0] == held
