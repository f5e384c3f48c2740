"""What rules ask next, once they see an answer: to answer it at once saves rounds of the e-graph, each of which takes
longer than the few questions of a chain's next op.

In: the ops of an e-graph whose values are joined no more, the formats that rules want of them, questions with their
answers. Out: questions that follow, as ``flow.egg`` and ``views.egg`` ask them of ops with one result and of views. The
rules alone say what holds: what is not foreseen here is asked in the next round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from eqsat_layout.egraph.names import Names
from eqsat_layout.egraph.operands import OperandLists
from eqsat_layout.egraph.part_answers import AnswerRow
from eqsat_layout.egraph.tables import Row, Tables

Question = tuple[str, Row]
"""A table that starts with ``ask-``, and a row of it."""


class Foresight:
    """The ops and values that ``tables`` have. ``names``: those of lists of formats."""

    def __init__(self, tables: Tables, names: Names) -> None:
        self._names = names
        self._asks: defaultdict[Any, list[tuple[str, Row, Sequence[Any]]]] = defaultdict(list)
        """What is asked of a value in a format: a table, the row but for the format, which values the answer is for."""
        self._answers: defaultdict[Question, dict[Sequence[str], None]] = defaultdict(dict)
        """By question, the formats in which those values are wanted then."""
        self._waiting: defaultdict[Question, list[Sequence[Any]]] = defaultdict(list)
        self._known: set[Question] = set()
        self._wanted: set[tuple[Any, str]] = set()
        self._left: list[tuple[Any, str]] = []
        live = {value for (value,) in tables.rows("live")}
        operands = OperandLists(tables, lambda value: value if value in live else None)
        for key, arguments, value in tables.rows("Op"):
            self._asks[value].append(("ask-back", (key,), operands.of(arguments)))
        for value, number, key, result in tables.rows("use"):
            self._asks[value].append(("ask-fwd", (key, number), (result,)))
        for result, view, value in tables.rows("alias"):
            self._asks[result].append(("ask-view", (view,), (value if value in live else None,)))
            self._asks[value].append(("ask-viewed", (view,), (result,)))

    def want(self, wanted: Iterable[tuple[Any, str]]) -> None:
        """Notes values that are wanted in formats, and all that is wanted then by what was answered."""
        self._left += wanted
        while self._left:
            want = self._left.pop()
            if want in self._wanted:
                continue
            self._wanted.add(want)
            value, fmt = want
            for table, row, values in self._asks[value]:
                question = table, (*row, fmt)
                self._waiting[question].append(values)
                for formats in self._answers[question]:
                    self._left += zip(values, formats, strict=True)

    def learn(self, question: Question, answer: Iterable[AnswerRow]) -> None:
        """Notes an answer."""
        self._known.add(question)
        for relation, row in answer:
            if relation == "fwd":
                self._learn("ask-fwd", row[:3], row[3:])
            elif relation == "back":
                self._learn("ask-back", row[:2], self._names.lists[row[3]])
            elif relation == "view":
                view, result, operand = row
                self._learn("ask-view", (view, result), (operand,))
                self._learn("ask-viewed", (view, operand), (result,))

    def _learn(self, table: str, row: Row, formats: Sequence[str]) -> None:
        known = self._answers[table, row]
        if formats not in known:
            known[formats] = None
            for values in self._waiting[table, row]:
                self._left += zip(values, formats, strict=True)

    def questions(self) -> list[Question]:
        """Those that nobody has answered yet."""
        self.want(())
        return [question for question in self._waiting if question not in self._known]


__all__ = ["Foresight", "Question"]
