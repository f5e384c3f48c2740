"""Making a random program that fails smaller.

In: its outcome, and a function that tries a record of choices. Out: the outcome of the smallest program that fails in
the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from eqsat_layout.soundness.programs.outcomes import FAILED, ProgramOutcome

TRIES: Final = 80
"""Programs that are tried for a smaller one: a count, so that a seed shows the same on every machine."""


def shrunk(
    failed: ProgramOutcome,
    seed: int,
    ask: Callable[[Sequence[int] | None, int], ProgramOutcome],
    tries: int = TRIES,
) -> ProgramOutcome:
    """The smallest program found that fails in the same way: steps left out first, then choices made smaller."""
    best = failed
    tried: set[tuple[int, ...]] = {best.record}
    progress = True
    while progress and len(tried) <= tries:
        progress = False
        for record in _smaller(best):
            if record in tried:
                continue
            if len(tried) > tries:
                break
            tried.add(record)
            outcome = ask(record, seed)
            if outcome.kind == FAILED and outcome.why == best.why and _size(outcome) < _size(best):
                best, progress = outcome, True
                break
    return best


def _size(outcome: ProgramOutcome) -> tuple[int, int]:
    return len(outcome.record), sum(outcome.record)


def _smaller(outcome: ProgramOutcome) -> Iterator[tuple[int, ...]]:
    """Records that are smaller, the boldest first."""
    record = outcome.record
    spans = sorted(outcome.spans, key=lambda s: s[0] - s[1])
    for start, end in spans:
        yield (*record[:start], *record[end:])
    for _, end in sorted(spans, key=lambda s: s[1]):
        yield record[:end]
    for start, end in spans:
        for zeros in range(1, min(5, end - start - 1)):  # the simplest step in place of this one
            yield (*record[: start + 1], *(0,) * zeros, *record[end:])
    for length in (16, 8, 4, 2, 1):
        for start in range(0, len(record), length):
            part = record[start : start + length]
            if any(part):
                yield (*record[:start], *(0 for _ in part), *record[start + length :])
    for position, value in enumerate(record):
        for less in {value // 2, value - 1} - {0, value} if value > 1 else ():
            yield (*record[:position], less, *record[position + 1 :])
