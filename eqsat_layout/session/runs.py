"""Runs of one program, by as many threads as like to.

In: an executable, tensors. Out: the results as arrays that nobody else writes to.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import tvm_ffi

from eqsat_layout.errors import EqsatError
from eqsat_layout.session.runtime import virtual_machine
from eqsat_layout.session.tensors import Array, given_back, span


class Runs:
    """A virtual machine for every run at a time, made when all others are busy.

    Results are given away as they are where that is safe. A program without branches does the same every time, so that
    a result that has memory of its own in two runs, the first result still alive, is no constant of the program. Those
    of the first run are copied.
    """

    def __init__(self, executable: Any, device: tuple[int, int], entry: str, *, branches: bool):
        self._executable, self._device, self._entry = executable, device, entry
        self._idle: deque[Any] = deque()
        self._lock = threading.Lock()
        self._branches = branches
        self._first: list[Any] | None = None
        self._is_fresh: list[bool] | None = None

    def __call__(self, tensors: Sequence[Any]) -> list[Array]:
        """What the program makes of ``tensors``, tuples in order."""
        results = self.raw(tensors)
        fresh = self._fresh(results)
        taken = [span(tensor) for tensor in tensors]
        arrays: list[Array] = []
        for result, is_fresh in zip(results, fresh, strict=True):
            own = span(result)
            arrays.append(given_back(result, copied=not is_fresh or any(_overlap(own, other) for other in taken)))
            taken.append(own)
        return arrays

    def raw(self, tensors: Sequence[Any]) -> list[Any]:
        """The same as TVM's tensors, which may be those that were given or constants of the program."""
        try:
            machine = self._idle.pop()
        except IndexError:
            machine = virtual_machine(self._executable, self._device)
        results = list(_flat(machine[self._entry](*tensors)))
        self._idle.append(machine)
        return results

    def _fresh(self, results: list[Any]) -> list[bool]:
        """Which results are known to be made anew by each run."""
        if self._branches:
            return [False] * len(results)
        with self._lock:
            if self._first is None and self._is_fresh is None:
                self._first = results
                return [False] * len(results)
            if self._is_fresh is None:
                assert self._first is not None
                pairs = zip(map(span, results), map(span, self._first), strict=True)
                self._is_fresh = [not _overlap(own, first) for own, first in pairs]
                self._first = None
            return self._is_fresh


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
