"""Files of rules that are known to be wrong, or right: what the fuzzer says of each.

In: rule files whose cases are separated by blank lines; a case is a comment that says why, and one or more commands
that are loaded together, beside the rules of the package. Out: :class:`Outcome` per case. A case is caught by a
counterexample, by a false merge of all rules together, or by a refusal to load it; not by "could not be checked".
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.errors import RuleError
from eqsat_layout.soundness.rules.fuzzer import fuzz_rules
from eqsat_layout.soundness.rules.pace import AT_MOST
from eqsat_layout.soundness.rules.reports import Effort, FuzzReport

USUAL = Effort(at_most=AT_MOST)
"""What ``eqsat-layout fuzz FILE`` does."""
_NAME = re.compile(r':name "([^"]*)"')


@dataclass(frozen=True)
class CorpusRule:
    """``name`` is that of its last rule; ``why`` the comment over it; ``rules``: the names of all of them."""

    name: str
    why: str
    file: str
    line: int
    text: str

    @property
    def rules(self) -> list[str]:
        return _NAME.findall(self.text)

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line} {self.name}"


@dataclass(frozen=True)
class Outcome:
    """``caught``: the fuzzer says that it is wrong. ``said``: why, or why it was not checked; empty if all is well.

    ``seconds`` of the processor.
    """

    case: CorpusRule
    caught: bool
    said: str
    seconds: float

    @property
    def is_clean(self) -> bool:
        """Checked, and nothing found."""
        return not self.caught and not self.said

    def __str__(self) -> str:
        said = "caught" if self.caught else self.said.splitlines()[0] if self.said else "ok"
        return f"{self.case}: {said} ({self.seconds:.1f} s)"


def cases_in(path: Path) -> Iterator[CorpusRule]:
    """The cases of a file; the comment at its head belongs to none."""
    line = 1
    for block in re.split(r"\n(?=\n)", path.read_text(encoding="utf-8")):
        text = block.lstrip("\n")
        first = line + len(block) - len(text)
        line += block.count("\n") + 1
        names = _NAME.findall(text)
        if names:
            why, _, rest = text.partition("\n")
            yield CorpusRule(names[-1], why.removeprefix("; "), str(path), first + 1, rest)


def judge_case(case: CorpusRule, effort: Effort = USUAL, seed: int = 0) -> Outcome:
    """Fuzzes a case beside the rules of the package."""
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / Path(case.file).name
        path.write_text(case.text, encoding="utf-8")
        try:
            report = fuzz_rules(rule_files([path]), effort, seed, only=lambda rule: rule.file == str(path))
            caught, said = _verdict(report)
        except RuleError as error:
            caught, said = True, str(error)
    return Outcome(case, caught, said, time.process_time() - start)


def _verdict(report: FuzzReport) -> tuple[bool, str]:
    found = [r.counterexample.text for r in report.rules if r.counterexample is not None] + report.false_merges
    if found:
        return True, found[0]
    trouble = [f"{r.rule}: {r.trouble}" for r in report.rules if r.trouble]
    trouble += [*report.unread, *report.gaps, *report.wrong_answers, *report.crashes]
    return False, trouble[0] if trouble else ""
