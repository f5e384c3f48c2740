"""A CUDA device as a target.

In: a ``cuda`` target as the user gives it, with its ``arch`` and ``model``. Out: :class:`CudaTarget`: layouts that
tensor cores are fed from, costs by a roofline of the machine. What is built is CUDA C++, its machine code where a
compiler is, and a plan for the host, which runs where a device is.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Final

import tvm

from eqsat_layout.cost.database import Snapshot
from eqsat_layout.cost.fusion import Fusion
from eqsat_layout.cost.model import CostModel
from eqsat_layout.cost.traffic import TrafficCosts
from eqsat_layout.errors import TargetError
from eqsat_layout.graph.graph import Graph, Signature
from eqsat_layout.implementations.layouts import Candidate
from eqsat_layout.notes import Notes
from eqsat_layout.targets.cuda.build import build, slow_kernels
from eqsat_layout.targets.cuda.candidates import candidates
from eqsat_layout.targets.cuda.costs import CudaRoofline
from eqsat_layout.targets.cuda.fusion import with_attention
from eqsat_layout.targets.cuda.host.described import HERE, described_here
from eqsat_layout.targets.cuda.host.executable import CudaProgram
from eqsat_layout.targets.cuda.join_attention import join_attention
from eqsat_layout.targets.cuda.machine import CudaMachine
from eqsat_layout.targets.cuda.machines import DEFAULT, machine_of, model_name
from eqsat_layout.targets.gpu.target import DeviceTarget
from eqsat_layout.targets.registry import parsed
from eqsat_layout.tir.computation import Computation

_CUT: Final = "tensorfloat32"
"""Of a target as a user gives it, and a key of TVM's: products of float32 keep 10 bits of each operand."""


class CudaTarget(DeviceTarget):
    """A GPU of NVIDIA's."""

    kind: ClassVar[str] = "cuda"
    program = CudaProgram
    left_out = ("im2col",)
    """Kernels gather windows while they multiply."""

    @cached_property
    def machine(self) -> CudaMachine:
        """What is known of the device."""
        found = machine_of(str(self.tvm.attrs["arch"]), str(self.tvm.attrs.get("model", "")))
        return replace(found, of_floats=_CUT) if _CUT in self.tvm.keys else found

    @property
    def name(self) -> str:
        """A card's, whichever machine it is in, and how products are computed, which makes them other kernels."""
        arch = str(self.tvm.attrs["arch"])
        parts = [self.kind, arch, model_name(arch, str(self.tvm.attrs.get("model", "")))]
        parts += [_CUT] if self.machine.of_floats == _CUT else []
        return " ".join([*parts, *([] if self.approx else ["exact"]), *([self.elsewhere] if self.elsewhere else [])])

    @property
    def cache_bytes(self) -> int:
        """The L2 cache."""
        return self.machine.l2_bytes

    @property
    def has_byte_products(self) -> bool:
        """Tensor cores multiply bytes, twice as many as halves."""
        return True

    @property
    def has_signed_products(self) -> bool:
        """Whichever operand has signs."""
        return True

    def candidates(self, computation: Computation) -> Sequence[Candidate]:
        """Channels last, and in blocks of 16 bytes."""
        return candidates(computation)

    def modelled(self, known: Snapshot) -> CostModel:
        """Products as the build plans them, all else by a roofline."""
        return CudaRoofline(self.machine, self.approx)

    def traffic(self, time: CostModel) -> CostModel:
        """Beside what memory can move."""
        return TrafficCosts(time, self.machine.bandwidth)

    def fusion(self, graph: Graph, signatures: Mapping[str, Signature], tensors: Sequence[Hashable]) -> Fusion:
        """As :meth:`join` does it."""
        found = super().fusion(graph, signatures, tensors)
        return with_attention(found, graph, signatures, tensors) if self.approx else found

    def join(self, mod: tvm.IRModule, notes: Notes) -> tvm.IRModule:
        """Epilogues, and the two products of attention, which add up in another order then."""
        mod = super().join(mod, notes)
        return join_attention(mod, self.machine) if self.approx else mod

    def slow_kernels(self, mod: tvm.IRModule) -> Sequence[str]:
        """Those that run in one thread."""
        return slow_kernels(mod, self.machine, approx=self.approx)

    def build(self, mod: tvm.IRModule, notes: Notes) -> CudaProgram:
        """Kernels as CUDA C++ and machine code, and what the host does with them."""
        return build(mod, self.tvm, self.machine, notes, approx=self.approx)


def make_target(given: Any, approx: bool) -> CudaTarget:
    """See :func:`eqsat_layout.targets.registry.target`. Where no ``arch`` is said, :data:`DEFAULT` is meant."""
    if isinstance(given, str) and given == CudaTarget.kind:
        given = {"kind": given}
    if isinstance(given, Mapping):
        if given.get("model") == HERE:
            arch, model = described_here()
            given = {"arch": arch, **given, "model": model}
        given = {"arch": DEFAULT, **given}
        is_cut = given.pop(_CUT, False)
        if not isinstance(is_cut, bool):
            raise TargetError(f"{_CUT!r} of a CUDA target is true or false, not {is_cut!r}")
        if is_cut:
            given["keys"] = [*given.get("keys", ("cuda", "gpu")), _CUT]
    found = CudaTarget(parsed(given), approx=approx)
    _ = found.machine  # raises where there is no such one
    return found
