"""A CUDA device as a target.

In: a ``cuda`` target as the user gives it, with its ``arch`` and ``model``. Out: :class:`CudaTarget`: layouts that
tensor cores are fed from, costs by a roofline of the machine. What is built is CUDA C++, its machine code where a
compiler is, and a plan for the host, which runs where a device is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Final

import tvm
from tvm import relax

from eqsat_layout.cost.database import Snapshot
from eqsat_layout.cost.model import CostModel
from eqsat_layout.graph.graph import Signature
from eqsat_layout.implementations.algorithms import ALGORITHMS, Algorithm
from eqsat_layout.implementations.layouts import Candidate
from eqsat_layout.notes import Notes
from eqsat_layout.targets.cuda.build import build
from eqsat_layout.targets.cuda.candidates import candidates
from eqsat_layout.targets.cuda.costs import CudaRoofline
from eqsat_layout.targets.cuda.host.executable import CudaProgram
from eqsat_layout.targets.cuda.machine import CudaMachine
from eqsat_layout.targets.cuda.machines import DEFAULT, machine_of
from eqsat_layout.targets.gpu.join import joined
from eqsat_layout.targets.protocol import Target
from eqsat_layout.targets.registry import parsed
from eqsat_layout.tir.computation import Computation

_LEFT_OUT: Final = ("im2col",)
"""Kernels gather windows while they multiply."""


class CudaTarget(Target):
    """A GPU of NVIDIA's."""

    kind: ClassVar[str] = "cuda"
    suffix: ClassVar[str] = ".program"

    @cached_property
    def machine(self) -> CudaMachine:
        """What is known of the device."""
        return machine_of(str(self.tvm.attrs["arch"]), str(self.tvm.attrs.get("model", "")))

    @property
    def cache_bytes(self) -> int:
        """The L2 cache."""
        return self.machine.l2_bytes

    def candidates(self, computation: Computation) -> Sequence[Candidate]:
        """Channels last, and in blocks of 16 bytes."""
        return candidates(computation)

    def algorithms(self) -> Sequence[Algorithm]:
        """Those that are not ``approx``, or all, but for :data:`_LEFT_OUT`."""
        known = [algorithm for algorithm in ALGORITHMS if algorithm.name not in _LEFT_OUT]
        return [algorithm for algorithm in known if self.approx or not algorithm.approx]

    def costs(self, known: Snapshot, ops: Iterable[Signature] = ()) -> CostModel:
        """Modelled only: nothing is measured on such devices yet."""
        return CudaRoofline(self.machine, self.approx)

    def join(self, mod: tvm.IRModule, notes: Notes) -> tvm.IRModule:
        """TVM's groups."""
        return joined(mod, notes, lambda scope: relax.VDevice(self.tvm, 0, scope))

    def build(self, mod: tvm.IRModule, notes: Notes) -> CudaProgram:
        """Kernels as CUDA C++ and machine code, and what the host does with them."""
        return build(mod, self.tvm, self.machine, notes, approx=self.approx)

    def saved(self, executable: Any) -> Sequence[bytes | memoryview] | None:
        """The program itself, which is data."""
        return executable.parts() if isinstance(executable, CudaProgram) else None

    def loaded(self, data: memoryview) -> CudaProgram:
        """A :class:`CudaProgram`."""
        return CudaProgram.from_bytes(data)


def make_target(given: Any, approx: bool) -> CudaTarget:
    """See :func:`eqsat_layout.targets.registry.target`. Where no ``arch`` is said, :data:`DEFAULT` is meant."""
    if isinstance(given, str) and given == CudaTarget.kind:
        given = {"kind": given}
    if isinstance(given, Mapping) and "arch" not in given:
        given = {**given, "arch": DEFAULT}
    found = CudaTarget(parsed(given), approx=approx)
    _ = found.machine  # raises where there is no such one
    return found
