"""Rows that are true by chance: what rules may not build on.

In: a model and relations. Out: more rows in it, each true by its meaning: rows that there are, with one cell from
another row; of relations without rows any cells. Only of relations whose meaning says nothing of everything, so that
it can be evaluated here and now.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from eqsat_layout.egraph.expressions import Expr
from eqsat_layout.soundness.rules.meanings import free_variables
from eqsat_layout.soundness.rules.model import RuleModel

TRIED = 400
"""Rows of each relation that are tried."""
IN_PLACE = 0.5
"""How often a cell comes from its own column: a name of an op is none of a constant."""


def add_coincidences(model: RuleModel, relations: Iterable[str]) -> None:
    """Adds those that are found of each relation."""
    for relation in relations:
        meaning = model.base.meanings.get(relation)
        rows = model.rows(relation)
        if meaning is None or _looks_far(meaning.formula) or free_variables(meaning, model.base):
            continue
        sorts = model.base.relations[relation]
        if not rows:
            _begin(model, relation, sorts)
            continue
        for _ in range(TRIED):
            row, other = model.rng.choice(rows), model.rng.choice(rows)
            column = model.rng.randrange(len(row))
            alike = [i for i, sort in enumerate(sorts) if sort == sorts[column]]
            cell = other[column if model.rng.random() < IN_PLACE else model.rng.choice(alike)]
            changed = (*row[:column], cell, *row[column + 1 :])
            if changed not in model.facts[relation] and model.evaluator.means(relation, changed):
                model.add(relation, *changed)


def _begin(model: RuleModel, relation: str, sorts: Sequence[str]) -> None:
    """The first rows of a relation, which nothing but its meaning speaks of."""
    known = {sort: _cells(model, sort) for sort in dict.fromkeys(sorts)}
    if not all(known.values()):
        return
    drawn = islice(zip(*(_endless(known[sort], model.rng) for sort in sorts), strict=True), TRIED)
    beside = list(dict.fromkeys(_beside(model, sorts)))
    for row in (*drawn, *model.rng.sample(beside, min(TRIED, len(beside)))):
        if len(row) == len(sorts) and model.evaluator.means(relation, row):
            model.add(relation, *row)


def _beside(model: RuleModel, sorts: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Cells that have to do with each other: an operand and the result, what stands in one row of another relation."""
    if list(sorts) == ["Tensor", "Tensor"]:
        yield from ((*a, y)[:2] for (_, a), y in model.ops.items())
    for relation, rows in model.facts.items() if len(sorts) > 1 else ():
        columns = list(model.base.relations[relation])
        places = [columns.index(sort) for sort in sorts if sort in columns]
        if len(set(places)) == len(sorts):
            yield from (tuple(row[place] for place in places) for row in islice(rows, TRIED))


def _endless(cells: list[Any], rng: random.Random) -> Iterator[Any]:
    """All of them, in one order after the other."""
    while True:
        yield from rng.sample(cells, len(cells))


def _cells(model: RuleModel, sort: str) -> list[Any]:
    """What may stand in a column: tensors, or what stands in such columns of other relations."""
    if sort == "Tensor":
        return list(range(len(model.values.tensors)))
    found = dict[Any, None]()
    for relation, rows in model.facts.items():
        for column, own in enumerate(model.base.relations[relation]):
            if own == sort:
                found.update(dict.fromkeys(row[column] for row in islice(rows, TRIED)))
    return list(found)


def _looks_far(formula: Expr) -> bool:
    """Whether all tensors have to be looked at."""
    return isinstance(formula, tuple) and (formula[0] == "some" or any(map(_looks_far, formula)))
