"""Kernels joined into one where tiles of all of them stay in the cache.

In: a Relax module of ``call_tir`` calls. Out: the same, in which calls of which only the last one gives something to
others are one PrimFunc where that is faster: tile by tile, row by row, or on the accumulators of a reduction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import tvm
from tvm import relax

from eqsat_layout.notes import Notes
from eqsat_layout.passes.call_windows import (
    KernelCall,
    calls_of,
    inner_calls,
    is_closed,
    one_function,
    window_arguments,
    window_key,
    with_calls,
)
from eqsat_layout.passes.marks import SAVED
from eqsat_layout.passes.wide_floats import wide_floats
from eqsat_layout.targets.cpu.amx.selection import SplitProduct, split_product
from eqsat_layout.targets.cpu.chains.best_cuts import BestCuts
from eqsat_layout.targets.cpu.chains.cut_choices import fastest_cut, may_be_cut
from eqsat_layout.targets.cpu.chains.known_windows import KnownWindows, known_windows
from eqsat_layout.targets.cpu.chains.move_pads import may_move_pads, pads_first
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.chain import Chain, chain_of
from eqsat_layout.targets.cpu.model.chain_model import ChainModel, FusedTiles
from eqsat_layout.targets.cpu.places.byte_words import in_words
from eqsat_layout.targets.cpu.schedule import joined_primfunc
from eqsat_layout.targets.cpu.single.dense_rows import in_dense_rows
from eqsat_layout.targets.cpu.single.simplify import simplified_schedule
from eqsat_layout.targets.schedules.attempts import isolated, unless_refused
from eqsat_layout.targets.schedules.fuse_rows import fuse_axes
from eqsat_layout.targets.schedules.stages import Stage, new_schedule, stages_of

T = TypeVar("T")

_LONGEST = 8  # calls in one kernel: all windows of so many are compared
_SHORT = 30_000.0  # nanoseconds of a window, as modelled, of which a call is a share
_REMADE = 2.0  # times that windows make what is part of the pad they read, about: tiles share borders


def join_chains(
    mod: tvm.IRModule,
    machine: CpuMachine,
    notes: Notes | None = None,
    kept: Callable[[Any], object] = lambda callee: None,
) -> tvm.IRModule:
    """``mod`` with calls joined; ``mod`` itself where nothing is gained.

    A fault in a kernel is one of ``notes`` (strict: raised), and its calls are joined with no others. ``kept``: told of
    a callee as soon as it is known that it stays.
    """
    builder, known = relax.BlockBuilder(mod), known_windows(machine)
    joiner = _CallJoiner(mod, machine, ChainModel(machine), builder, Notes() if notes is None else notes, kept, known)
    return with_calls(mod, builder, joiner.joined)


@dataclass(frozen=True)
class _Kernel:
    """A PrimFunc: its stages, its parameters as they stand in these, and nanoseconds alone."""

    chain: Chain
    params: tuple[Any, ...]
    nanoseconds: float


@dataclass
class _CallJoiner:
    mod: tvm.IRModule
    machine: CpuMachine
    model: ChainModel
    builder: Any
    notes: Notes
    kept: Callable[[Any], object]
    known: KnownWindows
    _numbers: dict[Any, int] = field(default_factory=dict)
    _added: dict[Any, Any] = field(default_factory=dict)
    _faults: dict[tuple[int, Any], Any] = field(default_factory=dict)
    """What was found where something failed: not for the next module, which is to be told, too."""
    _failures: int = 0

    def joined(self, function: Any) -> dict[Any, Any]:
        """For each variable the call that defines it from now on; ``None``: it is not needed any more."""
        calls, readers = calls_of(function)
        return self._joined(_in_lines(calls, readers), readers)

    def _joined(self, calls: Sequence[KernelCall], readers: Mapping[Any, list[Any]]) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for window in self._windows(calls, readers):
            joined = self._join(window) if len(window) > 1 else None
            if joined is not None:
                found |= {call.var: None for call in window[:-1]} | {window[-1].var: joined}
            elif len(window) > 1:
                self._set_no_gain(self._key(window))  # it can't be made: others of its parts may be
                found |= self._joined(window, readers)
            else:
                self.kept(window[0].callee)
        return found

    def _set_no_gain(self, key: Any) -> None:
        """For the next module, too, unless making it has failed."""
        gain = id(self.known.gains), key
        if gain in self._faults or (id(self.known.made), key) in self._faults:
            self._faults[gain] = None
        else:
            self.known.gains[key] = None

    def _windows(self, calls: Sequence[KernelCall], readers: Mapping[Any, list[Any]]) -> Iterator[Sequence[KernelCall]]:
        """A sequence in the windows that save the most time in all; each is given as soon as no other can be better."""
        best = BestCuts(_LONGEST)
        for end in range(1, len(calls) + 1):
            windows = {start: calls[start:end] for start in range(end - 2, max(0, end - _LONGEST) - 1, -1)}
            best.add({start: self._gain(own) for start, own in windows.items() if is_closed(own, readers)})
            yield from (calls[first:last] for first, last in best.settled())
        yield from (calls[first:last] for first, last in best.rest())

    def _gain(self, window: Sequence[KernelCall]) -> float:
        """Nanoseconds that one kernel saves, 0 if none."""
        kernels = self._kernels_of(window)
        if len(kernels) < len(window):
            return 0.0
        return self._once(self.known.gains, self._key(window), window, lambda: self._new_gain(window, kernels)) or 0.0

    def _new_gain(self, window: Sequence[KernelCall], kernels: Sequence[_Kernel]) -> float:
        alone = sum(kernel.nanoseconds for kernel in kernels)
        if _is_line(window) and all(kernel.chain.is_regular for kernel in kernels):
            chain = _chain_of_kernels(window, kernels)
            if may_move_pads(chain):
                chain = (self.model.may_gain_with_pads_first(chain, alone) and self._with_pads_first(window)) or chain
            elif _pads_elementwise(chain):
                chain = self._inlined(window) or chain
                alone -= _REMADE * self.model.one_operation(chain.stages[0])
            tiles, cut = self.model.faster(chain, alone), self._cut(window, chain, alone)
            times = [own.nanoseconds for own in (tiles, cut) if own is not None]
            if times:
                return alone - min(times)
            if chain.is_regular and chain.passes == kernels[0].chain.passes:  # the others are epilogues
                return max(0.0, alone - self.model.apart(chain))
        return max(0.0, alone - self._in_rows(window, kernels)) or _calls_spared(kernels, self.machine)

    def _in_rows(self, window: Sequence[KernelCall], kernels: Sequence[_Kernel]) -> float:
        """Nanoseconds row by row; infinite where they don't work in rows."""
        are_rows = _are_rows([stage for kernel in kernels for stage in kernel.chain.stages])
        sch = self._schedule_of(window) if are_rows else None
        return self._rows_of(sch) if sch else math.inf

    def _rows_of(self, sch: Any) -> float:
        return self.model.in_rows(chain_of(stages_of(fuse_axes(sch))))

    def _with_pads_first(self, window: Sequence[KernelCall]) -> Chain | None:
        """The chain of a window that pads what it has made; ``None`` where the pad can't be moved."""
        return self._once(self.known.padded, self._key(window), window, lambda: self._new_with_pads_first(window))

    def _new_with_pads_first(self, window: Sequence[KernelCall]) -> Chain | None:
        last, places = self._kernel(window[-1]), inner_calls(window)[-1]
        if len(window) > 2 and last is not None and _is_read_by_reductions(last, places):
            chain = self._with_pads_first(window[:-1])
            return chain and chain.then(last.chain, _operands(last, places))
        function = self._function(window)
        sch = function and pads_first(new_schedule(function))
        return chain_of(stages_of(sch), has_pads=True) if sch else None

    def _cut(self, window: Sequence[KernelCall], chain: Chain, alone: float) -> FusedTiles | None:
        """The fastest tiles over axes that are cut, which the chain may need."""
        sch = self._schedule_of(window) if may_be_cut(chain, self.machine) else None
        cut = fastest_cut(sch, chain_of(stages_of(sch)), self.model, self.machine, alone) if sch else None
        return cut.tiles if cut else None

    def _inlined(self, window: Sequence[KernelCall]) -> Chain | None:
        """The chain of a window whose first call is part of the pad that reads it."""
        sch = self._schedule_of(window)
        return chain_of(stages_of(sch)) if sch else None

    def _schedule_of(self, window: Sequence[KernelCall]) -> Any:
        """One over all stages of a window; ``None`` where its calls are no one function."""
        function = self._function(window)
        return simplified_schedule(new_schedule(function), self.machine) if function else None

    def _function(self, window: Sequence[KernelCall]) -> Any:
        """All calls of a window as one; ``None`` where there is none."""
        function = one_function(self.mod, window)
        return function and wide_floats(function)  # values between the calls are not stored any more

    def _kernels_of(self, window: Sequence[KernelCall]) -> list[_Kernel]:
        """Those of which all stages are known."""
        return [kernel for call in window if (kernel := self._kernel(call)) is not None]

    def _once(
        self, found: dict[Any, T | None], key: Any, window: Sequence[KernelCall], make: Callable[[], T | None]
    ) -> T | None:
        """What is ``found`` by ``key``, made the first time; ``None`` where it is refused, or fails."""
        fault = id(found), key
        if fault in self._faults:
            self._failures += 1  # of what asks, too
            known: T | None = self._faults[fault]
            return known
        if key not in found:
            names = ", ".join(dict.fromkeys(str(call.callee.name_hint) for call in window))
            before = self._failures
            made = isolated(lambda: (unless_refused(make),), f"kernel {names} is not joined", self.notes)
            result = made[0] if made else None
            self._failures += not made
            if self._failures > before:
                self._faults[fault] = result
                return result
            found[key] = result
        return found[key]

    def _key(self, window: Sequence[KernelCall]) -> Any:
        callees, wiring = window_key(window)
        return tuple(map(self._number, callees)), wiring

    def _number(self, callee: Any) -> int:
        found = self._numbers.get(callee)
        if found is None:
            found = self._numbers[callee] = self.known.number(self.mod[callee])
        return found

    def _kernel(self, call: KernelCall) -> _Kernel | None:
        number = self._number(call.callee)
        return self._once(self.known.kernels, number, [call], lambda: self._new_kernel(self.mod[call.callee]))

    def _new_kernel(self, function: Any) -> _Kernel | None:
        sch = simplified_schedule(new_schedule(function), self.machine)
        chain = chain_of(stages_of(sch))
        if not chain.is_known:
            return None
        alone = min(self.model.apart(chain), self._rows_of(sch) if _are_rows(chain.stages) else math.inf)
        split = self._on_matrix_unit(function)
        alone = min(alone, split.plan.nanoseconds) if split else alone
        dense = in_dense_rows(sch, self.machine)
        for one in [chain] if dense is sch else [chain, chain_of(stages_of(dense))]:
            alone = min(alone, self.model.apart(one))
            tiles = self.model.faster(one, alone)
            alone = tiles.nanoseconds if tiles else alone
        return _Kernel(chain, tuple(sch.mod["main"].params), alone)

    def _on_matrix_unit(self, function: Any) -> SplitProduct | None:
        words = unless_refused(lambda: in_words(function)) if self.machine.matrix_bytes else None
        return split_product(words.func, self.machine, words.signed) if words else split_product(function, self.machine)

    def _join(self, window: Sequence[KernelCall]) -> Any:
        """The call of one function that does what those of a window do; ``None`` if there is none that is faster."""
        kernels = self._kernels_of(window)
        key = self._key(window)
        function = self._once(self.known.made, key, window, lambda: self._new_joined(window, kernels))
        if function is None:
            return None
        if key not in self._added:
            name = "_".join(dict.fromkeys(call.callee.name_hint for call in window))
            self._added[key] = self.builder.add_func(function, name)
        return relax.call_tir(self._added[key], relax.Tuple(window_arguments(window)), window[-1].ty)

    def _new_joined(self, window: Sequence[KernelCall], kernels: Sequence[_Kernel]) -> Any:
        function = self._function(window)
        alone, passes = sum(kernel.nanoseconds for kernel in kernels), kernels[0].chain.passes
        scheduled = function and joined_primfunc(function, self.machine, passes=passes, nanoseconds=alone)
        if scheduled is None and _calls_spared(kernels, self.machine):
            scheduled = function  # its stages one after another, each with a schedule of its own
        if scheduled is None:
            return None
        share = self._gain(window) / alone if math.isfinite(alone) else 0.0
        return scheduled.with_attr(SAVED, share)


