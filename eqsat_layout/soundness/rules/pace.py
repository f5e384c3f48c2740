"""How long the rules of a file are fuzzed.

In: an effort, and reports on the rules after each model. Out: the share of the effort that is spent. Where it is
counted by rules, one that is known to be wrong is looked for no longer, so that more is left for the others. Counted,
not timed: the same seed finds the same on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eqsat_layout.egraph.rule_forms import Rule
from eqsat_layout.soundness.rules.reports import Effort, RuleReport

AT_MOST = 12
"""Rules times models for a file of somebody's own, some ten seconds of work; those of the package are not fuzzed again
for it."""
PATIENCE = 3
"""How many times the models asked for are made so that rare rules have their instances too."""
_LEAST_MODELS = 2
"""For each rule on average, however many there are."""
_AFTERWARDS = 4
"""Models, or as many as it took, for the other rules of a file of few when one of them is known to be wrong."""


class Pace:
    """What is spent of ``effort`` on rules; ``claims``: whether a rule claims anything. ``vain``: the keys of rules
    that no model can have an instance of."""

    def __init__(self, effort: Effort, reports: Sequence[RuleReport], claims: Callable[[Rule], bool]):
        self._effort, self._reports, self._claims = effort, reports, claims
        self._spent = self._models = 0
        self._found_out: int | None = None
        self.vain: set[str] = set()

    def begins_model(self) -> None:
        """Another model is made, for all rules that are not known to be wrong."""
        for report in self._reports:
            if not report.failures:
                report.models += 1
        self._models += 1
        self._spent += max(1, len(self._waiting()))

    def _waiting(self) -> list[RuleReport]:
        """Of rules of which more may be found out."""
        return [r for r in self._reports if not r.failures and r.rule.key not in self.vain]

    def share(self, seconds: float, *, are_wrong_together: bool) -> float:
        """How much of the effort is spent; 1 if nothing more is to be done."""
        effort, models = self._effort, self._models
        if effort.seconds is not None:
            return seconds / effort.seconds
        most = effort.at_most
        if most is not None and models and (self._is_spent(most) or self._is_decided(most, are_wrong_together)):
            return 1.0
        if models < effort.models:
            return models / (effort.models * PATIENCE)
        waiting = [r for r in self._reports if r.instances and not r.trouble and not r.failures]
        least = min((r.instances for r in waiting), default=effort.cases)
        if least >= effort.cases or models >= effort.models * PATIENCE:
            return 1.0
        return max(models / (effort.models * PATIENCE), least / effort.cases)

    def _is_spent(self, at_most: int) -> bool:
        whole = max(at_most, _LEAST_MODELS * len(self._reports))
        return self._models >= _LEAST_MODELS and (self._spent >= whole or self._models >= at_most)

    def _is_decided(self, at_most: int, are_wrong_together: bool) -> bool:
        """Whether nothing more is to be found out: all rules that claim anything are known to be wrong, or one is, or
        all of them together, and the others had their time too."""
        if self._found_out is None and (are_wrong_together or any(r.failures for r in self._reports)):
            self._found_out = self._models
        if not self._waiting():
            return True
        if self._found_out is None:
            return False
        waiting = [r for r in self._reports if not r.failures and not r.trouble and self._claims(r.rule)]
        are_few = _LEAST_MODELS * len(self._reports) <= at_most
        late = are_few and self._models >= self._found_out + max(_AFTERWARDS, self._found_out)
        return late or not waiting or are_wrong_together
