"""Rows of an operand that drive each other out of L2 are copied to where they lie side by side.

In: a schedule. Out: a new one in which such an operand of a reduction is a copy: of each line of the cache all that a
result is made of, one after the other. So a product of BLAS packs its panels (Goto and van de Geijn 2008); here it is
done where the distances of rows leave them few sets of the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.cache_sets import overflows_sets
from eqsat_layout.targets.cpu.model.register_tiles import any_tile_cycles
from eqsat_layout.targets.schedules.accesses import StageAccess, StageAxis, depends_on
from eqsat_layout.targets.schedules.attempts import unless_refused
from eqsat_layout.targets.schedules.rebuild import counting_axis, schedule_over
from eqsat_layout.targets.schedules.stages import Stage, stage_of, stages_of
from eqsat_layout.tir.analyzers import analyzer_over
from eqsat_layout.tir.blocks import block_of, statements_of, store_of, storing_block, with_accesses

_LINE: Final = 18.0  # cycles to copy a line whose neighbours no hardware fetches ahead


def in_dense_rows(sch: Any, machine: CpuMachine) -> Any:
    """``sch`` itself where no reduction has such an operand, or it is no faster so."""
    for stage in stages_of(sch):
        for load in stage.loads:
            sch = unless_refused(partial(_with_copy, sch, stage.name, load.buffer, machine)) or sch
    return sch


@dataclass(frozen=True)
class _Places:
    """Which dimensions of an operand stay as the result goes on, and which move with the steps of a reduction alone.

    ``line``: elements of the last dimension that lie in a line with what moves: of a result's, one line; else all.
    """

    data: Any
    kept: Sequence[int]
    moved: Sequence[int]
    line: int

    @property
    def shape(self) -> list[int]:
        """Of the copy."""
        sizes = [int(extent) for extent in self.data.ty.shape]
        kept, moved = ([sizes[place] for place in own] for own in (self.kept, self.moved))
        return [*kept, sizes[-1] // self.line, *moved, self.line]

    def of_copy(self, indices: Sequence[Any]) -> list[Any]:
        """Where an element of the operand is in the copy."""
        high, low = (own(indices[-1], self.line) for own in (tirx.floordiv, tirx.floormod))
        kept, moved = ([indices[place] for place in own] for own in (self.kept, self.moved))
        return [*kept, high, *moved, low]

    def of_data(self, indices: Sequence[Any]) -> list[Any]:
        """Where an element of the copy comes from."""
        kept, high, moved, low = (
            indices[: len(self.kept)],
            indices[len(self.kept)],
            indices[len(self.kept) + 1 : -1],
            indices[-1],
        )
        found = dict(zip((*self.kept, *self.moved), (*kept, *moved), strict=True))
        return [*(found[place] for place in range(len(found))), high * self.line + low]


def _with_copy(sch: Any, name: str, data: Any, machine: CpuMachine) -> Any:
    """The schedule with a copy of ``data`` for the stage of this name; ``None`` where that takes longer."""
    stage = stage_of(sch, sch.get_sblock(name))
    found = _places(stage, data, machine)
    before = any_tile_cycles(stage, machine)
    trial = _copied(sch, stage, found)
    after = any_tile_cycles(stage_of(trial, trial.get_sblock(name)), machine)
    if before is None or after is None:
        return None
    lines = StageAccess(data, ()).buffer_bytes / machine.line_bytes
    return trial if after * stage.domain + _LINE * lines < before * stage.domain else None


def _places(stage: Stage, data: Any, machine: CpuMachine) -> _Places:
    """Refused where rows are not driven out, or the dimensions of the operand don't come apart."""
    if not (stage.simple and stage.is_plain and stage.is_reduction):
        raise Refused("no reduction")
    loads = [load for load in stage.loads if load.buffer.same_as(data)]
    if len(loads) != 1 or None in loads[0].shape or any(axis.extent is None for axis in stage.axes):
        raise Refused("read twice, or of sizes that are not known")
    (load,) = loads
    if not overflows_sets(load, stage.reduced, machine):
        raise Refused("rows have sets enough")
    *others, last = load.indices
    goes_on, is_reduced = (_moves(last, axes) for axes in (stage.spatial, stage.reduced))
    line, whole = machine.line_bytes // load.element_bytes, load.shape[-1] or 1
    if whole % line or (goes_on and is_reduced):
        raise Refused("no whole lines")
    moved = [n for n, own in enumerate(others) if _moves(own, stage.reduced) and not _moves(own, stage.spatial)]
    kept = [n for n in range(len(others)) if n not in moved]
    return _Places(data, kept, moved, line if goes_on else whole)


def _moves(index: Any, axes: Sequence[StageAxis]) -> bool:
    return any(axis.extent != 1 and depends_on(index, axis.var) for axis in axes)


def _copied(sch: Any, stage: Stage, found: _Places) -> Any:
    func, data = sch.mod["main"], found.data
    dtype = str(data.ty.shape[0].ty.dtype)
    sizes = [tirx.IntImm(dtype, size) for size in found.shape]
    copy = tirx.decl_buffer(sizes, data.ty.dtype, f"{data.name}_dense", layout=None)
    analyzer = analyzer_over(stage.axes)

    def place(buffer: Any, indices: list[Any]) -> tuple[Any, list[Any]]:
        if not buffer.same_as(data):
            return buffer, indices
        return copy, [analyzer.simplify(index) for index in found.of_copy(indices)]

    statements: list[Any] = []
    for statement in statements_of(func):
        block = block_of(statement)
        if block.name_hint != stage.name:
            statements.append(statement)
            continue
        statements.append(_copying(copy, found, dtype, f"{copy.name}_of_{stage.name}"))
        body = with_accesses(store_of(block), place)
        statements.append(storing_block(block.iter_vars, block.name_hint, body, block.init, block.annotations))
    return schedule_over(func, statements, [*func.body.block.alloc_buffers, copy])


def _copying(copy: Any, found: _Places, dtype: str, name: str) -> Any:
    axes = [counting_axis(f"v{number}", size, dtype) for number, size in enumerate(found.shape)]
    places = [axis.var for axis in axes]
    element = tirx.BufferLoad(found.data, found.of_data(places))
    return storing_block(axes, name, tirx.BufferStore(copy, element, places))
