"""The program fuzzer (soundness room): random modules through ``optimize``, run before and after.

In: an effort and a seed. Out: a :class:`ProgramReport` with the smallest module found per failure. Every program has a
seed of its own, which is all that it takes to see it again: ``python -m eqsat_layout.soundness.programs.fuzzer SEED``.
"""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import tvm_ffi

from eqsat_layout.errors import LayoutError
from eqsat_layout.planning.clock import Clock
from eqsat_layout.soundness.oracle.relax_interpreter import NotInterpretable, run_function
from eqsat_layout.soundness.programs.check import Case, Pair, difference, interface_difference
from eqsat_layout.soundness.programs.generator import Choices, Program, make_program
from eqsat_layout.validation.results import last_line

SAME, UNCHANGED, NOISY, REFUSED, UNRUN, FAILED = "same", "unchanged", "noisy", "refused", "unrun", "failed"
"""What may come of a program: compared and the same; given back as it was; different by rounding that the program
amplifies; a layout refused with :class:`LayoutError`; not run, because TVM can't build or run the input either."""

OPINION_EVERY: Final = 10
"""Compared programs in one of which the reference interpreter is asked too."""
STRIDE: Final = 1_000_000
"""Between the first programs of two seeds of the fuzzer."""
SHRINKING_SECONDS: Final = 45.0


