"""What the host answers: whether it is true.

In: a model. Out: how many rows that the host gave were checked, and those that are not true. Rules are proved or fuzzed
on the ground that these rows are true; here compositions, fills, views and the layouts that flow through an op are
evaluated on the tensors of the model. A variant of an op is run in its formats, with nothing defined in undef padding.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from eqsat_layout.egraph.names import Variant
from eqsat_layout.soundness.oracle.tir_interpreter import Masked, run_prim_func
from eqsat_layout.soundness.rules.meanings import free_variables
from eqsat_layout.soundness.rules.model import Model, Row
from eqsat_layout.soundness.rules.terms import StoredBytes
from eqsat_layout.tir.rewrite import relayout

RELATIONS = (
    *("compose", "identity", "fold", "fold-op", "cancel", "rim-through", "view", "pad-view", "peek", "cut", "whole"),
    *("impls", "fwd", "results"),
)
ROWS = 3
"""Rows of each relation in one model."""
DRAWN = 6
"""Operands that the meaning of a row is evaluated on."""
VARIANTS = 6
GARBAGE = 1e30
"""What undef holds; the masks tell as well."""


def check_answers(model: Model) -> tuple[int, list[str]]:
    """How many rows were checked, and what is wrong."""
    checked, wrong = 0, []
    for relation in RELATIONS:
        rows = model.rows(relation)
        for row in model.rng.sample(rows, min(ROWS, len(rows))):
            checked += 1
            if not _is_true(model, relation, row):
                wrong.append(f"({relation} {' '.join(map(str, row))}) is not true")
    rows = model.rows("back")
    for row in model.rng.sample(rows, min(VARIANTS, len(rows))):
        checked += 1
        wrong += _wrong_variant(model, row)
    return checked, wrong


def _is_true(model: Model, relation: str, row: Row) -> bool:
    """The meaning of a row, on operands of its op that the model has, and on others."""
    meaning = model.base.meanings[relation]
    key = row[1] if relation == "compose" else row[0]
    lists = [a for (k, a) in model.ops if k == key]
    drawn = [model.operands_for(key) for _ in range(DRAWN)] if free_variables(meaning, model.base) else []
    scope = dict(zip(meaning.columns, row, strict=True))
    for a in [*model.rng.sample(lists, min(DRAWN, len(lists))), *(a for a in drawn if a is not None)]:
        free = {n: a if sort == "Args" else a[0] for n, sort in free_variables(meaning, model.base).items()}
        if not model.evaluator.holds(meaning.formula, {**scope, **free}):
            return False
    return True


def _wrong_variant(model: Model, row: Row) -> Iterator[str]:
    """What a variant writes that it should not, or does not write that it should."""
    key, _, name, _ = row
    variant = model.values.names.variants[name]
    operands = model.operands_for(key)
    if operands is None:
        return
    for index, (got, wanted) in enumerate(_run(model, variant, operands)):
        if not got.serves(wanted):
            formats = ", ".join(variant.operands)
            yield f"{key} in ({formats}) -> {variant.result}, {variant.origin}: result {index} is wrong"


def _run(model: Model, variant: Variant, operands: tuple[int, ...]) -> list[tuple[StoredBytes, StoredBytes]]:
    """The results of a variant beside those of the op as it was, laid out."""
    signature = model.values.signatures[variant.signature]
    computation = signature.computation
    if variant.flow is None or computation is None:
        return []
    laid = [model.values.lay(f, x) for f, x in zip(variant.operands, operands, strict=True)]
    given = [Masked(np.where(b.defined, b.values, b.values.dtype.type(GARBAGE)), b.defined) for b in laid]
    found = run_prim_func(relayout(signature.func, computation, variant.flow), given)
    value = model.values.op(variant.signature, operands)
    fields = model.values.tensors[value]
    results = fields if isinstance(fields, tuple) else (value,)
    wanted = [model.values.lay(f, y) for f, y in zip(model.values.formats(variant.result), results, strict=True)]
    return [(StoredBytes(m.values, m.defined), w) for m, w in zip(found, wanted, strict=True)]
