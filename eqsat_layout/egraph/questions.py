"""What rules ask of the host, each question answered once.

In: an e-graph, and who answers. Out: rows of answers. Questions are rows of the tables whose names begin with ``ask-``.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable
from typing import Any

from eqsat_layout.egraph.engine import Engine
from eqsat_layout.egraph.foresight import Foresight, Question
from eqsat_layout.egraph.limits import Budget
from eqsat_layout.egraph.op_answers import OpAnswers
from eqsat_layout.egraph.part_answers import AnswerRow
from eqsat_layout.egraph.tables import Row, Tables
from eqsat_layout.errors import LayoutError, RuleError


class QuestionRounds:
    """``spoken_for``: keys of ops that the user's flow callbacks speak for, whose errors are theirs.

    ``foresight``: what is asked next is answered too.
    """

    def __init__(self, engine: Engine, answers: OpAnswers, budget: Budget, spoken_for: Collection[str]) -> None:
        self._engine, self._answers, self._budget, self._spoken_for = engine, answers, budget, spoken_for
        self._asked: defaultdict[str, set[Row]] = defaultdict(set)
        self._read: defaultdict[str, set[Row]] = defaultdict(set)
        self._order: dict[str, int] = {}
        self.foresight: Foresight | None = None

    def answer_all(self) -> dict[str, list[Row]]:
        """Answers every question not asked before, and those that follow in rounds, as the e-graph would have them."""
        rows: dict[str, dict[Row, None]] = {}
        left = deque(self._new())
        while left and self._budget.seconds_left > 0:
            table, question = left.popleft()
            self._asked[table].add(question)
            answer = self._answered(table, question)
            for relation, row in answer:
                rows.setdefault(relation, {})[row] = None
            if self.foresight is not None:
                self.foresight.learn((table, question), answer)
                left.extend(() if left else self._unanswered(self.foresight.questions()))
        return {relation: list(content) for relation, content in rows.items()}

    def _new(self) -> list[Question]:
        """Those that the e-graph has and had not before."""
        grown = {t for t, size in self._engine.sizes().items() if t.startswith("ask-") and self._has_grown(t, size)}
        if not grown:
            return []
        tables = self._engine.tables()
        self._order = {table: number for number, table in enumerate(tables.names)}
        if self.foresight is not None:
            self.foresight.want(tables.rows("want"))
        return self._unanswered((table, row) for table in grown for row in self._new_rows(tables, table))

    def _unanswered(self, questions: Iterable[Question]) -> list[Question]:
        """In sorted order, so that names do not depend on hashing, table by table."""
        left = [(self._order[table], table, row) for table, row in questions if row not in self._asked[table]]
        return [(table, row) for _, table, row in sorted(left)]

    def _has_grown(self, table: str, size: int) -> bool:
        """The rules of the package take no question back."""
        return size > 0 if self._budget.is_guarded else size > len(self._read[table])

    def _new_rows(self, tables: Tables, table: str) -> set[Row]:
        """egglog puts new rows behind others; where these are as many as there can be, they need not all be read."""
        known = self._read[table]
        last = set() if self._budget.is_guarded else set(tables.rows(table, len(known)))
        if len(last) != tables.size(table) - len(known) or not last.isdisjoint(known):
            last = set(tables.rows(table)) - known
        known |= last
        return last

    def _answered(self, table: str, question: Row) -> list[AnswerRow]:
        """The rows of one answer. What no sound rule can ask is the fault of rules that nobody has tried."""
        answer = self._answer_function(table)
        try:
            return list(answer(*question))
        except (LayoutError, LookupError) as error:
            if not self._budget.is_guarded or question[0] in self._spoken_for:
                raise
            asked = " ".join(map(str, question))
            reason = f"{type(error).__name__}: {error}"
            raise RuleError(f"rules ask ({table} {asked}), which makes no sense of its types: {reason}") from error

    def _answer_function(self, table: str) -> Callable[..., Any]:
        answer = self._answers.answerer(table)
        if answer is None:
            raise RuleError(f"rules ask ({table} ...), but nothing answers {table.removeprefix('ask-')!r}")
        return answer
