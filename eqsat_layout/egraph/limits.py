"""Limits on saturation, for rules that would go on for ever.

In: what the user allows. Out: :class:`Budget`, which is asked between slices of a run, and :func:`rehearsed`, which
finds out in a child process whether a slice comes to an end at all.
"""

from __future__ import annotations

import errno
import faulthandler
import math
import os
import pickle
import resource
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from eqsat_layout.errors import EqsatError

_NODES, _NODES_EACH = 50_000, 500
"""Real programs need 20 to 120 e-nodes and facts for an op with its operands."""

_STEPS, _STEPS_EACH = 1_000, 10
"""A fact that goes through the whole program takes a few steps for an op and for an operand."""

_MATCHES_OF_A_NODE: Final = 20
"""A rule whose facts have nothing to do with one another matches as often as they are, multiplied: what it finds may be
few nodes, and takes minutes."""

_SECONDS_OF_USER_RULES: Final = 60.0
_MEGABYTES_OF_USER_RULES, _KILOBYTES_OF_A_NODE = 1024, 4
"""More than the nodes that are allowed take: where a single step would fill it (text that is doubled), that is known
soon, and not when half of a large memory was written."""
_LATE: Final = 20
"""Times as long as it may work, a rehearsal may take altogether, on a machine that does much else."""
_UNKNOWN_MEMORY: Final = 4096.0
_MEGABYTE: Final = 1 << 20


@dataclass(frozen=True)
class Limits:
    """How far the rules may go in each phase of each region; where one is hit, what was found until then is used.

    ``rounds`` of questions and answers. ``steps``: applications of all rules at once, default 1 000 and 10 more for
    each op and operand. ``nodes``: new e-nodes and facts, default 50 000 and 500 more for each. ``matches`` of all
    rules: default 20 for each of ``nodes``, at least of those by default. ``seconds``: default none, but 60 with rules
    of the user's. ``megabytes``: new memory, default half of what is free, and with rules of the user's at most 1 024
    and 4 for each thousand of ``nodes``. The first four are the same on every machine and in every run. With rules of
    the user's a child process tries each slice first, so that even one step that would never come back is stopped.
    """

    rounds: int = 200
    steps: int | None = None
    nodes: int | None = None
    matches: int | None = None
    seconds: float | None = None
    megabytes: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name != "rounds":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise EqsatError(f"limits: {field.name} must be a number above 0, got {value!r}")


@dataclass(frozen=True)
class Stop:
    """A limit that was hit. ``limit`` says which in words, ``rules`` are the keys of those that were still at work."""

    phase: str
    limit: str
    rules: tuple[str, ...] = ()


class Budget:
    """What one phase may still take. ``is_guarded``: there are rules that nobody has tried. ``begins_slowly``: these,
    or limits that somebody asked for, are there, which several steps at once would go beyond.

    ``size``: of the program, its ops and their operands.
    """

    def __init__(self, limits: Limits, size: int, is_guarded: bool):
        self.rounds, self.is_guarded = limits.rounds, is_guarded
        self.begins_slowly = is_guarded or (limits.nodes, limits.steps, limits.matches) != (None, None, None)
        self._nodes = _NODES + _NODES_EACH * size if limits.nodes is None else limits.nodes
        self._steps = _STEPS + _STEPS_EACH * size if limits.steps is None else limits.steps
        many = max(self._nodes, _NODES + _NODES_EACH * size) * _MATCHES_OF_A_NODE
        self._matches = many if limits.matches is None else limits.matches
        self._seconds = limits.seconds or (_SECONDS_OF_USER_RULES if is_guarded else math.inf)
        most = _MEGABYTES_OF_USER_RULES + self._nodes * _KILOBYTES_OF_A_NODE / 1024 if is_guarded else math.inf
        self._megabytes = limits.megabytes or min(_free_megabytes() / 2, most)
        self.start(0)

    def start(self, nodes: int) -> None:
        """A phase begins, with so many nodes."""
        self._taken = self._matched = 0
        self._first, self._memory, self._began = nodes, used_megabytes(), time.monotonic()

    def exceeded(self, nodes: int, steps: int = 0, matches: int = 0) -> str | None:
        """The limit that is hit with so many nodes now, after so many more steps and matches, in words."""
        self._taken += steps
        if (too_many := self.exceeded_by(matches)) is not None:
            return too_many
        self._matched += matches
        if self._taken > self._steps:
            return f"{self._steps:,} steps"
        if nodes - self._first > self._nodes:
            return f"{self._nodes:,} new nodes"
        if self.seconds_left <= 0:
            return self._seconds_in_words
        return None if self.megabytes_left > 0 else self._megabytes_in_words

    def exceeded_by(self, matches: int) -> str | None:
        """The limit on matches, in words, if so many more hit it."""
        return f"{self._matches:,} matches" if self._matched + matches > self._matches else None

    @property
    def seconds_left(self) -> float:
        """Until the limit on time, ``inf`` without one."""
        return self._seconds - (time.monotonic() - self._began)

    @property
    def megabytes_left(self) -> float:
        """Until the limit on memory."""
        return self._megabytes - (used_megabytes() - self._memory)

    def died(self, is_late: bool) -> str:
        """The limit that a rehearsal hit, in words."""
        return self._seconds_in_words if is_late else self._megabytes_in_words

    @property
    def _seconds_in_words(self) -> str:
        return f"{self._seconds:g} seconds"

    @property
    def _megabytes_in_words(self) -> str:
        return f"{self._megabytes:,.0f} megabytes of memory"


