"""The e-graph after all rules ran on a model, held against the model.

In: the model and the tables of the e-graph. Out: the e-classes that hold two values, and the rows that are not true.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from eqsat_layout.egraph.expressions import show
from eqsat_layout.egraph.tables import Tables
from eqsat_layout.soundness.rules.ill_typed import IllTypedError
from eqsat_layout.soundness.rules.model import RuleModel
from eqsat_layout.soundness.rules.rule_base import RuleBase

SORTS = ("Tensor", "Args", "String", "i64")
MOST_ROWS = 500
MOST_TERMS = 10_000
ENOUGH = 3
"""False merges that are looked for in one model."""


class MergedClasses:
    """The e-graph after all rules ran on a model: every e-class has one value, and every row is true."""

    def __init__(self, model: RuleModel, base: RuleBase, tables: Tables, lists: Sequence[tuple[int, ...]]):
        self._model, self._base, self._tables = model, base, tables
        self._tensors: dict[Any, int] = {}
        self._lists: dict[Any, tuple[int, ...]] = {}
        self.wrong: list[str] = []
        for number, handle in tables.rows("FuzzTensor"):
            self._join(self._tensors, handle, number, f"tensor {number}")
        for number, handle in tables.rows("FuzzArgs"):
            self._join(self._lists, handle, lists[number], f"list {number}")

    def check(self) -> tuple[int, list[str]]:
        """How many e-classes have a value, and what is wrong."""
        self._evaluate()
        rows = 0
        for relation, columns in self._base.relations.items():
            meaning = self._base.meanings.get(relation)
            if meaning is None or not set(columns) <= set(SORTS) or relation.startswith("row-"):
                continue
            if not {"Tensor", "Args"} & set(columns) or "some" in show(meaning.formula):
                continue  # what the host says of names, and what takes long to look for
            for row in self._tables.rows(relation)[:MOST_ROWS]:
                cells = [self._cell(cell, sort) for cell, sort in zip(row, columns, strict=True)]
                rows += 1
                if None not in cells and not self._model.evaluator.means(relation, cells):
                    self.wrong.append(f"({relation} {' '.join(map(str, cells))}) is not true")
        return len(self._tensors) + rows, self.wrong

    def _evaluate(self) -> None:
        """Values of the terms that rules made, from their operands up; a term that has two is a false merge."""
        values = self._model.values
        size = -1
        while size < len(self._tensors) + len(self._lists):
            size = len(self._tensors) + len(self._lists)
            for x, rest, handle in self._tables.rows("Arg"):
                if x in self._tensors and rest in self._lists:
                    self._join(self._lists, handle, (self._tensors[x], *self._lists[rest]), "an operand list")
            for key, operands, handle in self._tables.rows("Op")[:MOST_TERMS]:
                if len(self.wrong) >= ENOUGH:
                    return
                if operands in self._lists:
                    self._term(handle, partial(values.op, key, self._lists[operands]), key)
            for index, y, handle in self._tables.rows("Get"):
                if y in self._tensors:
                    self._term(handle, partial(values.get, index, self._tensors[y]), f"Get {index}")
            for name, handle in self._tables.rows("Const"):
                self._term(handle, partial(values.constant, name), f"Const {name}")

    def _term(self, handle: Any, value: Callable[[], int], what: str) -> None:
        try:
            self._join(self._tensors, handle, value(), what)
        except IllTypedError as error:
            self.wrong.append(f"{what}: {error}")

    def _join(self, known: dict[Any, Any], handle: Any, value: Any, what: str) -> None:
        old = known.setdefault(handle, value)
        if old != value and not self._model.values.equal(old, value):
            made_by = self._model.values.made_by
            shown = (old, value) if isinstance(value, tuple) else (made_by.get(old), made_by.get(value))
            self.wrong.append(f"{what}: one e-class holds {shown[0]} and {shown[1]}, which differ")

    def _cell(self, cell: Any, sort: str) -> Any:
        return self._tensors.get(cell) if sort == "Tensor" else self._lists.get(cell) if sort == "Args" else cell
