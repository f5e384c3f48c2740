"""Terms of ops that rules ask for, in random models: ops that the model has anyhow, asked for by name.

In: a model with its terms. Out: terms ``(Make name attributes operands)`` with their values, and the rows about types
that the rules of ``make.egg`` look for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from eqsat_layout.egraph.attribute_text import shown
from eqsat_layout.egraph.expressions import unquoted
from eqsat_layout.egraph.rule_forms import Rule
from eqsat_layout.graph.op_calls import attributes_of
from eqsat_layout.soundness.rules.ill_typed import IllTypedError
from eqsat_layout.soundness.rules.model import RuleModel

_MADE = 4
"""Terms of this kind in one model."""


def made_names(rule: Rule) -> Iterator[str]:
    """The names of ops in terms of this kind that the body of a rule looks for; of one that may be any an empty one."""
    waiting = list(rule.body)
    while waiting:
        expr = waiting.pop()
        if isinstance(expr, tuple):
            waiting += expr
            if expr[:1] == ("Make",) and len(expr) > 1:
                yield unquoted(str(expr[1])) if str(expr[1]).startswith('"') else ""


def add_made_rows(model: RuleModel, names: Collection[str] = ()) -> None:
    """Adds them all, and more of ops that are called so."""
    values = model.values
    terms = [(k, a, y) for (k, a), y in model.ops.items()]
    several = [term for term in terms if isinstance(values.tensors[term[2]], tuple)]
    viewed = {y for (k, _), y in model.ops.items() if k in values.parts}
    on_views = [term for term in terms if viewed.intersection(term[1])]
    named = [term for term in terms if _name(model, term[0]) in names]
    kinds = (terms, on_views, several, named)
    drawn = [term for kind in kinds for term in model.rng.sample(kind, min(_MADE, len(kind)))]
    drawn += [twin for key, operands, _ in drawn for twin in _twins(model, key, operands)]
    for k, a, y in drawn:
        name, settings = _asked_for(model, k)
        if _add_made(model, name, settings, a, y):
            for operands, result in _of_other_types(model, k, settings):
                is_made = _add_made(model, name, settings, operands, result)
                if is_made and values.are_of_two_types(y, result):
                    model.add("may-become", y, result)  # which says nothing then
                    model.add("may-become", result, y)


def _add_made(model: RuleModel, name: str, settings: str, operands: tuple[int, ...], result: int) -> bool:
    """Adds a term and its rows; whether what is asked for so is this one."""
    makes, values = model.lexicon.makes, model.values
    try:
        if not values.equal(values.makes.make(values, name, settings, operands), result):
            return False  # an op that is called the same and is another: nobody said that it is this one
    except IllTypedError:
        return False
    model.makes[name, settings, operands] = result
    model.add("made", result)
    model.add("becomes", result, result)
    model.add("may-become", result, result)
    types = makes.type_names(values, operands)
    model.add("make", name, settings, types, makes.graph_of(name, settings, types))
    for i in range(len(operands) + 1):
        model.add("typed-all", operands[i:], makes.type_names(values, operands[i:]))
        model.add("typing-all", operands[i:])
    return True


def _name(model: RuleModel, key: str) -> str:
    signature = model.vocabulary.signatures.get(key)
    return "" if signature is None else signature.name


def _twins(model: RuleModel, key: str, operands: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """The same op with other attributes, on the same operands."""
    signatures = model.vocabulary.signatures
    name, takes = _name(model, key), model.takes(key)
    alike = [k for k in signatures if name and k != key and _name(model, k) == name and model.takes(k) == takes]
    for twin in model.rng.sample(alike, min(1, len(alike))):
        made = model.try_apply(twin, operands)
        if made is not None:
            yield twin, operands, made


def _of_other_types(model: RuleModel, key: str, settings: str) -> Iterator[tuple[tuple[int, ...], int]]:
    """The same op with the same attributes, on operands of other types."""
    name, takes = _name(model, key), model.takes(key)
    alike = [k for k in model.vocabulary.signatures if name and _name(model, k) == name and model.takes(k) != takes]
    for other in model.rng.sample(alike, len(alike)):
        operands = model.operands_for(other) if _settings(model, other) == settings else None
        made = None if operands is None else model.try_apply(other, operands)
        if operands is not None and made is not None:
            yield operands, made
            return


def add_types(model: RuleModel) -> None:
    """The types of all tensors."""
    makes, values = model.lexicon.makes, model.values
    for number, value in enumerate(values.tensors):
        if not isinstance(value, tuple):
            model.add("typed", number, makes.type_name(values, number))
            model.add("typing", number)
    for ref, number in enumerate(values.refs):
        if not isinstance(values.tensors[number], tuple) and model.rng.random() < 0.2:
            model.add("row-type", ref, makes.type_name(values, number))


def _asked_for(model: RuleModel, key: str) -> tuple[str, str]:
    """What a rule would say to have this op: its signature, or its name with its attributes."""
    settings = _settings(model, key)
    return (key, "") if settings is None or model.rng.random() < 0.4 else (_name(model, key), settings)


def _settings(model: RuleModel, key: str) -> str | None:
    """The attributes of an op as a rule would say them, if it has a name."""
    signature = model.vocabulary.signatures.get(key)
    attributes = None if signature is None else attributes_of(signature.template)
    return None if attributes is None else ", ".join(f"{name}={shown(value)}" for name, value in attributes.items())