def _calls_spared(kernels: Sequence[_Kernel], machine: CpuMachine) -> float:
    """Nanoseconds that short kernels save in one function without sharing any loop: a step of a recurrent network, say,
    whose gates read several parts of a product. What comes after the first is elementwise, so that nothing is computed
    more often than it was."""
    first, *others = (kernel.chain.stages for kernel in kernels)
    is_made_once = any(stage.is_reduction for stage in first)
    is_elementwise = not any(stage.is_reduction or stage.conditions for stages in others for stage in stages)
    is_short = sum(kernel.nanoseconds for kernel in kernels) < _SHORT
    return len(others) * machine.kernel_call * 1e9 if is_made_once and is_elementwise and is_short else 0.0


def _in_lines(calls: Sequence[KernelCall], readers: Mapping[Any, list[Any]]) -> list[KernelCall]:
    """The calls in an order in which each comes right after the first of its operands that only it reads, if any."""
    by_var = {call.var: call for call in calls}
    order: dict[Any, KernelCall] = {}
    for end in calls:
        if any(reader is not None for reader in readers.get(end.var, [])):
            continue
        waiting = [end]
        while waiting:
            call = waiting[-1]
            missing = [by_var[arg] for arg in call.args if arg in by_var and arg not in order]
            first = next((source for source in missing if len(readers[source.var]) == 1), None)
            others = [source for source in missing if source is not first]
            if missing:
                waiting.append((others or missing)[0])
            else:
                order.setdefault(call.var, waiting.pop())
    return list(order.values())


