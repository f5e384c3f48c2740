"""Rows that are true by chance: what rules may not build on.

In: a model and relations. Out: more rows in it, each true by its meaning: rows that there are, with one cell from
another row. Only of relations whose meaning says nothing of everything, so that it can be evaluated here and now.
"""

from __future__ import annotations

from collections.abc import Iterable

from eqsat_layout.egraph.expressions import Expr
from eqsat_layout.soundness.rules.meanings import free_variables
from eqsat_layout.soundness.rules.model import RuleModel

TRIED = 400
"""Rows of each relation that are tried."""


def add_coincidences(model: RuleModel, relations: Iterable[str]) -> None:
    """Adds those that are found of each relation."""
    for relation in relations:
        meaning = model.base.meanings.get(relation)
        rows = model.rows(relation)
        if meaning is None or not rows or _looks_far(meaning.formula) or free_variables(meaning, model.base):
            continue
        sorts = model.base.relations[relation]
        for _ in range(TRIED):
            row, other = model.rng.choice(rows), model.rng.choice(rows)
            column = model.rng.randrange(len(row))
            cell = other[model.rng.choice([i for i, sort in enumerate(sorts) if sort == sorts[column]])]
            changed = (*row[:column], cell, *row[column + 1 :])
            if changed not in model.facts[relation] and model.evaluator.means(relation, changed):
                model.add(relation, *changed)


def _looks_far(formula: Expr) -> bool:
    """Whether all tensors have to be looked at."""
    return isinstance(formula, tuple) and (formula[0] == "some" or any(map(_looks_far, formula)))
