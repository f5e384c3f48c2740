"""Random models (soundness room): tensors, and rows of relations that are true of them.

In: a lexicon, a seed, patterns of terms that rules look for. Out: :class:`Model`. In a model every row is true by the
relation's meaning and equal tensors are one e-class; a rule is sound if whatever it concludes in models is true too.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from eqsat_layout.graph.borders import Border
from eqsat_layout.soundness.lexicon import Lexicon
from eqsat_layout.soundness.rule_text import Expr, RuleBase, is_variable, substitute
from eqsat_layout.soundness.values import Array, Evaluator, IllTypedError, Values, taken_shape
from eqsat_layout.soundness.vocabulary import Vocabulary

WORLDS = 3
TERMS = 40
Row = tuple[Any, ...]


@dataclass
class Model:
    """``ops``: the rows of op terms; ``facts``: rows by relation, tensors as numbers, operand lists as tuples."""

    lexicon: Lexicon
    base: RuleBase
    values: Values
    evaluator: Evaluator
    rng: random.Random
    ops: dict[tuple[str, tuple[int, ...]], int] = field(default_factory=dict)
    gets: dict[tuple[int, int], int] = field(default_factory=dict)
    facts: dict[str, dict[Row, None]] = field(default_factory=dict)
    truths: dict[Row, bool] = field(default_factory=dict)

    def add(self, relation: str, *row: Any) -> None:
        """Notes a row that is true."""
        self.facts.setdefault(relation, {})[row] = None

    @property
    def vocabulary(self) -> Vocabulary:
        """The ops, views and formats in it."""
        return self.lexicon.vocabulary

    def cannot_answer(self, relation: str, row: Sequence[Any]) -> str:
        """What the host raises when asked; empty if it answers, with rows or without."""
        answer = getattr(self.lexicon.answers, "answer_" + relation.removeprefix("ask-").replace("-", "_"), None)
        if answer is None:
            return "nobody answers this"
        try:
            list(answer(*row))
        except Exception as error:  # whatever a question leads to, the rule that asks it is at fault
            return f"the host can't answer: {type(error).__name__}: {error}"
        return ""

    def rows(self, relation: str) -> list[Row]:
        """The rows of a relation."""
        return list(self.facts.get(relation, ()))


def make_model(lexicon: Lexicon, base: RuleBase, seed: int) -> Model:
    """A model of ``base`` over the lexicon."""
    rng = random.Random(f"{lexicon.vocabulary.shape} {seed}")
    values = Values(lexicon.names, lexicon.vocabulary.signatures, lexicon.parts, lexicon.kernels.run)
    model = Model(lexicon, base, values, Evaluator(values, base), rng)
    _leaves(model, np.random.default_rng(seed))
    _patterns(model)
    _terms(model)
    for relation, rows in lexicon.rows.items():
        model.facts[relation] = dict.fromkeys(rows)
    _graphs(model)
    _local(model)
    return model


# ---- tensors --------------------------------------------------------------------------------------------------------


def _leaves(model: Model, rng: np.random.Generator) -> None:
    """Parameters and constants of all shapes that ops take, and tensors whose border holds a number."""
    values, vocabulary = model.values, model.vocabulary
    shapes = {vocabulary.shape: 3, vocabulary.wide: 2}
    for signature in vocabulary.signatures.values():
        for ty in signature.operands:
            shapes.setdefault(ty.shape, 1)  # type: ignore[union-attr, arg-type]
    for shape, count in shapes.items():
        for _ in range(count):
            _leaf(model, _random_array(rng, shape))
    for name, array in model.lexicon.constants.items():
        values.constants[name] = values.intern(np.stack([array] * WORLDS), ("Const", name))
    for part in vocabulary.parts:
        if isinstance(part, Border) and part.fill is not None and model.rng.random() < 0.5:
            inside = _random_array(rng, tuple(int(e) for e in part.shape))
            _leaf(model, np.stack([part.apply(a) for a in inside]))


def _leaf(model: Model, array: Array) -> None:
    name = f"p{len(model.values.params)}"
    model.values.params[name] = model.values.intern(array, ("Param", name))


def _random_array(rng: np.random.Generator, shape: Sequence[Any]) -> Array:
    """Quarters between -2 and 2: sums and products of them are exact."""
    return rng.integers(-8, 9, (WORLDS, *shape)).astype(np.float32) / 4


def _patterns(model: Model) -> None:
    """Terms that look like those that rules look for, so that rules for special ops find something."""
    for rule in model.base.rules:
        for _ in range(2):
            _Pattern(model, rule.body).build()


def _terms(model: Model) -> None:
    """Random ops on random tensors."""
    names = [*model.values.parts, *model.vocabulary.signatures]
    tuples = [k for k, s in model.vocabulary.signatures.items() if s.is_tuple]
    constants = [number for number in model.values.constants.values()]
    for name in model.values.parts:
        fitting = [c for c in constants if _is_of(model, c, taken_shape(model.values.parts[name]))]
        for c in fitting[:1]:
            _apply(model, name, (c,))
    for name in [*tuples, *model.rng.choices(names, k=TERMS)]:
        operands = _operands_for(model, name)
        if operands is not None:
            _apply(model, name, operands)


def _operands_for(model: Model, name: str) -> tuple[int, ...] | None:
    part = model.values.parts.get(name)
    if part is not None:
        wanted: list[Any] = [taken_shape(part)]
    else:
        wanted = [t.shape for t in model.vocabulary.signatures[name].operands if t is not None]
    picked = [_of_shape(model, shape) for shape in wanted]
    return None if any(p is None for p in picked) else tuple(p for p in picked if p is not None)


def _of_shape(model: Model, shape: Any) -> int | None:
    tensors = model.values.tensors
    fitting = [i for i, t in enumerate(tensors) if not isinstance(t, tuple) and t.shape[1:] == shape]
    return model.rng.choice(fitting) if fitting else None


def _apply(model: Model, name: str, operands: tuple[int, ...]) -> int:
    number = model.values.op(name, operands)
    model.ops[name, operands] = number
    fields = model.values.tensors[number]
    if isinstance(fields, tuple):
        for i, part in enumerate(fields):
            model.gets[i, number] = part
    return number


@dataclass
class _Pattern:
    """The terms of a rule's body, built from the leaves up over random tensors."""

    model: Model
    body: Sequence[Expr]
    scope: dict[str, Any] = field(default_factory=dict)

    def build(self) -> None:
        """Adds the terms to the model, as far as names and types allow."""
        said = [formula for fact in self.body for formula in self._said(fact)]
        named = [formula for formula in said if formula[0] == "named"]
        for _, key, text in named:
            if is_variable(key) and str(text).startswith('"'):
                options = [k for k in self._all_names() if self.model.values.is_named(k, str(text)[1:-1])]
                if not options:
                    return
                self.scope[str(key)] = self.model.rng.choice(options)
        equations = [f for f in said if f[0] == "=" and isinstance(f[1], str) and isinstance(f[2], tuple)]
        waiting = list(equations)
        for _ in equations:
            for fact in list(waiting):
                inner = [g[1] for g in waiting if g is not fact]
                if not any(v in inner for v in _tensor_variables(fact[2])):
                    waiting.remove(fact)
                    try:
                        self.scope[str(fact[1])] = self._value(fact[2])
                    except (IllTypedError, LookupError):
                        return

    def _said(self, fact: Expr) -> Iterator[tuple[Expr, ...]]:
        """What a fact says, by its meaning, as far as that is a conjunction."""
        if isinstance(fact, str):
            return
        head, *columns = fact
        meaning = self.model.base.meanings.get(str(head))
        if meaning is not None:
            yield from self._said(substitute(meaning.formula, dict(zip(meaning.columns, columns, strict=False))))
        elif head == "and":
            for part in columns:
                yield from self._said(part)
        elif head in ("=", "named"):
            yield fact

    def _all_names(self) -> list[str]:
        return [*self.model.values.parts, *self.model.vocabulary.signatures]

    def _value(self, term: Expr) -> Any:
        model = self.model
        if isinstance(term, str):
            return self.model.evaluator.term(term, self.scope)
        head, *parts = term
        if head == "at":
            return self._value(("Op", parts[0], ("Arg", parts[1], ("End",))))
        if head == "Const" and is_variable(parts[0]):
            self.scope.setdefault(str(parts[0]), model.rng.choice(list(model.values.constants)))
        if head != "Op":
            return model.evaluator.term(term, self.scope)
        key = self.scope.get(str(parts[0])) or self.scope.setdefault(str(parts[0]), model.rng.choice(self._all_names()))
        operands = _operands_for(model, key) or ()
        chosen: list[int] = []
        rest: Expr = parts[1]
        for operand in operands:
            if isinstance(rest, str) or rest[0] != "Arg":
                break
            x = rest[1]
            if isinstance(x, str) and x not in self.scope:
                self.scope[x] = operand
            chosen.append(self._value(x))
            rest = rest[2]
        if isinstance(rest, str):
            self.scope.setdefault(rest, tuple(operands[len(chosen) :]))
            chosen += self.scope[rest]
        return _apply(model, key, tuple(chosen))


