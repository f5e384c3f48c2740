"""Runs of a program for a device, one at a time.

In: a program, tensors. Out: the results as arrays that nobody else writes to.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from eqsat_layout.session.tensors import Array, array_of
from eqsat_layout.system.forks import in_one_piece
from eqsat_layout.targets.gpu.host.device_program import DeviceProgram
from eqsat_layout.targets.gpu.host.plan import flattened
from eqsat_layout.targets.gpu.host.runner import Runner


class DeviceRuns:
    """On the first device of this machine; several threads take turns."""

    def __init__(self, program: DeviceProgram, entry: str) -> None:
        self._program, self._entry = program, entry
        self._lock = threading.Lock()

    def __call__(self, tensors: Sequence[Any]) -> list[Array]:
        """What the program makes of ``tensors``, tuples in order."""
        arrays = [array_of(tensor, copied=False) for tensor in tensors]
        with in_one_piece(), self._lock:
            return list(flattened([self._runner(*arrays, entry=self._entry)]))

    @cached_property
    def _runner(self) -> Runner:
        return self._program.on()
