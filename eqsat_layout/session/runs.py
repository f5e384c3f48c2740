"""Runs of one program, by as many threads as like to.

In: an executable, tensors. Out: the results as arrays that nobody else writes to.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import tvm_ffi

from eqsat_layout.errors import EqsatError
from eqsat_layout.session.runtime import virtual_machine
from eqsat_layout.session.tensors import Array, array_of, span, way_back
from eqsat_layout.session.thread_count import ThreadCount
from eqsat_layout.system.forks import enter, in_one_piece, leave


class Runs:
    """A virtual machine's function for every run at a time, made when all others are busy.

    Results are given away as they are where that is safe. A program without branches does the same every time, so that
    a result that has memory of its own in the second run, the results of the first still alive, has it in all runs.
    Those of the first run are copied.
    """

    def __init__(self, executable: Any, device: tuple[int, int], entry: str, *, branches: bool):
        self._executable, self._device, self._entry = executable, device, entry
        self._idle: deque[Any] = deque()
        self._threads = ThreadCount()
        self._lock = threading.Lock()
        self._branches = branches
        self._first: list[Any] | None = None
        self._gives: list[Callable[[Any], Array]] | None = None

    def __call__(self, tensors: Sequence[Any]) -> list[Array]:
        """What the program makes of ``tensors``, tuples in order."""
        results = self.raw(tensors)
        gives = self._ways_back(results, tensors) if self._gives is None else self._gives
        return [give(result) for give, result in zip(gives, results, strict=True)]

    def raw(self, tensors: Sequence[Any]) -> list[Any]:
        """The same as TVM's tensors, which may be those that were given or constants of the program."""
        try:
            run = self._idle.pop()
        except IndexError:
            with in_one_piece():
                run = self.new_machine()[self._entry]
        token = id(run)  # TVM's allocator has a lock, and whatever forks while it is held waits for ever
        enter(token)
        try:
            with self._threads:
                results = list(_flat(run(*tensors)))
        finally:
            leave(token)
        self._idle.append(run)
        return results

    def new_machine(self) -> Any:
        """For one run at a time."""
        return virtual_machine(self._executable, self._device)

    def _ways_back(self, results: list[Any], tensors: Sequence[Any]) -> list[Callable[[Any], Array]]:
        """What makes arrays of the results: copies of those that may be constants, operands, or one another."""
        with in_one_piece(), self._lock:
            first = self._first
            if self._branches or first is None:
                self._first = None if self._branches else results
                return [partial(array_of, copied=True)] * len(results)
            taken = [span(tensor) for tensor in (*tensors, *first)]
            ways: list[Callable[[Any], Array]] = []
            for result in results:
                own = span(result)
                is_shared = any(_overlap(own, other) for other in taken)
                ways.append(partial(array_of, copied=True) if is_shared else way_back(str(result.dtype)))
                taken.append(own)
            self._gives, self._first = ways, None
            return ways


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, tvm_ffi.Tensor):
        yield value
    elif hasattr(value, "__iter__"):
        for item in value:
            yield from _flat(item)
    else:
        raise EqsatError(f"a session gives tensors, and the program gave {type(value).__name__}")