def _tensor_variables(term: Expr) -> Iterator[str]:
    if isinstance(term, tuple):
        for part in term[1:]:
            yield from [part] if isinstance(part, str) else _tensor_variables(part)


# ---- rows -----------------------------------------------------------------------------------------------------------


def _graphs(model: Model) -> None:
    """Graphs of ops, as those that replace an op: a random one over two operands, with a constant and a tuple in it."""
    rng, values = model.rng, model.values
    base = [i for i in range(len(values.tensors)) if _is_of(model, i, model.vocabulary.shape)]
    one, two, pair = (_ops_of(model, count, results) for count, results in ((1, 1), (2, 1), (1, 2)))
    for n in range(2):
        name, operands = f"graph{n}", (rng.choice(base), rng.choice(base))
        rows: dict[tuple[str, int], tuple[Any, ...]] = {
            ("node", 0): ("param", rng.randrange(2)),
            ("node", 1): ("const", rng.choice(model.lexicon.base_constants)),
            ("nodes", 0): ("end",),
            ("nodes", 1): ("arg", 1, 0),
            ("nodes", 2): ("arg", 0, 1),
            ("node", 2): ("op", rng.choice(two), 2),
            ("nodes", 3): ("arg", 2, 0),
            ("node", 3): ("op", rng.choice(one), 3),
            ("result", 0): (3,),
        }
        if pair:
            rows |= {("node", 4): ("op", rng.choice(pair), 3), ("node", 5): ("get", 0, 4), ("result", 0): (5,)}
        values.graphs[name] = rows
        for (kind, number), (what, *rest) in rows.items():
            relation = "alt-result" if kind == "result" else f"alt-{what}"
            model.add(relation, name, *((what,) if kind == "result" else (number, *rest)))
        model.add("replaces", operands, name, values.graph(name, operands))
        _graph_rows(model, name, operands)
    for k, name in [row for row in model.rows("alternative") if row[1] not in values.graphs]:
        values.graphs[name] = model.lexicon.graphs[name]
        for (key, a), y in list(model.ops.items()):
            if key == k:
                model.add("replaces", a, name, y)
                _graph_rows(model, name, a)


