"""Words of random models: a vocabulary with its names, and what the host answers about them.

In: a vocabulary. Out: :class:`Lexicon`, shared by many models: rows about names only, all that rules could ask of the
host and more. :meth:`Lexicon.crashes` are questions that the host could not answer.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from eqsat_layout.egraph.answers import Answers
from eqsat_layout.egraph.names import Names
from eqsat_layout.graph.borders import Border, Part
from eqsat_layout.graph.constants import Applied, Constant
from eqsat_layout.implementations.offers import Offers
from eqsat_layout.maps import IndexMap
from eqsat_layout.soundness.oracle.tir_interpreter import Interpreter
from eqsat_layout.soundness.rules.terms import run_op, taken_shape
from eqsat_layout.soundness.rules.vocabulary import Vocabulary

QUESTIONS = 120
"""Questions of a kind; which, is drawn."""

Row = tuple[Any, ...]
Array = npt.NDArray[Any]


@dataclass
class Lexicon:
    """``constants``: elements by name. ``graphs``: terms of graphs that replace ops, by number."""

    vocabulary: Vocabulary
    names: Names
    answers: Answers
    parts: dict[str, Part]
    interpreters: dict[str, Interpreter] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    base_constants: list[str] = field(default_factory=list)
    graphs: dict[str, dict[tuple[str, int], tuple[Any, ...]]] = field(default_factory=dict)
    rows: dict[str, dict[Row, None]] = field(default_factory=dict)
    crashes: list[str] = field(default_factory=list)

    def add(self, relation: str, *row: Any) -> None:
        """Notes a row."""
        self.rows.setdefault(relation, {})[row] = None


def make_lexicon(vocabulary: Vocabulary, seed: int) -> Lexicon:
    """The lexicon of a vocabulary: asks the host."""
    names = Names()
    answers = Answers(vocabulary.signatures, names, offers=Offers())
    parts = {answers.part_name(part): part for part in vocabulary.parts}
    lexicon = Lexicon(vocabulary, names, answers, parts)
    rng = random.Random(f"{vocabulary.shape} {seed}")
    _add_constants(lexicon, np.random.default_rng(seed))
    for relation, row in answers.facts():
        lexicon.add(relation, *row)
    for part in vocabulary.parts:
        for relation, row in answers.part_facts(part):
            lexicon.add(relation, *row)
    _ask_all(lexicon, rng)
    _add_graphs(lexicon, rng)
    return lexicon


def _add_constants(lexicon: Lexicon, rng: np.random.Generator) -> None:
    for number, shape in enumerate((lexicon.vocabulary.shape, lexicon.vocabulary.wide)):
        array = rng.integers(-8, 9, shape).astype(np.float32) / 4
        name = lexicon.names.constant(Constant(f"c{number}", relax.const(array)))
        lexicon.constants[name] = array
        lexicon.base_constants += [name] if not number else []


def _ask_all(lexicon: Lexicon, rng: random.Random) -> None:
    names, parts, vocabulary = lexicon.names, lexicon.parts, lexicon.vocabulary
    ops = vocabulary.signatures
    views = [k for k, part in parts.items() if isinstance(part, IndexMap)]
    pads = [k for k, part in parts.items() if isinstance(part, Border) and part.fill is not None]
    crops = [k for k, part in parts.items() if isinstance(part, Border) and part.fill is None]
    for formats in vocabulary.formats.values():
        for fmt in formats:
            names.format(fmt)

    def of(shape: Any) -> list[str]:
        return [fmt.key for fmt in vocabulary.formats.get(tuple(shape), ())]

    def made(name: str) -> list[str]:
        return of(parts[name].result_shape)

    def taken(name: str) -> list[str]:
        return of(taken_shape(parts[name]))

    operands = [(k, i, t) for k, s in ops.items() for i, t in enumerate(s.operands) if t is not None]
    results = [(k, i, t) for k, s in ops.items() for i, t in enumerate(s.results) if t is not None]
    shapes = {name: array.shape for name, array in lexicon.constants.items()}
    asked: dict[str, list[Row]] = {
        "ask-compose": [(k, j) for k in views for j in views if taken_shape(parts[k]) == parts[j].result_shape],
        "ask-fold": [(k, c) for k in parts for c in shapes if taken_shape(parts[k]) == shapes[c]],
        "ask-fold-op": [(k, f"{c},") for k, _, t in operands for c in shapes if _takes_only(ops[k], t, shapes[c])],
        "ask-cancel": [(c, k) for c in crops for k in pads],
        "ask-rim": [(k, i, p) for k, i, t in operands for p in pads if t.shape == parts[p].result_shape],
        "ask-view": [(k, f) for k in views for f in made(k)],
        "ask-viewed": [(k, f) for k in views for f in taken(k)],
        "ask-pad-view": [(k, f) for k in pads for f in made(k)],
        "ask-pad-viewed": [(k, f) for k in pads for f in taken(k)],
        "ask-peek": [(k, f) for k in crops for f in taken(k)],
        "ask-peeked": [(k, f) for k in crops for f in made(k)],
        "ask-impls": [(k,) for k in ops],
        "ask-back": [(k, f) for k, _, t in results if not ops[k].is_tuple for f in of(t.shape)],
        "ask-results": [(k, i, f) for k, i, t in results if ops[k].is_tuple for f in of(t.shape)],
        "ask-fwd": [(k, i, f) for k, i, t in operands for f in of(t.shape)],
    }
    for table, questions in asked.items():
        for question in rng.sample(questions, min(QUESTIONS, len(questions))):
            _ask(lexicon, table, question)
    for signature in ops.values():
        if signature.is_tuple:
            _add_lists(lexicon, [t.shape for t in signature.results if t is not None], rng)
    for relation, row in names.take_new_rows():
        lexicon.add(relation, *row)


def _add_lists(lexicon: Lexicon, shapes: list[Any], rng: random.Random) -> None:
    """Lists of formats for the results of an op, and lists that are for none."""
    formats = lexicon.vocabulary.formats
    for kinds in (shapes, shapes, shapes[::-1], [*shapes[:-1], lexicon.vocabulary.wide]):
        lexicon.names.result([rng.choice(formats[shape]).key for shape in kinds])


def _ask(lexicon: Lexicon, table: str, question: Row) -> None:
    answer = lexicon.answers.answerer(table)
    assert answer is not None, table
    try:
        rows: Iterable[tuple[str, Row]] = list(answer(*question))
    except Exception as error:
        lexicon.crashes.append(f"{table} {question}: {type(error).__name__}: {error}")
        return
    for relation, row in rows:
        if relation in ("fold", "fold-op"):
            lexicon.constants.setdefault(row[2], _elements(lexicon, lexicon.names.constants[row[2]]))
        elif relation == "compose":
            lexicon.parts.setdefault(row[2], lexicon.answers.part(row[2]))
        elif relation == "rim-through":
            border = lexicon.parts.setdefault(row[3], lexicon.answers.part(row[3]))
            for kind, fact in lexicon.answers.part_facts(border):
                lexicon.add(kind, *fact)
        lexicon.add(relation, *row)


def _elements(lexicon: Lexicon, constant: Constant) -> Array:
    """What the host means by a constant, worked out anew."""
    if isinstance(constant.source, Applied):
        operands = [_elements(lexicon, operand)[None] for operand in constant.source.operands]
        (array,) = (result[0] for result in run_op(constant.source.signature, operands, lexicon.interpreters))
    else:
        array = constant.source.value.numpy()
    for view in constant.views:
        array = view.apply(array)
    return np.array(array)


def _takes_only(signature: Any, ty: Any, shape: tuple[int, ...]) -> bool:
    return len(signature.operands) == 1 and ty.shape == shape


def _add_graphs(lexicon: Lexicon, rng: random.Random) -> None:
    """Graphs that replace an op: one view after another for their composition."""
    composed = list(lexicon.rows.get("compose", ()))
    for n, (outer, inner, both) in enumerate(rng.sample(composed, min(3, len(composed)))):
        name = f"views{n}"
        lexicon.graphs[name] = {
            ("node", 0): ("param", 0),
            ("nodes", 0): ("end",),
            ("nodes", 1): ("arg", 0, 0),
            ("node", 1): ("op", inner, 1),
            ("nodes", 2): ("arg", 1, 0),
            ("node", 2): ("op", outer, 2),
            ("result", 0): (2,),
        }
        lexicon.add("alternative", both, name)
        for (kind, number), (what, *rest) in lexicon.graphs[name].items():
            if kind == "result":
                lexicon.add("alt-result", name, what)
            else:
                lexicon.add(f"alt-{what}", name, number, *rest)
