"""What the host answers: whether it is true.

In: a model. Out: how many rows that the host gave were checked, and those that are not true. Rules are proved or fuzzed
on the ground that these rows are true; here compositions, fills, views and the layouts that flow through an op are
evaluated on the tensors of the model. A variant of an op is run in its formats, with nothing defined in undef padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from eqsat_layout.egraph.expressions import forms_of
from eqsat_layout.egraph.names import Variant
from eqsat_layout.soundness.oracle.tir_interpreter import Masked, run_prim_func
from eqsat_layout.soundness.rules.bits import DEVICE_WORLD, garbage
from eqsat_layout.soundness.rules.ill_typed import IllTypedError, NotMadeError
from eqsat_layout.soundness.rules.meanings import free_variables
from eqsat_layout.soundness.rules.model import Row, RuleModel
from eqsat_layout.soundness.rules.rule_base import Meaning, RuleBase
from eqsat_layout.soundness.rules.stored import StoredBytes
from eqsat_layout.tir.rewrite import relayout

ROWS = 3
"""Rows of each relation in one model."""
DRAWN = 6
"""Operands that the meaning of a row is evaluated on."""
VARIANTS = 6


def check_answers(model: RuleModel) -> tuple[int, list[str]]:
    """How many rows were checked, and what is wrong. What can't be checked is a gap, which ``questions.py`` says.

    What a model takes too long for is left to others.
    """
    checked = 0
    wrong: list[str] = []
    for relation in model.lexicon.answered:
        if why_unchecked(relation, model.base):
            continue
        meaning = model.base.meanings[relation]
        variant = _variant_column(meaning)
        rows, most = model.rows(relation), ROWS if variant is None else VARIANTS
        for row in model.rng.sample(rows, min(most, len(rows))):
            try:
                wrong += _wrong_variant(model, row[variant]) if variant is not None else _untrue(model, relation, row)
            except NotMadeError:
                continue
            checked += 1
    return checked, wrong


def why_unchecked(relation: str, base: RuleBase) -> str:
    """Why rows of a relation can't be checked; empty if they can."""
    meaning = base.meanings.get(relation)
    if meaning is None:
        return "has no meaning to be checked against"
    strange = [name for name, sort in free_variables(meaning, base).items() if sort not in ("Tensor", "Args")]
    return f"can't be checked for all {strange[0]!r} of its meaning" if strange else ""


def _variant_column(meaning: Meaning) -> int | None:
    """The column that names a variant, of which the meaning says what it computes: it is run."""
    named = next((form[1] for form in forms_of(meaning.formula) if form[0] == "computes"), None)
    return meaning.columns.index(str(named)) if named in meaning.columns else None


def _untrue(model: RuleModel, relation: str, row: Row) -> list[str]:
    is_true = _is_true(model, model.base.meanings[relation], row)
    return [] if is_true else [f"({relation} {' '.join(map(str, row))}) is not true"]


def _is_true(model: RuleModel, meaning: Meaning, row: Row) -> bool:
    """The meaning of a row, for operands that the model has for its ops, and for others."""
    scope = dict(zip(meaning.columns, row, strict=True))
    free = free_variables(meaning, model.base)
    cases: list[dict[str, Any]] = [{}]
    for name, sort in free.items():
        key = _op_on(name, meaning, scope)
        lists = [a for k, a in model.ops if (k == key or key is None) and (a or sort == "Args")]
        lists = model.rng.sample(lists, min(DRAWN, len(lists)))
        drawn = [] if key is None else [model.operands_for(key) for _ in range(DRAWN)]
        operands = [*lists, *(a for a in drawn if a is not None)]
        cases = [{**case, name: a if sort == "Args" else a[0]} for case in cases for a in operands]
    return all(model.evaluator.holds(meaning.formula, {**scope, **case}) for case in cases)


def _op_on(variable: str, meaning: Meaning, scope: Mapping[str, Any]) -> str | None:
    """The op that a meaning has on one of its variables: ``k`` for ``x`` in ``(at k x)``, for ``a`` in ``(Op k a)``."""
    for form in forms_of(meaning.formula):
        if form[0] in ("at", "Op") and form[2] == variable and form[1] in scope:
            return str(scope[str(form[1])])
    return None


def _wrong_variant(model: RuleModel, name: str) -> Iterator[str]:
    """What a variant writes that it should not, or does not write that it should."""
    variant = model.values.names.variants[name]
    operands = model.operands_for(variant.signature)
    if operands is None:
        return
    for index, (got, wanted) in enumerate(_run(model, variant, operands)):
        if not got.serves(wanted):
            formats = ", ".join(variant.operands)
            said = f"{variant.signature} in ({formats}) -> {variant.result}, {variant.origin}"
            yield f"{said}: result {index} is wrong"


def _run(model: RuleModel, variant: Variant, operands: tuple[int, ...]) -> list[tuple[StoredBytes, StoredBytes]]:
    """The results of a variant beside those of the op as it was, laid out."""
    signature = model.values.signatures[variant.signature]
    computation = signature.computation
    as_it_stands = signature.frozen is not None and not signature.is_moved
    if variant.flow is None or computation is None or as_it_stands:
        return []
    try:
        value = model.values.op(variant.signature, operands)
    except IllTypedError:  # it has no value there
        return []
    laid = [model.values.lay(f, x) for f, x in zip(variant.operands, operands, strict=True)]
    given = [Masked(np.where(b.defined, b.values, garbage(b.values.dtype)), b.defined) for b in laid]
    found = run_prim_func(relayout(signature.func, computation, variant.flow), given, DEVICE_WORLD)
    fields = model.values.tensors[value]
    results = fields if isinstance(fields, tuple) else (value,)
    wanted = [model.values.lay(f, y) for f, y in zip(model.values.formats(variant.result), results, strict=True)]
    return [(StoredBytes(m.values, m.defined, w.scope), w) for m, w in zip(found, wanted, strict=True)]