def _is_line(window: Sequence[KernelCall]) -> bool:
    """Every call reads the one before, and nobody else does."""
    return all({*places} - {None} == {number} for number, places in enumerate(inner_calls(window)[1:]))


def _chain_of_kernels(window: Sequence[KernelCall], kernels: Sequence[_Kernel]) -> Chain:
    chain = kernels[0].chain
    for places, kernel in zip(inner_calls(window)[1:], kernels[1:], strict=True):
        chain = chain.then(kernel.chain, _operands(kernel, places))
    return chain


def _operands(kernel: _Kernel, places: Sequence[int | None]) -> list[Any]:
    """The parameters that get what calls of the window make."""
    return [param for param, place in zip(kernel.params, places, strict=False) if place is not None]


def _is_read_by_reductions(kernel: _Kernel, places: Sequence[int | None]) -> bool:
    """What comes before goes to reductions without pads: they stay stages of their own, whatever makes it."""
    operands = _operands(kernel, places)
    readers = [
        stage
        for stage in kernel.chain.stages
        if any(load.buffer.same_as(operand) for load in stage.loads for operand in operands)
    ]
    return all(stage.is_reduction for stage in readers) and not any(stage.conditions for stage in kernel.chain.stages)


def _pads_elementwise(chain: Chain) -> bool:
    """What pads read of the chain is elementwise and the first of it: a concat, say."""
    links = [link for stage, own in zip(chain.stages, chain.links, strict=True) if stage.conditions for link in own]
    return {link.source for link in links} - {None} == {0} and not chain.stages[0].is_reduction


def _are_rows(stages: Sequence[Stage]) -> bool:
    """There are reductions, and all of them are of rows."""
    reductions = [stage for stage in stages if stage.is_reduction]
    return bool(reductions) and all(stage.is_along_memory for stage in reductions)
