"""What rules conclude: whether it is true.

In: a rule, a model, and a match of its body. Out: the first of its actions that is not true there, and why. What has no
meaning claims nothing; an op that can't be made neither.
"""

from __future__ import annotations

from typing import Any

from eqsat_layout.egraph.expressions import Expr
from eqsat_layout.egraph.rule_forms import Rule
from eqsat_layout.soundness.rules.ill_typed import IllTypedError, NotMadeError
from eqsat_layout.soundness.rules.memories import why_not_held
from eqsat_layout.soundness.rules.model import Row, RuleModel
from eqsat_layout.soundness.rules.rule_base import TAKE_BACK

WANT = "want"
"""What asks for a copy. One that no memory holds is never made: to want it is not wrong, and of no use."""
ASKED = 3
"""Questions of one rule in one model that are put to the host, to see that it can answer."""


class Conclusions:
    """Whether the actions of a rule are true, in one model; ``not_held``: as in its report, and added to."""

    def __init__(self, model: RuleModel, rule: Rule, not_held: dict[Expr, str] | None = None):
        self._model, self._rule = model, rule
        self._not_held = {} if not_held is None else not_held
        self._asked = 0
        self.not_made = ""

    def wrong(self, scope: dict[str, Any]) -> tuple[Expr, str] | None:
        """The first action that is not true, and why; None if all are."""
        evaluator = self._model.evaluator
        scope = dict(scope)
        for action in self._rule.actions:
            if isinstance(action, str) or action[0] in TAKE_BACK:
                continue
            head, *parts = action
            try:
                if head == "let":
                    scope[str(parts[0])] = evaluator.term(parts[1], scope)
                elif head == "union":
                    a, b = (evaluator.term(part, scope) for part in parts)
                    if not self._model.values.equal(a, b):
                        return action, "they differ"
                elif head in self._model.base.relations:
                    row = [evaluator.term(part, scope) for part in parts]
                    why = self._wrong_row(str(head), row)
                    if why:
                        return action, why
                    if head == WANT:
                        self._look_at_memory(action, *row)
                else:
                    evaluator.term(action, scope)
            except NotMadeError as error:
                self.not_made = str(error)
                if head == "let":  # what it would be part of can't be made either
                    return None
            except IllTypedError as error:
                return action, str(error)
        return None

    def _look_at_memory(self, want: Expr, number: int, name: str) -> None:
        fmt, value = self._model.lexicon.names.formats.get(name), self._model.values.tensors[number]
        if fmt is None or isinstance(value, tuple):  # of several results, each of which is wanted by another rule
            return
        why = why_not_held(fmt, str(value.dtype))
        self._not_held[want] = why and self._not_held.get(want, why)

    def _wrong_row(self, relation: str, row: Row | list[Any]) -> str:
        model = self._model
        if relation in model.base.meanings:
            known = model.truths.get((relation, *row))
            if known is None:
                known = model.truths[relation, *row] = model.evaluator.means(relation, row)
            missed = model.evaluator.premise_missed(relation, row) if known else ""
            if missed:
                self.not_made = f"no instance in which ({relation} ...) claims anything: {missed} is never true"
            return "" if known else "it is not true"
        if relation.startswith("ask-") and self._asked < ASKED:
            self._asked += 1
            return model.cannot_answer(relation, row)
        return ""
