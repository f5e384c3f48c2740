"""Words of random models: a vocabulary with its names, and what the host answers about them.

In: a vocabulary. Out: :class:`Lexicon`, shared by many models: rows about names only. What is asked of the host is the
business of ``questions.py``. ``crashes`` are questions that it could not answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from eqsat_layout.egraph.making import Builder, Maker
from eqsat_layout.egraph.names import Names
from eqsat_layout.egraph.op_answers import OpAnswers
from eqsat_layout.graph.borders import Part
from eqsat_layout.graph.constants import Applied, Constant
from eqsat_layout.graph.graph import Signature
from eqsat_layout.implementations.offers import Offers
from eqsat_layout.soundness.rules.made_ops import MadeOps
from eqsat_layout.soundness.rules.memories import TWO_MEMORIES
from eqsat_layout.soundness.rules.runners import RunnableOp
from eqsat_layout.soundness.rules.values import run_op
from eqsat_layout.soundness.rules.vocabulary import Vocabulary

Row = tuple[Any, ...]
Array = npt.NDArray[Any]

Host = Callable[..., OpAnswers]
"""What answers: :class:`OpAnswers`, or a class of one's own with more answers, made of signatures, names and offers."""


@dataclass
class Lexicon:
    """``constants``: elements by name. ``graphs``: terms of graphs that replace ops, by number.

    ``answered``: the relations of the rows that the host gave; ``is_asked``: whether it was asked anything.
    """

    vocabulary: Vocabulary
    names: Names
    answers: OpAnswers
    parts: dict[str, Part]
    makes: MadeOps
    interpreters: dict[str, RunnableOp] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    base_constants: list[str] = field(default_factory=list)
    graphs: dict[str, dict[tuple[str, int], tuple[Any, ...]]] = field(default_factory=dict)
    rows: dict[str, dict[Row, None]] = field(default_factory=dict)
    answered: dict[str, None] = field(default_factory=dict)
    crashes: list[str] = field(default_factory=list)
    is_asked: bool = False

    def add(self, relation: str, *row: Any) -> None:
        """Notes a row."""
        self.rows.setdefault(relation, {})[row] = None

    def ask(self, table: str, question: Row) -> None:
        """Asks the host, and takes the rows of its answer, and the constants, views, pads and crops that it names."""
        answer = self.answers.answerer(table)
        assert answer is not None, table
        try:
            rows = list(answer(*question))
        except Exception as error:  # on purpose: whatever the host raises is what the fuzzer is looking for
            self.crashes.append(f"{table} {question}: {type(error).__name__}: {error}")
            return
        for relation, row in rows:
            if relation == "make":
                self.makes.graph_of(*question)
            if not relation.startswith("alt-"):  # a graph is checked as a whole
                self.answered[relation] = None
            self.add(relation, *row)
        self.take_names()

    def add_constant(self, array: Array) -> str:
        """The name of a constant of these elements."""
        name = self.names.constant(Constant(f"c{len(self.constants)}", relax.const(array, str(array.dtype))))
        self.constants[name] = array
        return name

    def take_names(self) -> None:
        """What the host has given names to since the last time."""
        for name in [name for name in self.names.constants if name not in self.constants]:
            self.constants[name] = _elements(self, self.names.constants[name])
        for name, part in self.answers.parts.items():
            if name not in self.parts:
                self.parts[name] = part
                for relation, row in self.answers.part_facts(part):
                    self.add(relation, *row)
        for relation, row in self.names.take_new_rows():
            self.add(relation, *row)


def bare_lexicon(
    vocabulary: Vocabulary, seed: int, host: Host = OpAnswers, builders: Mapping[str, Builder] | None = None
) -> Lexicon:
    """The lexicon of a vocabulary, nothing asked yet."""
    names = Names()
    maker = Maker(dict(vocabulary.signatures), {}, builders, most=None)
    answers = host(vocabulary.signatures, names, offers=Offers(placement=TWO_MEMORIES), maker=maker)
    parts = {answers.part_name(part): part for part in vocabulary.parts}
    interpreters = dict(vocabulary.interpreters)
    lexicon = Lexicon(vocabulary, names, answers, parts, MadeOps(answers, parts, interpreters), interpreters)
    _add_constants(lexicon, np.random.default_rng(seed))
    for relation, row in answers.facts():
        lexicon.add(relation, *row)
    for part in vocabulary.parts:
        for relation, row in answers.part_facts(part):
            lexicon.add(relation, *row)
    for formats in vocabulary.formats.values():
        for fmt in formats:
            names.format(fmt)
    return lexicon


def add_lists(lexicon: Lexicon, rng: random.Random) -> None:
    """Lists of formats for the results of ops, and lists that are for none."""
    formats = lexicon.vocabulary.formats
    for signature in lexicon.vocabulary.signatures.values():
        if not signature.is_tuple:
            continue
        shapes: list[Any] = [t.shape for t in signature.results if t is not None]
        for kinds in (shapes, shapes, shapes[::-1], [*shapes[:-1], lexicon.vocabulary.wide]):
            lexicon.names.result([rng.choice(formats[shape]).key for shape in kinds])
    lexicon.take_names()


def _add_constants(lexicon: Lexicon, rng: np.random.Generator) -> None:
    """Adds constants of random numbers, and constants that are 0 everywhere, on which much agrees."""
    shape, wide = lexicon.vocabulary.shape, lexicon.vocabulary.wide
    for number, (extents, bound) in enumerate(((shape, 8), (wide, 8), (shape, 0), (wide, 0))):
        array = rng.integers(-bound, bound + 1, extents).astype(np.float32) / 4
        name = lexicon.add_constant(array)
        lexicon.base_constants += [name] if not number else []


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


def add_graphs_to_lexicon(lexicon: Lexicon, rng: random.Random) -> None:
    """Graphs that replace an op: one view after another for their composition, and some ops for themselves."""
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
        _add_graph(lexicon, both, name)
    alike: dict[Any, list[Signature]] = {}
    for signature in lexicon.vocabulary.signatures.values():
        if not signature.is_tuple:
            alike.setdefault((signature.name, signature.operands), []).append(signature)
    several = [found for found in alike.values() if len(found) > 1]  # which differ in their attributes only
    for n, (signature, *_) in enumerate(rng.sample(several, min(3, len(several)))):
        count = len(signature.operands)
        graph: dict[tuple[str, int], tuple[Any, ...]] = {("node", i): ("param", i) for i in range(count)}
        graph["nodes", 0] = ("end",)
        graph |= {("nodes", i + 1): ("arg", count - 1 - i, i) for i in range(count)}
        graph["node", count] = ("op", signature.key, count)
        lexicon.graphs[f"itself{n}"] = {**graph, ("result", 0): (count,)}
        _add_graph(lexicon, signature.key, f"itself{n}")


def _add_graph(lexicon: Lexicon, key: str, name: str) -> None:
    """The rows of a graph that op ``key`` is equal to."""
    lexicon.add("alternative", key, name)
    for (kind, number), (what, *rest) in lexicon.graphs[name].items():
        if kind == "result":
            lexicon.add("alt-result", name, what)
        else:
            lexicon.add(f"alt-{what}", name, number, *rest)
