"""Times of the kernels that a session runs, one by one. In: a session and its inputs. Out: microseconds by kernel."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from eqsat_layout import Session
from eqsat_layout.session.runs import Runs


@dataclass(frozen=True)
class TimedKernel:
    """A call of one run: the kernel's ``name`` without its digest, the shapes of its operands and results."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    microseconds: float

    @property
    def operands(self) -> str:
        """These shapes, as a person reads them."""
        return "  ".join("x".join(map(str, shape)) for shape in self.shapes)


@contextmanager
def watched_machines() -> Iterator[list[Any]]:
    """TVM's machines that sessions make meanwhile."""
    machines: list[Any] = []
    plain = Runs.new_machine

    def watched(own: Runs) -> Any:
        machines.append(plain(own))
        return machines[-1]

    Runs.new_machine = watched  # type: ignore[assignment, method-assign]
    try:
        yield machines
    finally:
        Runs.new_machine = plain  # type: ignore[method-assign]


def timed_kernels(session: Session, feed: Mapping[str, Any], threads: int, runs: int) -> list[TimedKernel]:
    """The shortest time of each in so many ``runs``, in the order in which they run; processor time for one thread,
    which others on the machine disturb least. What TVM's machine does itself (allocation, views) is left out. The
    session must not have run before."""
    with watched_machines() as machines:
        session.run(None, feed)
    clock = time.process_time_ns if threads == 1 else time.perf_counter_ns
    shortest: dict[tuple[int, str, tuple[tuple[int, ...], ...]], float] = {}
    number = start = 0

    def watch(_: Any, name: str, before: bool, __: Any, *args: Any) -> None:
        nonlocal number, start
        if before:
            start = clock()
            return
        taken = (clock() - start) / 1e3
        shapes = tuple(tuple(map(int, a.shape)) for a in args if hasattr(a, "shape") and hasattr(a, "dtype"))
        key = (number, name, shapes)
        shortest[key] = min(taken, shortest.get(key, taken))
        number += 1

    machines[-1]["set_instrument"](watch)
    for _ in range(runs):
        number = 0
        session.run(None, feed)
    return [
        TimedKernel(name.rpartition("_")[0], shapes, taken)
        for (_, name, shapes), taken in shortest.items()
        if not name.startswith("vm.builtin")
    ]
