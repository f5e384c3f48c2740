"""What is the same for all targets that launch threads from a host.

In: what a device's own target says of its kernels. Out: :class:`DeviceTarget`, whose programs are data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import tvm
from tvm import relax

from eqsat_layout.implementations.algorithms import ALGORITHMS, Algorithm
from eqsat_layout.notes import Notes
from eqsat_layout.passes.scalar_literals import with_integers
from eqsat_layout.targets.gpu.host.device_program import DeviceProgram
from eqsat_layout.targets.gpu.join import joined_kernels
from eqsat_layout.targets.protocol import Target


class DeviceTarget(Target):
    """``program``: the class of what it builds. ``left_out``: names of algorithms that gain nothing there."""

    suffix: ClassVar[str] = ".program"
    program: ClassVar[type[DeviceProgram]]
    left_out: ClassVar[tuple[str, ...]] = ()

    def algorithms(self) -> Sequence[Algorithm]:
        """Those that are not ``approx``, or all, but for :attr:`left_out`."""
        known = [algorithm for algorithm in ALGORITHMS if algorithm.name not in self.left_out]
        return [algorithm for algorithm in known if self.approx or not algorithm.approx]

    def join(self, mod: tvm.IRModule, notes: Notes) -> tvm.IRModule:
        """TVM's groups, whatever memories their ends lie in; indices that are known are part of kernels before."""
        return joined_kernels(with_integers(mod), notes, lambda scope: relax.VDevice(self.tvm, 0, scope))

    def saved(self, executable: Any) -> Sequence[bytes | memoryview] | None:
        """The program itself, which is data."""
        return executable.parts() if isinstance(executable, self.program) else None

    def loaded(self, data: memoryview) -> DeviceProgram:
        """The program that was :meth:`saved`."""
        return self.program.from_bytes(data)
