"""Changes of schedules that may be refused, and faults that stay with one kernel.

In: what may raise. Out: what it gives, or ``None`` where it is refused. Everything else that is raised is a fault: it
passes through or, at the level of kernels, ends in a note.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from tvm.s_tir.schedule import ScheduleError

from eqsat_layout.errors import Refused
from eqsat_layout.notes import Notes

T = TypeVar("T")

REFUSALS: Final = (Refused, ScheduleError)
"""What a schedule raises where it does not apply, and what TVM raises where it can't do a step of one."""


def unless_refused(make: Callable[[], T | None], reasons: list[str] | None = None, who: str = "") -> T | None:
    """What ``make`` gives; ``None`` where that is refused: ``reasons`` then says why, after the name of ``who``."""
    try:
        return make()
    except REFUSALS as error:
        if reasons is not None:
            reasons.append(f"{who}: {_reason(error)}" if who else _reason(error))
        return None


def tried(sch: Any, change: Callable[[Any], object], reasons: list[str] | None = None, who: str = "") -> Any:
    """A copy with the change made; ``None`` where that is refused."""
    trial = sch.copy()

    def changed() -> Any:
        change(trial)
        return trial

    return unless_refused(changed, reasons, who)


def isolated(make: Callable[[], T | None], text: str, notes: Notes) -> T | None:
    """What ``make`` gives; where it fails, ``None`` and a fault in ``notes``: no other kernel notices.

    The one place that catches what is no refusal. Strict notes raise it instead.
    """
    try:
        return make()
    except Exception as error:
        notes.fault(text, error)
        return None


def _reason(error: Exception) -> str:
    """The first line of what it says; TVM puts the name of the exception before that."""
    lines = str(error).strip().splitlines()
    return lines[0].removeprefix("ScheduleError: ") if lines else type(error).__name__
