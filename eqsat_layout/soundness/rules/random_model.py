"""Random models.

In: a lexicon, a seed, and the rules whose terms are to occur. Out: a :class:`RuleModel`: parameters and constants,
terms as rules look for them, pads and crops, random terms; then graphs, and the rows that are true of all that.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from eqsat_layout.egraph.rule_forms import Rule
from eqsat_layout.graph.borders import Border
from eqsat_layout.maps import IndexMap
from eqsat_layout.soundness.rules.bits import WORLDS, RandomElements, plain_arrays
from eqsat_layout.soundness.rules.body_searches import body_search_of, searches
from eqsat_layout.soundness.rules.lexicon import Lexicon
from eqsat_layout.soundness.rules.made_rows import add_made_rows, add_types, made_names
from eqsat_layout.soundness.rules.model import RuleModel
from eqsat_layout.soundness.rules.model_coincidences import add_coincidences
from eqsat_layout.soundness.rules.model_graphs import add_graphs
from eqsat_layout.soundness.rules.model_rows import add_rows
from eqsat_layout.soundness.rules.named_together import joined_facts, scopes
from eqsat_layout.soundness.rules.patterns import Pattern
from eqsat_layout.soundness.rules.remarks import heads
from eqsat_layout.soundness.rules.rule_base import RuleBase
from eqsat_layout.soundness.rules.spoken_numbers import spoken_numbers
from eqsat_layout.soundness.rules.terms import TermEvaluator
from eqsat_layout.soundness.rules.values import Values, taken_shape

TERMS = 40
TRIES = 2
"""How often the terms of each rule are looked for; not every draw of ops and tensors fits together."""
MADE_EVERY = 2
"""Every so manieth model has terms of ops that are asked for by name, whatever is drawn: TVM builds each of them."""
OPERANDS = 4
"""What views, pads and crops make, that stands as an operand of each op in a full model."""
MORE_TRIES = 32
"""The same for rules of which the models are made, if these are few."""
NARROW_TRIES = 48
"""The same in models of nothing else."""
TOGETHER_TRIES = 16
"""The same for names that several facts of a body have in common."""
FRESH = 0.7
"""How often an operand in these is a tensor of its own."""


def make_model(lexicon: Lexicon, base: RuleBase, seed: int, rules: Iterable[Rule] = ()) -> RuleModel:
    """A model of ``base`` over the lexicon, with terms of all its rules, and more of ``rules``."""
    rules = tuple(rules)
    model = _empty(lexicon, base, seed, rules)
    _leaves(model)
    _patterns(model, base.rules, TRIES, is_wanted=False)
    _terms(model)
    _patterns(model, rules, MORE_TRIES)
    _named_together(model, rules)
    _add_facts(model)
    _add_chances(model, rules)
    names = {name for rule in rules for name in made_names(rule)}
    if names or seed % MADE_EVERY == 0:
        add_made_rows(model, names)
    return model


def make_narrow_model(lexicon: Lexicon, base: RuleBase, seed: int, rules: Iterable[Rule]) -> RuleModel:
    """A model of terms of ``rules`` and little else, mostly over tensors of their own: many draws of elements in the
    time that one model with everything takes."""
    rules = tuple(rules)
    model = _empty(lexicon, base, seed, rules)
    _constants(model)
    for shape in (model.vocabulary.shape, model.vocabulary.wide):
        model.draw_leaf(shape, "float32")
    _patterns(model, rules, NARROW_TRIES, fresh=FRESH)
    _named_together(model, rules)
    _add_facts(model)
    _add_chances(model, rules)
    return model


def _add_chances(model: RuleModel, rules: Sequence[Rule]) -> None:
    add_types(model)
    add_coincidences(model, dict.fromkeys(head for rule in rules for head in heads(rule)))


def make_full_model(
    lexicon: Lexicon, base: RuleBase, rules: Iterable[Rule], seed: int, more: Iterable[Rule] = ()
) -> RuleModel:
    """A model in which every op, view, pad and crop is on something, views of views and ops on pads too; in it every
    tensor is wanted in every format, so that ``rules`` ask whatever they may ask about the lexicon's words; with the
    terms of ``more`` rules."""
    model = _empty(lexicon, base, seed)
    values, rng = model.values, model.rng
    parts = {name: taken_shape(part) for name, part in values.parts.items()}
    ops = {k: model.takes(k) or [] for k in model.vocabulary.signatures}
    types = [*((shape, "float32") for shape in parts.values()), *(ty for types in ops.values() for ty in types)]
    for shape, dtype in dict.fromkeys(types):
        model.leaf(model.elements.tensor(shape, dtype))
    _constants(model)
    leaves = range(len(values.tensors))
    first: dict[int, None] = {}
    for name, shape in parts.items():
        made = [model.try_apply(name, (x,)) for x in leaves if model.is_of(x, shape)]
        first.update(dict.fromkeys(x for x in made if x is not None))
        for x in [x for x in made if x is not None][:1]:
            for outer, taken in parts.items():
                if model.is_of(x, taken):
                    model.try_apply(outer, (x,))
    for name, types in ops.items():
        for i, (shape, dtype) in enumerate(types):
            fitting = [x for x in first if model.is_of(x, shape, dtype)]
            for x in (*values.of_type(shape, dtype)[:1], *rng.sample(fitting, min(OPERANDS, len(fitting)))):
                operands = model.operands_for(name)
                if operands is not None:
                    model.try_apply(name, (*operands[:i], x, *operands[i + 1 :]))
    _on_constants(model, ops)
    _patterns(model, rules, TRIES)
    _patterns(model, more, MORE_TRIES)
    _add_facts(model)
    add_types(model)
    add_made_rows(model)
    for number in range(len(values.tensors)):
        model.add("live", number)
        for fmt in model.formats_of(number):
            model.add("want", number, fmt)
    return model


def _on_constants(model: RuleModel, ops: Mapping[str, Sequence[tuple[Any, str]]]) -> None:
    """Ops, with the types of their operands, on constants of random numbers and of zeros, on which many agree."""
    for name, types in ops.items():
        alike = [[c for c in model.values.constants.values() if model.is_of(c, *ty)] for ty in types]
        for operands in zip(*alike, strict=False) if alike else ():
            model.try_apply(name, operands)


def _empty(lexicon: Lexicon, base: RuleBase, seed: int, rules: tuple[Rule, ...] = ()) -> RuleModel:
    rng = random.Random(f"{lexicon.vocabulary.shape} {seed}")
    values = Values(lexicon.names, lexicon.answers.signatures, lexicon.parts, lexicon.makes, lexicon.interpreters)
    values.graphs.update(lexicon.makes.graphs)
    return RuleModel(
        lexicon, base, values, TermEvaluator(values, base), rng, RandomElements(seed, spoken_numbers(rules))
    )


def _patterns(model: RuleModel, rules: Iterable[Rule], tries: int, fresh: float = 0.0, is_wanted: bool = True) -> None:
    """Terms as rules look for them; of ops that fit together, and of others. ``is_wanted``: for rules to be judged."""
    names = {part: name for name, part in model.values.parts.items()}
    for key, sought in (one for rule in rules for one in searches(model.base, rule)):
        if not sought.equations:
            continue
        instances = model.vocabulary.instances.get(key, ())
        for number in range(tries):
            scope: dict[str, Any] = {}
            if instances and number % 2:
                chosen = instances[number // 2 % len(instances)]
                scope = {v: k if isinstance(k, str) else names[k] for v, k in chosen.items()}
            pattern = Pattern(model, sought, scope, fresh=fresh)
            if pattern.build() and is_wanted and pattern.has_apart:
                model.bodies.append(pattern.tensors)


def _named_together(model: RuleModel, rules: Iterable[Rule]) -> None:
    """Terms of names that facts of a body have in common, on tensors of which these facts say nothing."""
    for rule in rules:
        facts = joined_facts(model.base, rule)
        for relation in {fact[0]: None for fact in facts}:
            model.facts.setdefault(relation, {}).update(dict.fromkeys(model.lexicon.rows.get(relation, ())))
            add_coincidences(model, [relation])
        rows = {fact[0]: model.rows(fact[0]) for fact in facts}
        for scope in scopes(facts, rows, TOGETHER_TRIES, model.rng):
            Pattern(model, body_search_of(model.base, rule.body), scope, fresh=FRESH).build()


def _add_facts(model: RuleModel) -> None:
    for relation, rows in model.lexicon.rows.items():
        model.facts.setdefault(relation, {}).update(dict.fromkeys(rows))
    if model.lexicon.is_asked:
        add_graphs(model)
    add_rows(model)


def _leaves(model: RuleModel) -> None:
    """Parameters and constants of all shapes that ops take, and tensors whose border holds a number."""
    vocabulary = model.vocabulary
    counts: dict[tuple[Any, str], int] = {(vocabulary.shape, "float32"): 3, (vocabulary.wide, "float32"): 2}
    for signature in vocabulary.signatures.values():
        for ty in signature.operands:
            assert ty is not None
            counts[ty.shape, ty.dtype] = max(2, counts.get((ty.shape, ty.dtype), 0))
    elements = model.elements
    for (shape, dtype), count in counts.items():
        for _ in range(count):
            model.leaf(elements.tensor(shape, dtype))
        if np.dtype(dtype).kind in "iu":
            model.leaf(elements.indices(shape, dtype))
    for shape in (vocabulary.shape, vocabulary.wide):
        for array in plain_arrays(shape, "float32"):
            model.leaf(array)
    _constants(model)
    for part in vocabulary.parts:
        if isinstance(part, Border) and part.fill is not None and model.rng.random() < 0.5:
            inside = elements.tensor(tuple(int(e) for e in part.shape))
            model.leaf(part.apply_to_each(inside))


def _constants(model: RuleModel) -> None:
    for name, array in model.lexicon.constants.items():
        model.values.constants[name] = model.values.intern(np.stack([array] * WORLDS), ("Const", name))


def _terms(model: RuleModel) -> None:
    """Random ops on random tensors."""
    names = [*model.values.parts, *model.vocabulary.signatures]
    tuples = [k for k, s in model.vocabulary.signatures.items() if s.is_tuple]
    constants = [number for number in model.values.constants.values()]
    for name, part in model.values.parts.items():
        fitting = [c for c in constants if model.is_of(c, taken_shape(part))]
        for c in fitting[:1]:
            model.apply(name, (c,))
        inverse = part.inverse() if isinstance(part, IndexMap) else None
        made = [c for c in constants if model.is_of(c, part.result_shape)]
        if inverse is not None and made and model.rng.random() < 0.3:  # a constant that is a view of something
            array = inverse.apply_to_each(model.values.array(made[0]))
            model.apply(name, (model.leaf(array),))
    for key, signature in model.vocabulary.signatures.items():
        if len(signature.operands) == 1 and not signature.is_tuple and model.rng.random() < 0.3:
            (ty,) = signature.operands
            for c in [c for c in constants if ty is not None and model.is_of(c, ty.shape, ty.dtype)][:1]:
                model.try_apply(key, (c,))
    for k, _, r in model.lexicon.rows.get("fold", ()):
        if model.is_of(model.values.constants[r], taken_shape(model.values.parts[k])):
            model.apply(k, (model.values.constants[r],))
    _borders(model)
    for name in [*tuples, *tuples, *model.rng.choices(names, k=TERMS)]:
        operands = model.operands_for(name)
        if operands is not None:
            model.try_apply(name, operands)


def _borders(model: RuleModel) -> None:
    """Pads, all crops of what they give, pads of these again, and ops on what has a border."""
    values, rng = model.values, model.rng
    shape, wide_shape = model.vocabulary.shape, model.vocabulary.wide
    around = {k: p for k, p in values.parts.items() if isinstance(p, Border) and p.shape == shape}
    borders = [k for k, p in around.items() if p.wide_shape == wide_shape]
    pads, crops = ([k for k in borders if values.is_named(k, kind)] for kind in ("pad", "crop"))
    unary = [k for k, s in model.vocabulary.signatures.items() if len(s.operands) == 1 and not s.is_tuple]
    for pad in rng.sample(pads, min(3, len(pads))):
        x = model.of_shape(shape, "float32")
        assert x is not None
        wide = model.apply(pad, (x,))
        for crop in crops:
            model.apply(rng.choice(pads), (model.apply(crop, (wide,)),))
        for name in unary:
            if model.takes(name) == [(wide_shape, "float32")]:
                model.try_apply(name, (wide,))
