"""A CPU as a target.

In: an ``llvm`` target as the user gives it. Out: :class:`CpuTarget`: flat memory, candidates whose channels fill
vectors, a roofline by the vector width, kernels through TVM's LLVM. What makes kernels is imported when some are made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

import tvm
from tvm.target import codegen

from eqsat_layout.cost.addresses import slides_along_vectors
from eqsat_layout.cost.model import Roofline
from eqsat_layout.errors import TargetError
from eqsat_layout.graph.graph import Signature
from eqsat_layout.implementations.algorithms import ALGORITHMS, Algorithm
from eqsat_layout.implementations.layouts import Blocking, Candidate, layout_candidates
from eqsat_layout.maps import Formats
from eqsat_layout.notes import Notes
from eqsat_layout.system.machine import threads
from eqsat_layout.system.own_cpu import own_cpu
from eqsat_layout.targets.cpu import host
from eqsat_layout.targets.cpu.accepted import check_accepted, check_triple
from eqsat_layout.targets.cpu.amx.instructions import OF_BYTES, OF_FLOATS, is_permitted
from eqsat_layout.targets.cpu.costs import default_costs
from eqsat_layout.targets.cpu.dot_products import BYTES_OF_WORD
from eqsat_layout.targets.cpu.machine import EXACT, CpuMachine, machine_of
from eqsat_layout.targets.protocol import Target, Workload
from eqsat_layout.targets.registry import parsed
from eqsat_layout.tir.computation import Computation

if TYPE_CHECKING:
    from eqsat_layout.targets.cpu.kernels import Build

_BLOCKS: Final = (4, 8, 16)
"""Sizes of channel blocks that frameworks and kernels know."""

_BYTE_ROWS: Final = 8

_KERNELS: Final = "eqsat_layout.targets.cpu.kernels"
"""What shapes the kernels is what this module imports; candidates and costs only choose among them."""


class CpuTarget(Target):
    """This machine's CPU, or another one that LLVM knows."""

    kind: ClassVar[str] = "llvm"
    any_address: ClassVar[bool] = True

    @property
    def device(self) -> Any:
        """The CPU, where this machine runs what is built for the target."""
        return tvm.cpu() if self.elsewhere is None and host.runs(self.tvm, normalize_target()) else None

    @property
    def needs(self) -> tuple[str, ...]:
        """The features of x86 that kernels need."""
        return host.needs(self.tvm)

    @cached_property
    def machine(self) -> CpuMachine:
        """The figures of the CPU."""
        return machine_of(self.tvm)

    @cached_property
    def name(self) -> str:
        """Kind, architecture, CPU and its features, the CPU's own name, threads.

        For a target of this machine's architecture the CPU's name is in it, not only LLVM's name of the family.
        """
        attrs = dict(self.tvm.attrs)
        triple = str(attrs.get("mtriple") or codegen.llvm_get_system_triple())
        features = hashlib.sha256(" ".join(host.features(self.tvm)).encode()).hexdigest()[:8]
        cpu = self.elsewhere or (host.cpu_name() if host.runs(self.tvm, normalize_target()) else "elsewhere")
        threads = f"{int(attrs.get('num-cores', 1))} threads"
        return " ".join((self.kind, triple.split("-")[0], str(attrs.get("mcpu", "generic")), features, cpu, threads))

    @property
    def code(self) -> str:
        """The schedules and passes."""
        return _KERNELS

    @property
    def cache_bytes(self) -> int:
        """This machine's last-level cache, or a usual one."""
        return host.last_cache_bytes()

    @property
    def has_byte_products(self) -> bool:
        """VNNI of x86."""
        return self.machine.byte_products

    @property
    def byte_rows(self) -> int:
        """Of more, making floats of the bytes takes longer than reading them does (measured on Zen 4: 1 row .3 to .4 of
        the time, 4 .4 to .6, 8 .7 to .8)."""
        return _BYTE_ROWS

    def with_approx(self, approx: bool) -> CpuTarget:
        """Without its matrix unit for floats if results are to be exact, else with this machine's again."""
        return make_target(self.tvm if not approx else _with_unit(self.tvm), approx)

    @property
    def blocks(self) -> tuple[int, ...]:
        """Sizes of channel blocks, ascending: those that fill a vector of 4-byte elements."""
        lanes = self.machine.lanes(4)
        return tuple(block for block in _BLOCKS if block >= lanes)

    def candidates(self, computation: Computation) -> Sequence[Candidate]:
        """Channels last, and in blocks that fill vectors."""
        word = BYTES_OF_WORD if self.machine.byte_products else 0
        return layout_candidates(computation, Blocking(self.blocks, few=min(self.blocks, default=0), word=word))

    def algorithms(self) -> Sequence[Algorithm]:
        """Those that are not ``approx``, or all."""
        return [algorithm for algorithm in ALGORITHMS if self.approx or not algorithm.approx]

    def roofline(self) -> Roofline:
        """A roofline of one core, by its vector width: proportions matter and not seconds."""
        return default_costs(self.machine)

    def joins(self, op: Signature, operands: Formats, results: Formats) -> bool:
        """Where no window slides along the vectors: those at a border would have conditions."""
        return op.computation is not None and not slides_along_vectors(op.computation, operands, results)

    def probes(self, quick: bool = False) -> Sequence[Workload]:
        """Streams, copies into blocks and back, convolutions, and a kernel that does next to nothing."""
        from eqsat_layout.targets.cpu.calibration import workloads  # for who calibrates

        return workloads(self.machine, self.cache_bytes, quick)

    def join(self, mod: tvm.IRModule, notes: Notes) -> tvm.IRModule:
        """TVM's groups, and nests of several whose working set stays in the L2 cache."""
        from eqsat_layout.targets.cpu.kernels import join_calls  # see the head

        return join_calls(mod, self.machine, notes, self._build)

    def kernels(self, mod: tvm.IRModule, notes: Notes) -> tvm.IRModule:
        """The same; none of them is built meanwhile."""
        from eqsat_layout.targets.cpu.kernels import join_calls  # see the head

        return join_calls(mod, self.machine, notes)

    def schedule(self, mod: tvm.IRModule, notes: Notes) -> tvm.IRModule:
        """Tiled, in vectors, parallel; kernels that are joined are scheduled already."""
        from eqsat_layout.targets.cpu.kernels import schedule_module  # see the head

        return schedule_module(mod, self.machine, notes)

    @property
    def at_any_address(self) -> CpuTarget:
        """The same, each of whose kernels may be called by itself with operands that begin anywhere."""
        return _AtAnyAddress(self.tvm, approx=self.approx, elsewhere=self.elsewhere)

    def build(self, mod: tvm.IRModule, notes: Notes) -> Any:
        """Through LLVM, kernels in parallel and from the store; those that are not scheduled yet are scheduled."""
        return self._build.executable(mod, notes)

    @property
    def _build(self) -> Build:
        from eqsat_layout.system.store import ArtefactStore  # see the head
        from eqsat_layout.targets.cpu.kernels import Build

        return Build(self.tvm, self.version, self.device is not None, ArtefactStore.usual())

    def saved(self, executable: Any) -> Sequence[bytes | memoryview] | None:
        """Its program, constants and kernels, if they are linked for this machine."""
        from eqsat_layout.targets.executable import Executable  # see the head

        return executable.saved() if isinstance(executable, Executable) else None

    def loaded(self, data: memoryview) -> Any:
        """An :class:`Executable`."""
        from eqsat_layout.targets.executable import Executable  # see the head

        return Executable.loaded(data, self.tvm)


