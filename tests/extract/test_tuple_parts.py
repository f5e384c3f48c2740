"""What the readers of a tuple's results ask of it, and what the solution says when it is settled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from programs import constant, program
from tvm.relax import op

from eqsat_layout.extract.selection import Selection
from eqsat_layout.extract.solved import server, settled
from eqsat_layout.extract.solver.problem import Solution, cost_of
from eqsat_layout.extract.tuple_parts import is_part_need
from eqsat_layout.planning.pipeline import choose
from eqsat_layout.targets.registry import target as target_of

nn = op.nn


def two_ways(b: Any, x: Any) -> Any:
    joint = b.emit(nn.relu(nn.conv2d(x, constant(32, 32, 3, 3), padding=1)))
    parts = b.emit(op.split(joint, [8], axis=1))
    left, right = (b.emit(parts[i]) for i in range(2))
    return op.add(nn.conv2d(left, constant(32, 8, 3, 3)), nn.conv2d(right, constant(32, 24, 3, 3, seed=1)))


def converted_parts(selection: Selection, found: Solution) -> int:
    """Needs of a result that are served by a tuple which has it in another format."""
    count = 0
    for alias_class, store in found.source:
        specs = selection.stores[alias_class][store] if alias_class < len(selection.stores) else [(0, "")]
        whole, name = specs[0]
        if is_part_need(name):
            tuples, supplier = server(selection, found, (alias_class, store))
            conversion = selection.parts.conversion(whole, selection.stores[tuples][supplier][0][1], name)
            assert conversion is not None
            count += conversion[1] != conversion[2]
    return count


def with_another_part(selection: Selection, found: Solution) -> Solution:
    """The same plan, but one result is asked for in another format, and goes back from there."""
    for (alias_class, store), index in found.made.items():
        labels = selection.labels[alias_class] if alias_class < len(selection.labels) else []
        kind, detail = labels[store][index] if labels else ("", None)
        convert = selection.problem.classes[alias_class].convert
        for other in range(len(labels)) if kind == "part" else ():
            ways = [i for i, (kind, _) in enumerate(labels[other]) if kind == "part"]
            if ways and 0 < convert[other][store] < 1:
                needed = labels[other][ways[0]][1][1]
                made, source = dict(found.made), dict(found.source)
                del made[alias_class, store]
                made[alias_class, other] = ways[0]
                source[selection.place[needed]] = source.pop(selection.place[detail[1]])
                source |= {k: other for k, by in source.items() if k[0] == alias_class and by == store}
                return replace(found, made=made, source=source, cost=cost_of(selection.problem, made, source))
    raise AssertionError("no result of a tuple is read")


@pytest.mark.parametrize("target", [{"kind": "opencl", "device": "adreno"}, "llvm"])
def test_a_settled_solution_takes_results_as_they_are(target: Any) -> None:
    (region,) = choose(program(two_ways, (1, 32, 28, 28)), target_of(target), {}).regions
    selection, best = region.selection, region.solution
    assert cost_of(selection.problem, best.made, best.source) == best.cost
    assert converted_parts(selection, best) == 0
    worse = with_another_part(selection, best)
    assert converted_parts(selection, worse) == 1
    assert worse.cost > best.cost
    assert settled(selection, worse) == best
