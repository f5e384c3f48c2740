"""What was found out of windows of calls, kept for the next module: a plan that is compared with another one as both
are built, and then built, has most of its kernels three times.

In: PrimFuncs, by what they are and not by their names. Out: numbers for them; what is known by these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import tvm_ffi

from eqsat_layout.targets.cpu.machine import CpuMachine

_MOST: Final = 200
"""Functions of which something is kept; some tens of kilobytes each."""


@dataclass
class KnownWindows:
    """Of one machine. ``kernels`` by the number of a function; ``gains``, ``padded``, ``made`` by windows of them."""

    kernels: dict[Any, Any] = field(default_factory=dict)
    gains: dict[Any, Any] = field(default_factory=dict)
    padded: dict[Any, Any] = field(default_factory=dict)
    made: dict[Any, Any] = field(default_factory=dict)
    _numbers: dict[Any, int] = field(default_factory=dict)

    def number(self, function: Any) -> int:
        """The same for the same function, whatever it is called."""
        return self._numbers.setdefault(
            tvm_ffi.StructuralKey(function.without_attr("global_symbol")), len(self._numbers)
        )

    @property
    def is_full(self) -> bool:
        return len(self._numbers) > _MOST


_known: Final[dict[CpuMachine, KnownWindows]] = {}


def known_windows(machine: CpuMachine) -> KnownWindows:
    """What is known of kernels on ``machine``; nothing once that has become much."""
    found = _known.get(machine)
    if found is None or found.is_full:
        _known.clear()
        found = _known[machine] = KnownWindows()
    return found