def _graph_rows(model: Model, name: str, operands: tuple[int, ...]) -> None:
    for kind, number in model.values.graphs[name]:
        if kind != "result":
            relation = "term" if kind == "node" else "terms"
            model.add(relation, operands, name, number, model.values.node(name, kind, number, operands))


def _is_of(model: Model, number: int, shape: tuple[int, ...]) -> bool:
    value = model.values.tensors[number]
    return not isinstance(value, tuple) and value.shape[1:] == shape


def _ops_of(model: Model, operands: int, results: int) -> list[str]:
    """Ops that take tensors of the base shape only; of one result, one of that shape too."""
    shape = model.vocabulary.shape
    found = []
    for key, s in model.vocabulary.signatures.items():
        takes = [t.shape for t in s.operands if t is not None]
        makes = [t.shape for t in s.results if t is not None]
        if takes == [shape] * operands and len(makes) == results and (results > 1 or makes == [shape]):
            found.append(key)
    return found


def _local(model: Model) -> None:
    """Rows about tensors: all that follow from terms and answers, by the meanings."""
    values, rng = model.values, model.rng
    by_op = lambda relation: _grouped(model.rows(relation))  # noqa: E731
    back, view, pad_view, peek = by_op("back"), by_op("view"), by_op("pad-view"), by_op("peek")
    for (k, a), y in list(model.ops.items()):
        for i, x in enumerate(a):
            model.add("item", a, i, x)
            model.add("use", x, i, k, y)
        for i in range(len(a) + 1):
            model.add("rest", a, i, a[i:])
        for relation, kind in (("alias", "view"), ("padded", "pad"), ("cropped", "crop")):
            if values.is_named(k, kind):
                model.add(relation, y, k, a[0])
        for _, f, v, gs in back.get(k, ()):
            model.add("run", y, f, v, a)
            model.add("want", y, f)
            model.add("want-all", a, gs)
            model.add("want-all", a[1:], " ".join(gs.split(" ")[1:]))
        for _, f, g in (*view.get(k, ()), *pad_view.get(k, ())):
            model.add("same", y, f, a[0], g)
        for _, g, f in peek.get(k, ()):
            model.add("inside", y, f, a[0], g)
    for number in range(len(values.tensors)):
        formats = _formats_of(model, number)
        for f in rng.sample(formats, min(3, len(formats))):
            model.add("want", number, f)
        if rng.random() < 0.8:
            model.add("live", number)
    for (i, y), z in model.gets.items():
        for fs in _formats_of(model, y):
            model.add("part", z, values.formats(fs)[i], i, y, fs)
            model.add("want", y, fs)
    for k in [k for k in values.parts if values.is_named(k, "pad")]:
        wide = taken_shape(replace(values.parts[k], fill=None))  # type: ignore[type-var]
        for x in range(len(values.tensors)):
            if _is_of(model, x, wide) and model.evaluator.means("rim", (x, k)):
                model.add("rim", x, k)
    known = {number: name for name, number in values.constants.items()}
    model.add("constants", (), "")
    for _, a in model.ops:
        for i in range(len(a)):
            if all(x in known for x in a[i:]):
                model.add("constants", a[i:], "".join(f"{known[x]}," for x in a[i:]))
    for name, number in values.params.items():
        for f in _formats_of(model, number)[:1]:
            model.add("given", number, f)
            model.add("row-param", number, name, f)
    _program_rows(model)


def _program_rows(model: Model) -> None:
    """Rows of programs: tensors and operand lists by their numbers."""
    values = model.values
    values.lists = list(dict.fromkeys(a[i:] for _, a in model.ops for i in range(len(a) + 1)))
    number = {a: n for n, a in enumerate(values.lists)}
    for n, a in enumerate(values.lists):
        model.add("row-list", n)
        if a:
            model.add("row-arg", n, a[0], number[a[1:]])
        else:
            model.add("row-end", n)
    for i in range(len(values.tensors)):
        model.add("row-ref", i)
    for (k, a), y in model.ops.items():
        model.add("row-op", y, k, number[a])
    for (i, y), z in model.gets.items():
        model.add("row-get", z, i, y)
    for name, y in values.constants.items():
        model.add("row-const", y, name)
    for y, f in model.rows("want"):
        model.add("row-goal", y, f)


def _grouped(rows: Iterable[Row]) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return found


def _formats_of(model: Model, number: int) -> list[str]:
    value = model.values.tensors[number]
    if isinstance(value, tuple):
        return [name for name in model.values.names.lists if model.values.fits(name, number)]
    return [f.key for f in model.vocabulary.formats.get(value.shape[1:], ())]


__all__ = ["Model", "make_model"]