@dataclass(frozen=True)
class Outcome:
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

    ``record``: the choices that make it. ``seed``: makes the program that failed first.
    """

    seed: int
    why: str
    text: str
    program: str
    record: tuple[int, ...]

    @property
    def command(self) -> str:
        """What shows the failure again, before it was made smaller."""
        return f"python -m eqsat_layout.soundness.programs.fuzzer {self.seed}"

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
        """Nothing failed, and something was compared."""
        return not self.failures and not self.counts[FAILED] and self.compared > 0

    def add(self, outcome: Outcome) -> None:
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
        if self.stages:
            total = sum(self.stages.values())
            lines.append(", ".join(f"{name} {100 * s / total:.0f} %" for name, s in self.stages.most_common()))
        return "\n".join(lines)


Progress = Callable[[ProgramReport, float], None]
"""Called with the report so far and the share of the work that is done."""


def fuzz_programs(
    seconds: float | None = None,
    cases: int | None = None,
    seed: int = 0,
    jobs: int = 1,
    on_progress: Progress = lambda report, share: None,
    rules: Sequence[str | Path] = (),
) -> ProgramReport:
    """Fuzzes for so many ``seconds`` or programs (by default 100) in ``jobs`` processes; ``rules``: further files.

    A process that dies or hangs is a failure of the program that it was at, and another one takes its place.
    """
    from eqsat_layout.soundness.programs.jobs import run_jobs

    if seconds is None and cases is None:
        cases = 100
    return run_jobs(seconds, cases, seed, jobs, on_progress, tuple(rules))


def check(choices: Choices, seed: int, rules: Sequence[str | Path] = ()) -> Outcome:
    """Makes a program, optimises it and compares; ``seed`` is for its inputs, ``rules`` are further files."""
    clock = Clock()
    try:
        with clock.stage("make"):
            program = make_program(choices)
    except Exception as error:
        return _finished(choices, None, clock, _raised("making the program", error))
    try:
        found = _checked(program, seed, clock, rules)
    except Exception as error:  # whatever optimize, TVM or the comparison meets
        found = _raised("checking the program", error)
    return _finished(choices, program, clock, found)


def _finished(choices: Choices, program: Program | None, clock: Clock, found: Outcome) -> Outcome:
    text = program.text() if program is not None and found.kind == FAILED else ""
    record, spans = tuple(choices.record), tuple(choices.spans)
    return Outcome(found.kind, found.why, found.text, record, spans, text, found.asked, clock.seconds)


def _checked(program: Program, seed: int, clock: Clock, rules: Sequence[str | Path]) -> Outcome:
    import eqsat_layout

    mod = program.module
    fingerprint = tvm_ffi.structural_hash(mod)
    try:
        with clock.stage("optimize"):
            optimized = eqsat_layout.optimize(mod, **program.options, rules=rules)
    except LayoutError as error:
        return Outcome(REFUSED, text=_without_numbers(str(error)))
    except Exception as error:
        return _raised("optimize", error)
    if tvm_ffi.structural_hash(mod) != fingerprint:
        return Outcome(FAILED, "the input was changed", "optimize changed the module that it was given")
    if optimized is mod:
        return Outcome(UNCHANGED)
    with clock.stage("interface"):
        text = interface_difference(mod, optimized)
    if text:
        return Outcome(FAILED, "interface", f"the optimised module {text}")
    try:
        with clock.stage("build"):
            pair = Pair(mod, optimized)
    except Exception as error:
        try:
            Pair(mod, mod)
        except Exception as own:
            return Outcome(UNRUN, text=_without_numbers(f"TVM can't build the input: {last_line(own)[:150]}"))
        return _raised("building the optimised module", error)
    with clock.stage("run"):
        return _compared(program, pair, seed)


def _compared(program: Program, pair: Pair, seed: int) -> Outcome:
    approx = bool(program.options.get("approx", True) and program.options.get("candidates", True))
    kind, asked = SAME, ""
    for number, case in enumerate(pair.cases(seed)):
        for i, (expected, got) in enumerate(zip(case.before, case.after, strict=True)):
            text = difference(expected, got, approx=approx)
            if not text:
                continue
            if pair.is_noise(case):
                kind = NOISY
                continue
            opinion = _opinion(program, case)[1]
            return Outcome(FAILED, "numbers", f"{case.function}: result {i} {text}{opinion and '; ' + opinion}")
        if seed % OPINION_EVERY == 0 and number == 0:
            asked, text, found = _opinion(program, case)
            if asked == "disagrees" and not pair.is_noise(replace(case, after=found)):
                return Outcome(FAILED, "interpreter", f"{case.function}: {text}", asked=asked)
    return Outcome(kind, asked=asked)


def _opinion(program: Program, case: Case) -> tuple[str, str, list[Any]]:
    """What the reference interpreter says of the input module: a word for the statistics, a sentence, its results."""
    try:
        results = _flat(run_function(program.module, case.function, [_plain(x) for x in case.inputs]))
    except NotInterpretable:
        return "can't say", "", []
    for i, (found, expected) in enumerate(zip(results, case.before, strict=True)):
        text = difference(expected, found, approx=True)
        if text:
            return "disagrees", f"the interpreter's result {i} {text} from what TVM makes of the input", results
    return "agrees", "the interpreter agrees with what TVM makes of the input", results


def _plain(x: Any) -> Any:
    """An input as the interpreter takes it."""
    return x.numpy() if hasattr(x, "numpy") else [_plain(field) for field in x]


def _flat(result: Any) -> list[Any]:
    return [a for field in result for a in _flat(field)] if isinstance(result, list) else [np.asarray(result)]


def _raised(where: str, error: BaseException) -> Outcome:
    """The failure that ``error`` is, named after the place of this package that it comes from."""
    own = [f for f in traceback.extract_tb(error.__traceback__) if "eqsat_layout" in Path(f.filename).parts]
    place = f"{Path(own[-1].filename).name}:{own[-1].name}" if own else "?"
    why = f"{where} raised {type(error).__name__} in {place}"
    return Outcome(FAILED, why, last_line(error) + "\n" + "".join(traceback.format_tb(error.__traceback__)[-4:]))


def _without_numbers(text: str) -> str:
    return "".join("#" if c.isdigit() else c for c in text)


def main(seeds: Sequence[str]) -> int:
    """Checks the programs of ``seeds`` and prints what came of them."""
    failed = False
    for seed in map(int, seeds):
        outcome = check(Choices.of_seed(seed), seed)
        failed |= outcome.kind == FAILED
        print(outcome.program or make_program(Choices.of_seed(seed)).text())
        print(f"seed {seed}: {outcome.kind} {outcome.why} {outcome.text}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
