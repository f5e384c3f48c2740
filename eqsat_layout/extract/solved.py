"""A selection, solved: what is made, and what supplies the rest.

In: a selection and its problem. Out: a solution in which each result of a tuple is taken as the tuple has it. Where the
solver has the tuple serve a need for another format, the conversion is one of the result's own.
"""

from __future__ import annotations

from dataclasses import replace

from eqsat_layout.extract.selection import Selection
from eqsat_layout.extract.solver.frontier import solve
from eqsat_layout.extract.solver.problem import Problem, Solution, StoreId, cost_of
from eqsat_layout.extract.tuple_parts import is_part_need, part_need


def solved(selection: Selection, problem: Problem, time_limit: float | None) -> Solution:
    """The best solution of ``problem``: the selection's own, or one with the same stores and nodes."""
    return settled(selection, solve(problem, time_limit=time_limit))


def server(selection: Selection, found: Solution, place: StoreId) -> StoreId:
    """The store of a tuple that serves a need; any other store itself."""
    alias_class, store = place
    while is_part_need(selection.stores[alias_class][store][0][1]):
        store = found.source[alias_class, store]
    return alias_class, store


def settled(selection: Selection, found: Solution) -> Solution:
    """The solution with each need served by a tuple that has the result in that very format.

    Where it is converted, the result is taken as the tuple has it, and converted then.
    """
    made, source = dict(found.made), dict(found.source)
    for (alias_class, store), index in found.made.items():
        if alias_class >= len(selection.labels):
            continue  # copies of constants
        kind, detail = selection.labels[alias_class][store][index]
        if kind != "part":
            continue
        part, (whole, need) = detail
        place = selection.place[whole, need]
        tuples, supplier = server(selection, found, place)
        ((_, formats),) = selection.stores[tuples][supplier]
        conversion = selection.parts.conversion(whole, formats, need)
        assert conversion is not None, "only lists serve needs"
        tensor, before, after = conversion
        if before == after:
            continue
        other = selection.place[tensor, before][1]
        nearer = (whole, part_need(part, before))
        del made[alias_class, store]
        made.setdefault((alias_class, other), selection.labels[alias_class][other].index(("part", (part, nearer))))
        source.pop(place, None)
        source[selection.place[nearer]] = supplier
        for demanded, by in found.source.items():
            if demanded[0] == alias_class and by == store:
                source[demanded] = other
    if made == found.made and source == found.source:
        return found
    cost = cost_of(selection.problem, made, source)
    return replace(found, cost=cost, lower_bound=min(found.lower_bound, cost), made=made, source=source)
