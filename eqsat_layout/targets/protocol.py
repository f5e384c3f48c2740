"""What a target is asked: the one class that planning, tuning, validation and the build speak to.

In: what a user gives, checked. Out: memories, candidates, costs, kernels, executables. A target is a folder of this
room (or a package of its own, see :mod:`eqsat_layout.targets.registry`) with a subclass of :class:`Target`; whatever it
does not say has the answer of a machine with one flat memory that TVM builds for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy.typing as npt
import tvm
from tvm import relax

from eqsat_layout.cost.database import Snapshot
from eqsat_layout.cost.fusion import Fusion, fusion_of
from eqsat_layout.cost.measured import MeasuredCosts
from eqsat_layout.cost.model import CALIBRATED, CostModel, Roofline
from eqsat_layout.cost.traffic import TrafficCosts
from eqsat_layout.errors import CostError, TargetError
from eqsat_layout.graph.graph import Graph, Signature, TensorType
from eqsat_layout.graph.vdevices import with_vdevices
from eqsat_layout.implementations.algorithms import Algorithm
from eqsat_layout.implementations.layouts import Candidate
from eqsat_layout.maps import GLOBAL, Format, Formats, Memory
from eqsat_layout.notes import Notes
from eqsat_layout.passes.fuse import fuse
from eqsat_layout.targets.version import source_digest
from eqsat_layout.tir.computation import Computation

_PACKAGE: Final = __name__.partition(".")[0]

Progress = Callable[[str], None]
"""Called with the name of each step of a build as it starts."""

Emit = Callable[[Any, Sequence[Any]], Any]
"""From a block builder and operands to one result."""


@dataclass(frozen=True)
class Workload:
    """A kernel that calibration times. ``constant``: the field of the roofline that it tells.

    ``work``: bytes moved, or operations, of one run; 0: the seconds themselves are the constant. ``chained``: run so
    often, each time on the result of the time before, else on operands that are not in a cache. ``is_best``: of several
    workloads for a constant the fastest counts, else their median.
    """

    constant: str
    name: str
    emit: Emit
    operands: Sequence[npt.NDArray[Any]]
    result_bytes: int
    work: float
    chained: int = 0
    is_best: bool = True


@dataclass(frozen=True)
class Alone:
    """A kernel that is timed without the virtual machine: function ``name`` of a module, called with ``tensors``, its
    operands first, each a shape, a dtype and a memory scope."""

    module: Any
    name: str
    tensors: Sequence[tuple[tuple[int, ...], str, str]]


class Target:
    """A machine to plan and build for. ``kind``: what users call it. Subclasses override what differs.

    ``tvm``: the checked ``tvm.target.Target``. ``approx``: kernels may round differently than stated, or fail to be
    exact for infinite operands; :meth:`with_approx` changes that. ``elsewhere``: the name of the machine where it is
    not this one. Instances never change.
    """

    kind: ClassVar[str]
    suffix: ClassVar[str] = ".so"
    """Of files that what it builds is saved in."""
    any_address: ClassVar[bool] = False
    """What it builds takes tensors that begin at any multiple of their elements' size, not of 64 bytes only."""

    def __init__(self, tvm_target: tvm.target.Target, *, approx: bool = True, elsewhere: str | None = None):
        self.tvm, self.approx, self.elsewhere = tvm_target, approx, elsewhere

    @property
    def needs(self) -> tuple[str, ...]:
        """Sets of instructions without which what it builds ends the process, as Linux calls them."""
        return ()

    def with_approx(self, approx: bool) -> Target:
        """The same machine with kernels that are exact, or need not be."""
        return type(self)(self.tvm, approx=approx, elsewhere=self.elsewhere)

    def at(self, elsewhere: str) -> Target:
        """The same for a machine that goes by that name."""
        return type(self)(self.tvm, approx=self.approx, elsewhere=elsewhere)

    def on_host(self, host: Mapping[str, Any]) -> Target:
        """The same, built for TVM's runtime on a host of that CPU; itself where it is a CPU, or names its host."""
        return self

    # ---- the machine ------------------------------------------------------------------------------------------------

    @property
    def device(self) -> Any:
        """The TVM device of this machine that runs what is built; ``None`` where none does."""
        return None

    @property
    def name(self) -> str:
        """What the database of measurements calls the machine: the same text for machines that measure alike."""
        own = "" if self.tvm.kind.name == self.kind else f"{self.kind} "
        return f"{own}{self.tvm} {self.elsewhere or 'here'}"

    @property
    def version(self) -> str:
        """The version of the code that makes its kernels: measurements and kernels of another version are not used."""
        return source_digest(self.code)

    @property
    def code(self) -> str:
        """The module whose imports are all code that makes its kernels."""
        return type(self).__module__

    @property
    def is_foreign(self) -> bool:
        """It is of another package, so that its answers are checked, and its version is part of what is kept."""
        return not type(self).__module__.startswith(f"{_PACKAGE}.")

    @property
    def cache_bytes(self) -> int:
        """The bytes of its last-level cache: operands are cold when so much else was touched since."""
        return 32 << 20

    @property
    def has_byte_products(self) -> bool:
        """Products of unsigned by signed bytes, added up in 32 bits, are faster than those of floats."""
        return False

    @property
    def has_signed_products(self) -> bool:
        """So are those of signed bytes with one another."""
        return False

    @property
    def byte_rows(self) -> int:
        """Rows of data up to which a product with weights that bytes stand for is fastest where these stay bytes."""
        return 0

    # ---- memories: a target is a :class:`~eqsat_layout.tir.placement.Placement` -------------------------------------

    @property
    def memories(self) -> Mapping[str, Memory]:
        """The memories that tensors may lie in, by scope; :data:`GLOBAL` is among them."""
        return {GLOBAL: Memory()}

    def holds(self, tensor: TensorType, fmt: Format) -> str | None:
        """Why no memory holds ``tensor`` in ``fmt``, in words; ``None`` if one does."""
        memory = self.memories.get(fmt.scope)
        if memory is None:
            return f"target {self.kind!r} has no memory of scope {fmt.scope!r}"
        reason = memory.why_not(fmt, tensor.dtype)
        return None if reason is None else f"{fmt.scope} memory of target {self.kind!r}: {reason}"

    def reads(self, computation: Computation, buffer: int, fmt: Format) -> str | None:
        """Why a kernel can't read operand ``buffer`` in ``fmt``, which is not in flat memory; ``None`` if it can."""
        return None

    def writes(self, computation: Computation, buffer: int, fmt: Format) -> str | None:
        """The same for a result that it writes."""
        return None

    # ---- choices ----------------------------------------------------------------------------------------------------

    def candidates(self, computation: Computation) -> Sequence[Candidate]:
        """Formats (with memories) that a layout-critical op may also run in."""
        return ()

    def not_held(self, computation: Computation) -> Iterable[tuple[int, Format, str]]:
        """The buffers of a layout-critical op that a memory would suit but can't hold: in which format, and why."""
        return ()

    def algorithms(self) -> Sequence[Algorithm]:
        """Other ways to compute what blocks compute; without ``approx`` ones where the target is exact."""
        return ()

    def roofline(self) -> Roofline:
        """The cost model before anything is measured."""
        return Roofline()

    def costs(self, known: Snapshot, ops: Iterable[Signature] = ()) -> CostModel:
        """The cost model with what is ``known`` of the machine by measurement; ``ops`` are those that are planned."""
        model = self.modelled(known)
        return MeasuredCosts(known, model, self.name, self.version, ops) if known.has_kernels else model

    def modelled(self, known: Snapshot) -> CostModel:
        """What kernels are taken to cost before any is measured."""
        return with_constants(self._figures, self.constants(known))

    def traffic(self, time: CostModel) -> CostModel:
        """Costs by the bytes that are moved; ``time`` decides among plans that move the same."""
        return TrafficCosts(time, self._figures.bandwidth)

    @property
    def _figures(self) -> Roofline:
        figures: Any = self.roofline()
        if not isinstance(figures, Roofline):
            raise CostError(f"target {self.kind!r}: roofline must give a Roofline, got {figures!r}")
        return figures

    def constants(self, known: Snapshot) -> Mapping[str, float]:
        """The constants of the roofline that were calibrated on the machine."""
        stored = known.constants.get(self.name) if known.constants else None
        return {} if stored is None else stored.values

    def fusion(self, graph: Graph, signatures: Mapping[str, Signature], tensors: Sequence[Hashable]) -> Fusion:
        """Which ops :meth:`join` makes one kernel of; ``tensors[i]`` is what node i of the graph makes."""
        return fusion_of(graph, signatures, tensors)

    def joins(self, op: Signature, operands: Formats, results: Formats) -> bool:
        """:meth:`join` may make one kernel of that of a contraction in these formats, as far as they are given, and one
        before or after it, each with what is fused with it."""
        return False

    def probes(self, quick: bool = False) -> Sequence[Workload]:
        """What calibration times to know the constants of :meth:`roofline`."""
        return ()

    # ---- the build --------------------------------------------------------------------------------------------------

    def place(self, mod: tvm.IRModule) -> tvm.IRModule:
        """``mod`` with virtual devices for the memory scopes of its PrimFuncs."""
        return with_vdevices(mod, lambda scope: relax.VDevice(self.tvm, 0, scope))

    def join(self, mod: tvm.IRModule, notes: Notes) -> tvm.IRModule:
        """A legalised module with one PrimFunc per kernel, not scheduled yet."""
        return fuse(mod, notes)

    def kernels(self, mod: tvm.IRModule, notes: Notes) -> tvm.IRModule:
        """The same, for who only asks what becomes one kernel."""
        return self.join(mod, notes)

    def slow_kernels(self, mod: tvm.IRModule) -> Sequence[str]:
        """What a build says of the kernels of a joined module that no fast code is known for, one text for each."""
        return ()

    def schedule(self, mod: tvm.IRModule, notes: Notes) -> tvm.IRModule:
        """``mod`` with its kernels scheduled."""
        return mod

    def build(self, mod: tvm.IRModule, notes: Notes) -> Any:
        """A module of kernels as TVM's executable; kernels that are not scheduled are scheduled first."""
        scheduled: Any = self.schedule(mod, notes)
        if not isinstance(scheduled, tvm.IRModule):
            raise TargetError(f"target {self.kind!r}: schedule must give a tvm.IRModule, got {scheduled!r}")
        return tvm.compile(scheduled, target=self.tvm)

    def why_not_called(self, mod: tvm.IRModule) -> str | None:
        """Why functions of ``mod`` can't be called as its types say in what :meth:`build` makes, in words; ``None`` if
        they can. A kernel that is built to be timed is not called so."""
        return None

    def alone(self, executable: Any) -> Alone | None:
        """The one kernel of a program that was built to time it; ``None`` where the program is run as it is."""
        return None

    def saved(self, executable: Any) -> Sequence[bytes | memoryview] | None:
        """What :meth:`loaded` makes the executable of again, in parts; ``None`` where it is built anew each time."""
        return None

    def loaded(self, data: memoryview) -> Any:
        """The executable that was :meth:`saved` by the same version for the same machine."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.tvm}, approx={self.approx})"


def with_constants(base: Roofline, values: Mapping[str, float]) -> Roofline:
    """``base`` with those of the constants that calibration measures; another version may know others."""
    changed: dict[str, Any] = {name: value for name, value in values.items() if name in CALIBRATED}
    return dataclasses.replace(base, **changed)
