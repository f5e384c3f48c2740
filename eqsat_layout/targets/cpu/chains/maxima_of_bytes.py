"""Maxima of floats that were bytes, as maxima of the bytes.

In: a PrimFunc that makes floats of bytes, by a function that never falls, and takes maxima of them over windows. Out:
the same, where the function is applied to the maximum: there are fewer of these, and bytes lie closer. Where what
follows makes the byte again, none of it is left.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tvm_ffi
from tvm import ir, s_tir, tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.single.lanes import table_of
from eqsat_layout.targets.schedules.accesses import as_int, depends_on
from eqsat_layout.targets.schedules.attempts import unless_refused
from eqsat_layout.tir.blocks import block_of, function_over, is_load_of, statements_of, store_of, storing_block
from eqsat_layout.tir.intrinsics import conjuncts, is_choice
from eqsat_layout.tir.structural import nodes_of, structural_map, substitute

_BYTES: Final = {"uint8": np.arange(256, dtype="uint8"), "int8": np.arange(-128, 128, dtype="int8")}
_MOST_STEPS: Final = 256
"""Of a window, which are looked at one by one."""


def maxima_of_bytes(func: Any) -> Any:
    """``func`` itself where there are none."""
    if not isinstance(func.body, s_tir.SBlockRealize):
        return func
    return unless_refused(lambda: _Rewriter(func).rewritten()) or func


@dataclass(frozen=True)
class _Read:
    """What a window reads: ``byte``, a load by the axes of the window or of the ``border``, and the float ``widened``
    of it, an expression over the variable ``var``. ``least``: the float beyond the border."""

    byte: Any
    var: Any
    widened: Any
    border: Any = None
    least: float | None = None


class _Rewriter:
    def __init__(self, func: Any) -> None:
        self._func = func
        self._blocks = [block_of(statement) for statement in statements_of(func)]
        windows = [block for block in self._blocks if block.init is not None]
        if len(windows) != 1:
            raise Refused("not one reduction")
        (self._window,) = windows
        self._target = store_of(self._window)

    def rewritten(self) -> Any:
        """See :func:`maxima_of_bytes`."""
        read = self._read
        dtype = str(read.byte.ty.dtype)
        table = table_of(read.widened, read.var, _BYTES[dtype])
        lows = [low for low in (_number(self._window.init.value), read.least) if low is not None]
        falls = (table[1:] < table[:-1]).any()  # a difference of unsigned bytes would wrap around
        if not np.isfinite(table).all() or falls or max(lows) > table[0]:
            raise Refused("no function that never falls")
        if read.border is not None and not self._sees_more_than_border(read.border):
            raise Refused("a window with nothing but the border")
        again = self._byte_again(read)
        shape = list(self._target.buffer.ty.shape)
        made = store_of(again).buffer if again else tirx.decl_buffer(shape, dtype, "maxima", layout=None)
        least = tirx.const(int(_BYTES[dtype][0]), dtype)
        statements, buffers = [], [] if again else [made]
        for statement, block in zip(statements_of(self._func), self._blocks, strict=True):
            if block.same_as(self._window):
                new, own = self._on_bytes(read, made, least)
                statements += [*new, *([] if again else [self._widened(read, made)])]
                buffers += own
            elif not any(block.same_as(one) for one in (*self._inside, again)):
                statements.append(statement)
        gone = [store_of(block).buffer for block in self._inside] + ([self._target.buffer] if again else [])
        kept = [one for one in self._func.body.block.alloc_buffers if not any(one.same_as(buffer) for buffer in gone)]
        return function_over(self._func, statements, [*kept, *buffers], self._func.params)

    @cached_property
    def _inside(self) -> list[Any]:
        """The blocks before the window that nothing else reads: the border, if there is one, and what makes floats."""
        found: list[Any] = []
        source = self._maximum.source
        while source not in self._func.params and len(found) < 2:
            found.append(self._writer(source))
            loads = nodes_of(store_of(found[-1]).value, ir.TensorLoad)
            if len(loads) != 1 or len(self._readers(source)) != 1:
                raise Refused("values that others make or read")
            source = loads[0].source
            if str(source.ty.dtype) in _BYTES:
                return found
        raise Refused("no bytes")

    @cached_property
    def _maximum(self) -> Any:
        """What the window reads of its operand."""
        value = self._target.value
        sides = (value.a, value.b) if isinstance(value, tirx.Max) else ()
        others = [side for side in sides if isinstance(side, ir.TensorLoad) and not is_load_of(side, self._target)]
        if len(others) != 1:
            raise Refused("no maximum")
        return others[0]

    @property
    def _places(self) -> list[Any]:
        """The axes of the result of the window."""
        return [axis for axis in self._window.iter_vars if int(axis.iter_type) == tirx.IterVar.DataPar]

    @cached_property
    def _read(self) -> _Read:
        *borders, widener = self._inside
        value = store_of(widener).value
        (byte,) = nodes_of(value, ir.TensorLoad)
        var = tirx.Var("byte", str(byte.ty.dtype))
        widened = structural_map(value, (ir.TensorLoad, lambda _: var))
        if not borders:
            return _Read(_at(byte, widener, self._maximum.indices), var, widened)
        (border,) = borders
        choice = store_of(border).value
        if not is_choice(choice) or not isinstance(choice.args[1], ir.TensorLoad):
            raise Refused("no border")
        return _Read(_at(byte, widener, choice.args[1].indices), var, widened, border, _number(choice.args[2]))

    def _on_bytes(self, read: _Read, made: Any, least: Any) -> tuple[list[Any], list[Any]]:
        """The border and the window over bytes, and the buffers that they need."""
        statements, buffers, value = [], [], read.byte
        if read.border is not None:
            store = store_of(read.border)
            padded = tirx.decl_buffer(list(store.buffer.ty.shape), read.byte.ty.dtype, "padded", layout=None)
            body = tirx.BufferStore(
                padded, tirx.if_then_else(store.value.args[0], read.byte, least), list(store.indices)
            )
            statements.append(storing_block(list(read.border.iter_vars), read.border.name_hint, body))
            buffers.append(padded)
            value = tirx.BufferLoad(padded, list(self._maximum.indices))
        at = list(self._target.indices)
        body = tirx.BufferStore(made, tirx.max(tirx.BufferLoad(made, at), value), at)
        init = tirx.BufferStore(made, least, at)
        axes, name = list(self._window.iter_vars), self._window.name_hint
        return [*statements, storing_block(axes, name, body, init, self._window.annotations)], buffers

    def _widened(self, read: _Read, made: Any) -> Any:
        """The floats of the maxima."""
        axes = self._places
        fresh = [tirx.IterVar(axis.dom, tirx.Var(axis.var.name, axis.var.ty.dtype), axis.iter_type) for axis in axes]
        places = {axis.var: own.var for axis, own in zip(axes, fresh, strict=True)}
        at = [substitute(index, places) for index in self._target.indices]
        value = substitute(read.widened, {read.var: tirx.BufferLoad(made, at)})
        return storing_block(fresh, "widened", tirx.BufferStore(self._target.buffer, value, at))

    def _byte_again(self, read: _Read) -> Any:
        """The only block that reads the maximum, if it makes of it the byte that it was of."""
        readers = [block for block in self._readers(self._target.buffer) if not block.same_as(self._window)]
        if len(readers) != 1 or self._target.buffer in self._func.params or len(readers[0].iter_vars) == 0:
            return None
        (block,) = readers
        store = store_of(block)
        loads = nodes_of(store.value, ir.TensorLoad)
        is_same = len(loads) == 1 and all(map(tvm_ffi.structural_equal, loads[0].indices, store.indices))
        is_plain = _are_axes(store.indices, block.iter_vars) and _are_axes(self._target.indices, self._places)
        if not (is_same and is_plain and str(store.buffer.ty.dtype) == str(read.byte.ty.dtype)):
            return None
        value = structural_map(store.value, (ir.TensorLoad, lambda _: read.widened))
        bytes_ = _BYTES[str(read.byte.ty.dtype)]
        with np.errstate(all="ignore"):
            found = unless_refused(lambda: table_of(value, read.var, bytes_))
        return block if found is not None and np.array_equal(found, bytes_) else None

    def _sees_more_than_border(self, border: Any) -> bool:
        """Every window has a place that is none of the border."""
        axes = {axis.var: axis for axis in self._window.iter_vars}
        terms: dict[Any, list[Any]] = {}
        by_axis = dict(zip((axis.var for axis in border.iter_vars), self._maximum.indices, strict=True))
        if not _are_axes(store_of(border).indices, border.iter_vars):
            raise Refused("a border that lies otherwise")
        for term in conjuncts(store_of(border).value.args[0]):
            used_by = [var for var in by_axis if depends_on(term, var)]
            if len(used_by) != 1:
                raise Refused("a border by more than one axis")
            (own,) = used_by
            terms.setdefault(own, []).append(substitute(term, {own: by_axis[own]}))
        used: list[Any] = []
        for conditions in terms.values():
            own = [var for var in axes if any(depends_on(term, var) for term in conditions)]
            used += own
            if not _always_somewhere(conditions, [axes[var] for var in own]):
                return False
        return len(used) == len(set(used))  # each axis of the border moves by axes of its own

    def _writer(self, buffer: Any) -> Any:
        found = [block for block in self._blocks if store_of(block).buffer.same_as(buffer)]
        if len(found) != 1:
            raise Refused("not one block that makes it")
        return found[0]

    def _readers(self, buffer: Any) -> list[Any]:
        return [
            block
            for block in self._blocks
            if any(load.source.same_as(buffer) for load in nodes_of(block.body, ir.TensorLoad))
        ]


def _always_somewhere(conditions: list[Any], axes: list[Any]) -> bool:
    """For every place along the one axis that is no step of the window, there is a step at which all hold."""
    steps = [axis for axis in axes if int(axis.iter_type) == tirx.IterVar.CommReduce]
    places = [axis for axis in axes if axis not in steps]
    extents = {axis.var: as_int(axis.dom.extent) or 0 for axis in axes}  # 0: not known
    if len(places) != 1 or not all(extents.values()) or math.prod(extents[axis.var] for axis in steps) > _MOST_STEPS:
        raise Refused("a border that is not known")
    place = places[0].var
    count = np.arange(extents[place])
    somewhere = np.zeros(len(count), bool)
    for numbers in itertools.product(*(range(extents[axis.var]) for axis in steps)):
        at = {axis.var: tirx.const(n, axis.var.ty.dtype) for axis, n in zip(steps, numbers, strict=True)}
        somewhere |= np.logical_and.reduce([_holds(substitute(term, at), place, count) for term in conditions])
    return bool(somewhere.all())


def _holds(condition: Any, var: Any, places: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    return table_of(condition, var, places).astype(bool)


def _at(byte: Any, widener: Any, indices: Any) -> Any:
    """What ``widener`` reads at such places of its result."""
    store = store_of(widener)
    if not _are_axes(store.indices, widener.iter_vars):
        raise Refused("floats that lie otherwise")
    places = dict(zip(store.indices, indices, strict=True))
    return tirx.BufferLoad(byte.source, [substitute(index, places) for index in byte.indices])


def _are_axes(indices: Any, axes: Any) -> bool:
    return len(indices) == len(axes) and all(i.same_as(axis.var) for i, axis in zip(indices, axes, strict=True))


def _number(value: Any) -> float:
    if not isinstance(value, (tirx.FloatImm, tirx.IntImm)):
        raise Refused("a number that is not known")
    return float(value.value)
