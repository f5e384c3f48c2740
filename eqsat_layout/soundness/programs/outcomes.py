"""What comes of random programs: outcomes of single ones, failures, the report of a run.

In: what the trial of a program found. Out: a :class:`ProgramReport`, which prints as text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from eqsat_layout.soundness.programs.tried import said

SAME, UNCHANGED, NOISY, REFUSED, UNRUN, FAILED = "same", "unchanged", "noisy", "refused", "unrun", "failed"
"""What may come of a program: compared and the same; given back as it was; different by rounding that the program
amplifies; a layout refused with :class:`LayoutError`; not run, because TVM can't build or run the input either."""


@dataclass(frozen=True)
class ProgramOutcome:
    """What came of one program. ``why``: the kind of failure, the same for the same fault; ``text``: in words."""

    kind: str
    why: str = ""
    text: str = ""
    record: tuple[int, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()
    program: str = ""
    asked: str = ""
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ProgramFailure:
    """``program``: TVMScript of the smallest module that fails in the same way, under the options of ``optimize``.

    ``record``: the choices that make it. ``seed``: makes the program that failed first. ``target``: that it was
    compiled for, if it was.
    """

    seed: int
    why: str
    text: str
    program: str
    record: tuple[int, ...]
    target: Any = None

    @property
    def command(self) -> str:
        """What shows the failure again, before it was made smaller."""
        return f"python -m eqsat_layout.soundness.programs.fuzzer {self.seed}{said(self.target)}"

    def __str__(self) -> str:
        return f"{self.why}: {self.text}\nseed {self.seed}: {self.command}\n{self.program}"


@dataclass
class ProgramReport:
    """What came of all programs: ``counts`` by kind of outcome, ``reasons`` for what was refused or not run.

    ``asked``: how often the interpreter agreed, or could not say. ``stages``: seconds by stage, of all processes.
    """

    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    stages: Counter[str] = field(default_factory=Counter)
    failures: list[ProgramFailure] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def programs(self) -> int:
        """All that were made."""
        return sum(self.counts.values())

    @property
    def compared(self) -> int:
        """Those that were changed, and run before and after."""
        return self.counts[SAME] + self.counts[NOISY]

    @property
    def is_clean(self) -> bool:
        """Nothing failed. That nothing was compared is no failure, and is said."""
        return not self.failures and not self.counts[FAILED]

    def add(self, outcome: ProgramOutcome) -> None:
        """Counts one program."""
        self.counts[outcome.kind] += 1
        self.stages.update(outcome.seconds)
        if outcome.asked:
            self.asked[outcome.asked] += 1
        if outcome.kind in (REFUSED, UNRUN):
            self.reasons[outcome.text] += 1

    def __str__(self) -> str:
        rate = self.programs / self.seconds if self.seconds else 0.0
        compared = self.compared / self.seconds if self.seconds else 0.0
        lines = [str(f) + "\n" for f in self.failures]
        lines += [f"{count} times {reason}" for reason, count in self.reasons.most_common(10)]
        lines.append(
            f"{self.programs} programs in {self.seconds:.0f} s ({rate:.1f} per second, {compared:.1f} of them compared)"
            f": {self.compared} compared, {self.counts[UNCHANGED]} unchanged, {self.counts[NOISY]} with much rounding, "
            f"{self.counts[REFUSED]} refused, {self.counts[UNRUN]} not run, {self.counts[FAILED]} failed; "
            f"interpreter: {', '.join(f'{n} {what}' for what, n in self.asked.most_common()) or 'not asked'}; "
            f"seed {self.seed}"
        )
        if not self.compared:
            lines.append("no program was compared: this says nothing of the package, more seconds or cases would")
        if self.stages:
            total = sum(self.stages.values())
            lines.append(", ".join(f"{name} {100 * s / total:.0f} %" for name, s in self.stages.most_common()))
        return "\n".join(lines)


Progress = Callable[[ProgramReport, float], None]
"""Called with the report so far and the share of the work that is done."""