class _AtAnyAddress(CpuTarget):
    def with_approx(self, approx: bool) -> CpuTarget:
        return super().with_approx(approx).at_any_address

    @property
    def _build(self) -> Build:
        return replace(super()._build, any_address=True)


def make_target(given: Any, approx: bool) -> CpuTarget:
    """See :func:`eqsat_layout.targets.registry.target`."""
    return CpuTarget(normalize_target(given, approx=approx), approx=approx)


def normalize_target(given: Any = None, *, approx: bool = True) -> tvm.target.Target:
    """The checked TVM target: ``None`` or ``"llvm"`` is this machine; else a string, a dict or a ``Target``.

    One without ``mcpu`` gets the host's, and one without ``num-cores`` the threads that TVM will use. Without ``mcpu``
    and ``mattr`` it also gets the host's matrix unit, if that may be used; ``approx=False``: it has it for bytes only
    whatever is given, as products of floats on it (:mod:`eqsat_layout.targets.cpu.amx.bfloat16_parts`) differ for
    infinite operands, and a key that says so to what schedules. Raises :class:`TargetError` that names the target for
    one that is unknown or can't be built for here.
    """
    if not tvm.get_global_func("target.build.llvm", allow_missing=True):
        raise TargetError("this TVM was built without LLVM")
    config = {k: v for k, v in dict(parsed("llvm" if given is None else given).attrs).items() if k in _KEPT}
    config = {"kind": "llvm"} | config
    if host.is_architecture(config) and "mcpu" not in config:
        unit = dict.fromkeys((*OF_FLOATS, *OF_BYTES)) if is_permitted() else ()
        config["mcpu"] = own_cpu().name
        if allowed := [*own_cpu().hidden, *config.get("mattr", unit)]:
            config["mattr"] = allowed
    if not approx:
        config["keys"] = ["cpu", EXACT]
    if not approx and "mattr" in config:
        own = set(OF_FLOATS) - set(OF_BYTES)
        config["mattr"] = [attribute for attribute in map(str, config["mattr"]) if attribute not in own]
    config.setdefault("num-cores", threads())
    if config.get("mtriple"):
        check_triple(str(config["mtriple"]))
    checked = tvm.target.Target(config)
    if int(checked.attrs["num-cores"]) < 1:
        raise TargetError(f"a CPU of {checked.attrs['num-cores']} cores")
    mcpu = config.get("mcpu")
    triple = config.get("mtriple") or str(codegen.llvm_get_system_triple())
    if mcpu and mcpu != "generic" and not codegen.llvm_is_valid_cpu(str(mcpu), str(triple)):
        raise TargetError(f"LLVM {codegen.llvm_version_major()} knows no mcpu {mcpu!r} for {triple!r}")
    check_accepted(checked)
    return checked


_KEPT: Final = ("mcpu", "mtriple", "mattr", "num-cores", "mfloat-abi", "mabi", "opt-level", "vector-width")


def _with_unit(target: tvm.target.Target) -> Mapping[str, Any]:
    """The target with the matrix unit that :func:`normalize_target` gives this machine, if it is this machine's CPU."""
    config = {k: v for k, v in dict(target.attrs).items() if k in _KEPT}
    usual = {*OF_BYTES, *own_cpu().hidden}
    if config.get("mcpu") == own_cpu().name and usual.issuperset(map(str, config.get("mattr", ()))):
        config.pop("mattr", None)
        config.pop("mcpu")
    return {"kind": "llvm"} | config
