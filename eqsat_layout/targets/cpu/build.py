"""The build for CPUs through LLVM: kernels one by one, in parallel, each of them once for all programs.

In: a module of kernels and a checked TVM target. Out: an executable for ``relax.VirtualMachine``. Kernels are looked up
in the store by their structure, the target and the version; what is missing is made by several processes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tvm
from tvm.support import cc
from tvm_ffi.serialization import to_json_graph_str

from eqsat_layout.errors import EqsatError
from eqsat_layout.notes import Notes, first_line
from eqsat_layout.passes.branch_storage import relax_pipeline
from eqsat_layout.passes.fitting_calls import with_fitting_calls
from eqsat_layout.system.frames import head_of, split_head
from eqsat_layout.system.store import ArtefactStore
from eqsat_layout.system.workers import workers
from eqsat_layout.targets.cpu.accepted import may_fail
from eqsat_layout.targets.cpu.machine import machine_of
from eqsat_layout.targets.cpu.objects import KernelJob, MadeObject, build_scheduled, make_object
from eqsat_layout.targets.cpu.units import Unit, named_by_structure, other_units, units_by_function
from eqsat_layout.targets.executable import POOL, Executable, ObjectFile, linked_when_exported, shared_library

__all__ = ["Build", "build_scheduled"]


@dataclass(frozen=True)
class Build:
    """What kernels are built for. ``version``: of the code that makes them. ``runs_here``: this machine runs them.

    ``any_address``: every kernel takes operands from anywhere, not only those that are given any from outside.
    """

    target: tvm.target.Target
    version: str
    runs_here: bool
    store: ArtefactStore
    any_address: bool = False

    def executable(self, mod: tvm.IRModule, notes: Notes) -> Any:
        """``mod`` built. A kernel whose schedule can't be lowered is built without one, and a note says so."""
        named, units = named_by_structure(self._called(mod))
        with self.target:
            lowered = relax_pipeline(exact=machine_of(self.target).is_exact)(named)
        units += other_units(lowered, units)
        objects = [ObjectFile(unit.symbols, data) for unit, data in zip(units, self._made(units, notes), strict=True)]
        if not self.runs_here or cc.get_cc() is None:
            return linked_when_exported(lowered, objects, self.target)
        return Executable(lowered, self.target, self._library(objects), objects)

    @contextmanager
    def ahead(self, mod: tvm.IRModule, notes: Notes) -> Iterator[Callable[[Any], None]]:
        """Gives what to call with a function of ``mod`` that will be built: other processes make it meanwhile."""
        units = units_by_function(self._called(mod)) if self.store.limit else {}
        begun: list[Unit] = []

        def keep(number: int, made: MadeObject | Exception) -> None:
            if isinstance(made, MadeObject):  # who needs a kernel that fails makes it again, and says so
                self._keep(begun[number], made)

        with workers().ahead(make_object, keep) as give:

            def begin(function: Any) -> None:
                unit = units.pop(function, None)
                if unit is not None and self._known(unit, Notes()) is None:
                    begun.append(unit)
                    give(self._jobs([unit], notes)[0])

            yield begin

    def _called(self, mod: tvm.IRModule) -> tvm.IRModule:
        return mod if self.any_address else with_fitting_calls(mod)

    def _made(self, units: Sequence[Unit], notes: Notes) -> list[bytes]:
        """The machine code of each unit."""
        workers().settle()
        found = {number: data for number, unit in enumerate(units) if (data := self._known(unit, notes)) is not None}
        missing = [number for number in range(len(units)) if number not in found]
        missing.sort(key=lambda number: -units[number].size)  # so that no process is left with a long one at the end
        jobs = self._jobs([units[number] for number in missing], notes)
        make = workers().map_apart if may_fail(self.target) else workers().map
        for number, made in zip(missing, make(make_object, jobs), strict=True):
            if isinstance(made, Exception):
                symbols = " and ".join(units[number].symbols)
                raise EqsatError(f"kernel {symbols} can't be built: {first_line(made)}") from made
            found[number] = made.data
            self._keep(units[number], made)
            for note in made.notes:
                notes.add(note)
        if missing:
            self.store.trim()
        return [found[number] for number in range(len(units))]

    def _jobs(self, units: Sequence[Unit], notes: Notes) -> list[KernelJob]:
        target = to_json_graph_str(self.target)
        functions = [tuple(zip(unit.symbols, unit.texts, strict=True)) for unit in units]
        return [KernelJob(own, target, notes.strict) for own in functions]

    def _known(self, unit: Unit, notes: Notes) -> bytes | None:
        """From the store, if it is of the same functions: their hash in the key has 64 bits only."""
        stored = self.store.get(self._key(unit))
        if stored is None:
            return None
        (digest, texts, told), data = split_head(stored)
        if digest != unit.digest and not unit.is_same(texts):
            return None
        for note in told:
            notes.add(note)
        return bytes(data)

    def _keep(self, unit: Unit, made: MadeObject) -> None:
        """One that was built as it should be."""
        if not made.is_faulty:
            self.store.put(self._key(unit), [head_of([unit.digest, unit.texts, made.notes]), made.data])

    def _key(self, unit: Unit) -> str:
        return f"kernel {self.version} {tvm.__version__} {self.target} {' '.join(unit.symbols)} {unit.structure}"

    def _library(self, objects: Sequence[ObjectFile]) -> bytes:
        """The shared library of all kernels."""
        parts = (POOL.read_bytes(), *(one.data for one in objects))
        key = f"library {' '.join(hashlib.sha256(part).hexdigest() for part in parts)}"
        known = self.store.get(key)
        if known is not None:
            return bytes(known)
        library = shared_library(objects)
        self.store.put(key, [library])
        return library
