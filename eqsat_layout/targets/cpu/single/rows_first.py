"""Windows over several rows, in two steps: first what lies below one another, then along what is left of the rows.

In: a reduction over a window that moves along a row of its data. Out: a schedule in which the window's rows are reduced
to one for all places of a row, in whole vectors, and then along that. Of 8 by 8 elements each place takes 8 steps and a
result 8, in place of 64; and what moves by strides is an eighth of the data. Padding is put around what is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.schedules.accesses import depends_on
from eqsat_layout.targets.schedules.attempts import unless_refused
from eqsat_layout.targets.schedules.conditions import change_of
from eqsat_layout.targets.schedules.rebuild import schedule_over
from eqsat_layout.targets.schedules.stages import Stage
from eqsat_layout.tir.analyzers import analyzer_of
from eqsat_layout.tir.blocks import block_of, is_load_of, statements_of, store_of, storing_block
from eqsat_layout.tir.intrinsics import conjuncts, is_choice
from eqsat_layout.tir.structural import is_one_of, nodes_of, structural_map, substitute

OF_ROWS: Final = "_rows"
"""The end of the name of the first step's block."""

_IDEMPOTENT: Final = (tirx.Max, tirx.Min)
"""What may begin twice with the same number."""


def rows_first(sch: Any, stage: Stage, var: Any, data: Any, machine: CpuMachine) -> Any:
    """The schedule in which ``stage``, whose window moves with ``var`` along rows of ``data``, is done in two steps.

    Refused where steps are to be done in order, and where what is reduced is more than a function of one element.
    """
    if machine.is_exact:
        raise Refused("the steps of a reduction are to be done in order")
    func = sch.mod["main"]
    blocks = [block_of(statement) for statement in statements_of(func)]
    (block,) = (one for one in blocks if one.name_hint == stage.name)
    window = _window_of(block, var, data)
    own = func.body.block.alloc_buffers
    pad = unless_refused(partial(_pad_around, window, blocks)) if is_one_of(data, own) else None  # else it is a result
    steps = _Steps(window, pad)
    statements: list[Any] = []
    for one, statement in zip(blocks, statements_of(func), strict=True):
        if one is block:
            statements += steps.statements()
        elif pad is None or one is not pad.block:
            statements.append(statement)
    kept = [buffer for buffer in own if pad is None or not buffer.same_as(data)]
    return schedule_over(func, statements, [*kept, *steps.buffers])


@dataclass(frozen=True)
class _Window:
    """``block`` reduces ``value``, a function of the element at ``place`` in a row of ``data``.

    ``outer``: its axes but that along rows; ``steps`` down the rows and ``taps`` along one.
    """

    block: Any
    data: Any
    value: Any
    place: Any
    outer: Sequence[Any]
    steps: Sequence[Any]
    taps: Sequence[Any]

    def at(self, column: Any) -> Any:
        """The value at another place of the row."""

        def moved(load: Any) -> Any:
            return tirx.BufferLoad(load.source, [*load.indices[:-1], column])

        return structural_map(self.value, (tvm.ir.TensorLoad, moved))


@dataclass(frozen=True)
class _Pad:
    """``block`` puts what the window begins with around ``width`` columns of its operand, which come after ``left``."""

    block: Any
    left: int
    width: int

    def inside(self, load: Any) -> Any:
        """What an element of the padded data is."""
        places = dict(zip((axis.var for axis in self.block.iter_vars), load.indices, strict=True))
        return substitute(store_of(self.block).value, places)


def _window_of(block: Any, var: Any, data: Any) -> _Window:
    """Refused where the window is no such one."""
    value = _reduced_value(block)
    place = _place(value, data)
    outer = [axis for axis in block.iter_vars if _is_result(axis) and not axis.var.same_as(var)]
    reduced = [axis for axis in block.iter_vars if not _is_result(axis)]
    taps = [axis for axis in reduced if depends_on(place, axis.var)]
    steps = [axis for axis in reduced if axis not in taps]
    if not any(int(axis.dom.extent) > 1 for axis in steps):
        raise Refused("one row only")
    if any(depends_on(place, axis.var) for axis in outer):
        raise Refused("where a window lies in its row depends on the row")
    found = _Window(block, data, value, place, outer, steps, taps)
    elsewhere = found.at(tirx.const(0, str(place.ty.dtype)))
    if depends_on(elsewhere, var) or any(depends_on(elsewhere, axis.var) for axis in taps):
        raise Refused("elements are others by their places in the window")
    return found


def _pad_around(window: _Window, blocks: Sequence[Any]) -> _Pad:
    """The block that makes the data of the window, where it is a pad that changes nothing; refused for others."""
    makers = [block for block in blocks if any(_stores(block, window.data))]
    readers = [b for b in blocks if any(load.source.same_as(window.data) for load in nodes_of(b, tvm.ir.TensorLoad))]
    if len(makers) != 1 or makers[0].init is not None or len(readers) != 1:
        raise Refused("no pad for this window only")
    (block,) = makers
    store = store_of(block)
    if not is_choice(store.value) or not isinstance(window.value, tvm.ir.TensorLoad):
        raise Refused("no pad")
    if not all(own.same_as(axis.var) for own, axis in zip(store.indices, block.iter_vars, strict=True)):
        raise Refused("elements in another order")
    condition, _, around = store.value.args
    if not tvm_ffi.structural_equal(around, window.block.init.value):
        raise Refused("what is put around counts")
    column = block.iter_vars[-1]
    first, end = 0, int(column.dom.extent)
    for one in (own for own in conjuncts(condition) if depends_on(own, column.var)):
        change = change_of(one, column.var)
        if change is None or change.number is None:
            raise Refused("borders that are not known")
        first, end = (first, min(end, change.number)) if change.before else (max(first, change.number), end)
    return _Pad(block, first, end - first)