def rehearsed(
    action: Callable[[], object], outcome: Callable[[], object], budget: Budget, share: float = 1.0
) -> tuple[str | None, Any]:
    """Whether ``action`` ends within this share of the time and all memory that is left, and what is found then.

    It is done in a copy of this process, whose own time on the processor counts, and has no effect here. First: None if
    it ends, in words the limit that it hits if not. Second: what ``outcome`` gives in the copy afterwards, however long
    and large. Without ``fork``, or with threads that a copy would not have, nothing is tried, and both are None. An
    action that fails with an error of its own is said to end: it will fail here too.
    """
    if not hasattr(os, "fork") or os.environ.get("RAYON_NUM_THREADS", "1") != "1":
        return None, None
    reading, writing = os.pipe()
    left = budget.seconds_left * share
    seconds = None if left == math.inf else max(math.ceil(left), 1)
    megabytes = budget.megabytes_left  # of this process: the copy begins with fewer pages in memory
    child = os.fork()
    if not child:
        _be_the_copy(action, outcome, writing, megabytes, seconds)
    os.close(writing)
    found = b""
    try:
        ready, _, _ = select.select([reading], [], [], seconds and seconds * _LATE)
        ended = bool(ready) and os.read(reading, 1) == b"1"
        with open(reading, "rb", closefd=False) as pipe:
            found = pipe.read() if ended else b""
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
    if not ended:
        return budget.died(is_late=not ready or os.WTERMSIG(status) == signal.SIGXCPU), None
    return None, pickle.loads(found) if found else None


def _be_the_copy(
    action: Callable[[], object],
    outcome: Callable[[], object],
    writing: int,
    megabytes: float,
    seconds: int | None,
) -> None:
    """Never comes back, and says nothing but that it has done it."""
    limits = []
    try:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), 2)  # Rust says aloud that memory is at an end
        faulthandler.disable()  # and so does Python, to where it was told before
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limits = [(resource.RLIMIT_AS, size + int(max(megabytes, 1) * _MEGABYTE)), (resource.RLIMIT_CORE, 0)]
        limits += [] if seconds is None else [(resource.RLIMIT_CPU, seconds)]
        before = [(limit, resource.getrlimit(limit)) for limit, _ in limits]
        for (limit, most), (_, (_, hardest)) in zip(limits, before, strict=True):
            resource.setrlimit(limit, (most, hardest))
    except (OSError, ValueError):
        before = []
    ended, found = b"1", b""
    try:
        action()
        for limit, former in before:
            resource.setrlimit(limit, former)
        found = pickle.dumps(outcome())
    except (
        BaseException
    ) as error:  # one of its own ended it within its memory: the parent meets it, and says what it is
        ended, found = b"" if _is_out_of_memory(error) else b"1", b""
    finally:
        with open(writing, "wb") as pipe:
            pipe.write(ended + found)
        os._exit(0)


def _is_out_of_memory(error: BaseException | None) -> bool:
    """It, or what it was raised for."""
    if error is None or isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return error is not None
    return _is_out_of_memory(error.__cause__)


def used_megabytes() -> float:
    """Memory that this process holds now; at its peak where the system does not say."""
    try:  # each step of the rules asks: a file of Python's takes thrice as long
        file = os.open("/proc/self/statm", os.O_RDONLY)
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    try:
        return int(os.read(file, 256).split()[1]) * resource.getpagesize() / _MEGABYTE
    finally:
        os.close(file)


def _free_megabytes() -> float:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            kilobytes = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return _UNKNOWN_MEMORY
    return kilobytes / 1024
