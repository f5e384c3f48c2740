"""What rules ask next, once they see an answer: to answer it at once saves rounds of the e-graph, each of which takes
longer than the few questions of a chain's next op.

In: the ops of an e-graph whose values are joined no more, questions of formats with their answers. Out: questions that
follow. The rules alone say what holds: who foresees too little is asked in the next round, who foresees too much has
answered what nobody asks. Ops with several results, pads and crops are left to the rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any

from eqsat_layout.egraph.names import Names
from eqsat_layout.egraph.part_answers import AnswerRow
from eqsat_layout.egraph.tables import Row, Tables

Question = tuple[str, Row]
"""A table that starts with ``ask-``, and a row of it."""


class Foresight:
    """The ops and values that ``tables`` have. ``names``: those of lists of formats."""

    def __init__(self, tables: Tables, names: Names) -> None:
        self._names = names
        self._views: Set[str] = {name for name, kind in tables.rows("is") if kind == "view"}
        self._results: dict[str, dict[Any, None]] = {}
        self._operands: dict[str, dict[tuple[int, Any], None]] = {}
        self._readers: dict[Any, dict[tuple[str, int], None]] = {}
        self._makers: dict[Any, dict[str, None]] = {}
        live = {value for (value,) in tables.rows("live")}
        for value, operand, key, result in tables.rows("use"):
            self._results.setdefault(key, {})[result] = None
            self._makers.setdefault(result, {})[key] = None
            self._readers.setdefault(value, {})[key, operand] = None
            if value in live:
                self._operands.setdefault(key, {})[operand, value] = None
        self._wanted: set[tuple[Any, str]] = set()

    def after(self, question: Question, answer: Sequence[AnswerRow]) -> Iterator[Question]:
        """What is asked of the values that the answer makes rules want."""
        table = question[0]
        for relation, row in answer:
            if relation == "fwd":
                yield from self._results_in(row[0], row[3])
            elif relation == "back":
                yield from self._operands_in(row[0], self._names.lists.get(row[3], ()))
            elif relation == "view" and table == "ask-viewed":
                yield from self._results_in(row[0], row[1])
            elif relation == "view" and table == "ask-view":
                yield from self._operands_in(row[0], (row[2],))

    def _results_in(self, key: str, fmt: str) -> Iterator[Question]:
        for value in self._results.get(key, ()):
            yield from self._of_value(value, fmt)

    def _operands_in(self, key: str, formats: Sequence[str]) -> Iterator[Question]:
        for operand, value in self._operands.get(key, ()):
            if operand < len(formats):
                yield from self._of_value(value, formats[operand])

    def _of_value(self, value: Any, fmt: str) -> Iterator[Question]:
        if (value, fmt) in self._wanted:
            return
        self._wanted.add((value, fmt))
        for key in self._makers.get(value, ()):
            yield ("ask-view", (key, fmt)) if key in self._views else ("ask-back", (key, fmt))
        for key, operand in self._readers.get(value, ()):
            yield ("ask-viewed", (key, fmt)) if key in self._views else ("ask-fwd", (key, operand, fmt))


__all__ = ["Foresight", "Question"]