def _stores(block: Any, data: Any) -> list[Any]:
    return [store for store in nodes_of(block, tirx.BufferStore) if store.buffer.same_as(data)]


class _Steps:
    """The statements, and the buffers between them."""

    def __init__(self, window: _Window, pad: _Pad | None) -> None:
        self._window, self._pad = window, pad
        whole = window.data.ty.shape[-1]
        self._dtype = str(whole.ty.dtype)
        self._rows = self._buffer("rows", whole if pad is None else tirx.IntImm(self._dtype, pad.width))
        self._padded = self._rows if pad is None else self._buffer("padded", whole)

    @property
    def buffers(self) -> list[Any]:
        """What is left of several rows; with padding around it, if there is any."""
        return [self._rows] if self._pad is None else [self._rows, self._padded]

    def statements(self) -> list[Any]:
        """In order."""
        return [self._down(), *([] if self._pad is None else [self._around(self._pad)]), self._along()]

    def _buffer(self, name: str, width: Any) -> Any:
        result = self._window.block.body.buffer
        shape = [*(axis.dom.extent for axis in self._window.outer), width]
        return tirx.decl_buffer(shape, result.ty.dtype, f"{result.name}_{name}", scope=result.scope(), layout=None)

    def _column(self, buffer: Any) -> Any:
        extent = buffer.ty.shape[-1]
        domain = tvm.ir.Range(tirx.IntImm(self._dtype, 0), extent)
        return tirx.IterVar(domain, tvm.ir.Var("column", extent.ty), tirx.IterVar.DataPar)

    def _down(self) -> Any:
        """All rows of the window as one."""
        window, pad, column = self._window, self._pad, self._column(self._rows)
        if pad is None:
            value = window.at(column.var)
        else:
            analyzer = analyzer_of((*window.outer, *window.steps, column))
            value = analyzer.simplify(pad.inside(window.at(column.var + pad.left)))
        names = {axis.var: tvm.ir.Var(axis.var.name, axis.var.ty) for axis in (*window.outer, *window.steps)}
        outer, steps = ([_under_name(axis, names) for axis in axes] for axes in (window.outer, window.steps))
        places = [*(axis.var for axis in outer), column.var]
        return self._reduction([*outer, column, *steps], OF_ROWS, self._rows, places, substitute(value, names))

    def _around(self, pad: _Pad) -> Any:
        """The padding."""
        names = {axis.var: tvm.ir.Var(axis.var.name, axis.var.ty) for axis in self._window.outer}
        outer, column = [_under_name(axis, names) for axis in self._window.outer], self._column(self._padded)
        places = [axis.var for axis in outer]
        inside = tirx.all(pad.left <= column.var, column.var < pad.left + pad.width)
        left = tirx.BufferLoad(self._rows, [*places, column.var - pad.left])
        element = tirx.if_then_else(inside, left, self._window.block.init.value)
        store = tirx.BufferStore(self._padded, element, [*places, column.var])
        return storing_block([*outer, column], f"{self._window.block.name_hint}_padded", store)

    def _along(self) -> Any:
        """The window along the row that is left."""
        window = self._window
        store = store_of(window.block)
        value = tirx.BufferLoad(self._padded, [*(axis.var for axis in window.outer), window.place])
        axes = [axis for axis in window.block.iter_vars if axis not in window.steps]
        return self._reduction(axes, "", store.buffer, store.indices, value)

    def _reduction(self, axes: Sequence[Any], end: str, buffer: Any, indices: Sequence[Any], value: Any) -> Any:
        block = self._window.block
        combine = type(store_of(block).value)
        body = tirx.BufferStore(buffer, combine(tirx.BufferLoad(buffer, indices), value), indices)
        init = tirx.BufferStore(buffer, block.init.value, indices)
        return storing_block(axes, block.name_hint + end, body, init)


def _under_name(axis: Any, names: Mapping[Any, Any]) -> Any:
    """The axis of another block, whose variables are not those of the first."""
    return tirx.IterVar(axis.dom, names[axis.var], axis.iter_type)


def _is_result(axis: Any) -> bool:
    return bool(int(axis.iter_type) == tirx.IterVar.DataPar)


def _reduced_value(block: Any) -> Any:
    """What is added up in ``block``, or of which the largest or least is kept."""
    store = store_of(block)
    value, begin = store.value, getattr(block.init, "value", None)
    is_sum = isinstance(value, tirx.Add) and isinstance(begin, tirx.FloatImm | tirx.IntImm) and begin.value == 0
    if not (is_sum or isinstance(value, _IDEMPOTENT)) or begin is None:
        raise Refused("a reduction of another kind")
    if not is_load_of(value.a, store) or nodes_of(begin, tirx.Var):
        raise Refused("a reduction that is written otherwise")
    return value.b


def _place(value: Any, data: Any) -> Any:
    """The place in a row of ``data`` that ``value`` is made of, and of nothing else."""
    loads = nodes_of(value, tvm.ir.TensorLoad)
    if not loads or not all(load.source.same_as(data) for load in loads):
        raise Refused("of several operands")
    places = [load.indices[-1] for load in loads]
    if not all(tvm_ffi.structural_equal(places[0], place) for place in places[1:]):
        raise Refused("of several places in a row")
    return places[0]
