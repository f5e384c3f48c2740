"""Models: tensors, and rows of relations that are true of them.

In a model every row is true by the relation's meaning and equal tensors are one e-class; a rule is sound if whatever it
concludes in models is true too. ``random_model.py`` makes them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat_layout.soundness.rules.bits import WORLDS, RandomElements
from eqsat_layout.soundness.rules.ill_typed import IllTypedError
from eqsat_layout.soundness.rules.lexicon import Lexicon
from eqsat_layout.soundness.rules.rule_base import RuleBase
from eqsat_layout.soundness.rules.stored import Array
from eqsat_layout.soundness.rules.terms import TermEvaluator
from eqsat_layout.soundness.rules.values import Values, taken_shape
from eqsat_layout.soundness.rules.vocabulary import Vocabulary

Row = tuple[Any, ...]

_INDICES = 0.5
"""How often a tensor of integers holds indices."""


@dataclass
class RuleModel:
    """``ops``: the rows of op terms, ``makes`` of ops that are asked for; ``facts``: rows by relation; ``bodies``: the
    tensors of bodies with constants that no term has.

    Tensors are numbers, operand lists tuples.
    """

    lexicon: Lexicon
    base: RuleBase
    values: Values
    evaluator: TermEvaluator
    rng: random.Random
    elements: RandomElements
    ops: dict[tuple[str, tuple[int, ...]], int] = field(default_factory=dict)
    gets: dict[tuple[int, int], int] = field(default_factory=dict)
    makes: dict[tuple[str, str, tuple[int, ...]], int] = field(default_factory=dict)
    facts: dict[str, dict[Row, None]] = field(default_factory=dict)
    truths: dict[Row, bool] = field(default_factory=dict)
    bodies: list[tuple[int, ...]] = field(default_factory=list)

    def add(self, relation: str, *row: Any) -> None:
        """Notes a row that is true."""
        self.facts.setdefault(relation, {})[row] = None

    @property
    def vocabulary(self) -> Vocabulary:
        """The ops, views and formats in it."""
        return self.lexicon.vocabulary

    def cannot_answer(self, relation: str, row: Sequence[Any]) -> str:
        """What the host raises when asked; empty if it answers, with rows or without."""
        answer = self.lexicon.answers.answerer(relation)
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

    def is_of(self, number: int, shape: tuple[Any, ...], dtype: str = "") -> bool:
        """Whether a tensor is of a shape, and of a dtype."""
        value = self.values.tensors[number]
        return not isinstance(value, tuple) and value.shape[1:] == shape and dtype in ("", str(value.dtype))

    def of_shape(self, shape: tuple[Any, ...], dtype: str = "") -> int | None:
        """Some tensor of a shape, and of a dtype."""
        fitting = self.values.of_type(shape, dtype) if dtype else self.values.of_shape(shape)
        return self.rng.choice(fitting) if fitting else None

    def takes(self, name: str) -> list[tuple[tuple[Any, ...], str]] | None:
        """The shapes and dtypes of an op's operands; a view, pad or crop takes any dtype, which is empty then."""
        part = self.values.parts.get(name)
        if part is not None:
            return [(taken_shape(part), "")]
        signature = self.vocabulary.signatures.get(name)
        return None if signature is None else [(t.shape, t.dtype) for t in signature.operands if t is not None]

    def operands_for(self, name: str) -> tuple[int, ...] | None:
        """Some operands that an op takes, if there are any."""
        wanted = self.takes(name)
        if wanted is None:
            return None
        picked = [self.of_shape(shape, dtype) for shape, dtype in wanted]
        return None if any(p is None for p in picked) else tuple(p for p in picked if p is not None)

    def apply(self, name: str, operands: tuple[int, ...]) -> int:
        """Adds the term of an op on operands; :class:`IllTypedError` if it does not take them."""
        number = self.values.op(name, operands)
        self.ops[name, operands] = number
        fields = self.values.tensors[number]
        if isinstance(fields, tuple):
            for i, part in enumerate(fields):
                self.gets[i, number] = part
        return number

    def try_apply(self, name: str, operands: tuple[int, ...]) -> int | None:
        """The same, or None where the op has no value there: an index out of bounds, a fill that is no such number."""
        try:
            return self.apply(name, operands)
        except IllTypedError:
            return None

    def leaf(self, array: Array) -> int:
        """Adds a parameter."""
        name = f"p{len(self.values.params)}"
        number = self.values.params[name] = self.values.intern(array, ("Param", name))
        return number

    def draw_leaf(self, shape: tuple[Any, ...], dtype: str) -> int:
        """Adds a parameter of random elements."""
        return self.leaf(self._drawn(shape, dtype))

    def draw_constant(self, shape: tuple[Any, ...], dtype: str) -> str:
        """Adds a constant of random elements, the same in all worlds."""
        array = self._drawn(shape, dtype)[0]
        name = self.lexicon.add_constant(array)
        self.values.constants[name] = self.values.intern(np.stack([array] * WORLDS), ("Const", name))
        return name

    def _drawn(self, shape: tuple[Any, ...], dtype: str) -> Array:
        """Random elements; of integers, half of them are indices."""
        are_indices = np.dtype(dtype).kind in "iu" and self.rng.random() < _INDICES
        return self.elements.indices(shape, dtype) if are_indices else self.elements.tensor(shape, dtype)

    def formats_of(self, number: int) -> list[str]:
        """The formats that a tensor has, or the lists of formats that a tuple has."""
        value = self.values.tensors[number]
        if isinstance(value, tuple):
            return [name for name in self.values.names.lists if self.values.fits(name, number)]
        return [f.key for f in self.vocabulary.formats.get(value.shape[1:], ())]
