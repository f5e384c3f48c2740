"""How many threads the loops of a program's kernels take, found out by what its runs take.

Short loops gain by a second core only where it is near, idle and theirs: on virtual machines whose host moves cores
apart, and on busy ones, that changes by the second, and no plan knows. In: the times of runs. Out: the pool's number of
threads for the next one. Results are the same to the bit: each iteration of a loop is computed as before.
"""

from __future__ import annotations

import threading
from collections import deque
from statistics import median
from time import perf_counter_ns
from typing import Final

from eqsat_layout.system.machine import threads
from eqsat_layout.system.thread_pool import Caller, caller_of_pool

_LONG: Final = 100_000
"""Nanoseconds of a loop, on average, from which on all threads are worth it: nothing else is tried."""
_TRIAL: Final = 4
"""Runs of a trial. The first moves data from other cores' caches and does not count."""
_USUAL: Final = 5
"""Runs whose median a trial is compared with."""
_BETTER: Final = 0.93
"""Of the usual time: less is noise."""
_SOON: Final = 4
_BETWEEN: Final = 32
"""Runs between two trials, at least: few after a change, which another library's threads may have made that spin for a
moment, and twice as many each time that nothing is better."""
_SHARE: Final = 200
"""A trial that was slower is paid for by this many times what it cost more, before the next one."""


class _OfThread(threading.local):
    """Of one thread that runs the program: the pool's word of it, and the run that it is in."""

    caller: Caller | None = None
    start = 0
    loops = 0


class ThreadCount:
    """A context for each run of one program. Trials cost about a two-hundredth of the time of all runs."""

    def __init__(self) -> None:
        self._all = self._count = threads()
        self._trial: list[int] | None = None
        """Times of the trial's runs, while there is one."""
        self._tried = self._all
        self._direction = 0
        self._usual: deque[int] = deque(maxlen=_USUAL)
        self._until = 0
        """Nanoseconds of runs before the next trial."""
        self._pause = _SOON
        """Runs before it, at least."""
        self._own = _OfThread()
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """Threads of the next run."""
        return self._count if self._trial is None else self._tried

    def __enter__(self) -> None:
        if self._all < 2:
            return
        own = self._own
        if own.caller is None:
            own.caller = caller_of_pool()  # there is none before the first library is loaded
            if own.caller is None:
                return
        own.caller.most = self.count
        own.loops = own.caller.loops
        own.start = perf_counter_ns()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        own = self._own
        if own.caller is None:
            return
        taken = perf_counter_ns() - own.start
        own.caller.most = 0
        if kind is None:
            with self._lock:
                self.learn(taken, (own.caller.loops - own.loops) & 0xFFFFFFFF)

    def learn(self, taken: int, loops: int) -> None:
        """A run took so many nanoseconds, and began so many loops."""
        trial = self._trial
        if trial is None:
            self._usual.append(taken)
            self._until -= taken
            if self._until <= 0 and len(self._usual) == _USUAL:
                self._begin(loops)
            return
        trial.append(taken)
        if len(trial) == _TRIAL:
            self._end(trial)

    def _begin(self, loops: int) -> None:
        usual = median(self._usual)
        self._until = int(self._pause * usual)
        near = [count for count in (self._count // 2, min(self._count * 2, self._all)) if 0 < count != self._count]
        if loops and (usual < _LONG * loops or self._count < self._all):
            self._direction += 1
            self._tried = near[self._direction % len(near)]
            self._trial = []

    def _end(self, trial: list[int]) -> None:
        usual = median(self._usual)
        self._trial = None
        if median(trial[1:]) < _BETTER * usual:
            self._count, self._pause, self._until = self._tried, _SOON, 0
            self._usual.clear()
        else:
            self._pause = min(2 * self._pause, _BETWEEN)
            self._until = int(self._pause * usual)
            lost = sum(trial) - len(trial) * usual
            self._until = max(int(_SHARE * lost), self._until)
