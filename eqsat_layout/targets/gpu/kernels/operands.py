"""Operands of a sum in registers.

In: the value that is added, and the variables that run over the tile of a work item: those along its axes, lanes, and
steps of the sum. Out: statements that load each operand once, along those variables only that it depends on, and the
value over what they loaded.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import tvm
from tvm import tirx

from eqsat_layout.targets.gpu.kernels.vectors import LANES, as_vector_statement
from eqsat_layout.tir.intrinsics import is_choice
from eqsat_layout.tir.structural import is_one_of, nodes_of

Extent = tuple[Any, int]
"""A variable and how many values it has."""


class Operands:
    """``tiled``: variables of the tile without lanes. ``statements``: what loads, in order."""

    def __init__(self, tiled: Sequence[Extent], lane: Any, step: Any, sums: Any) -> None:
        self._tiled, self._lane, self._step, self._sums = tiled, lane, step, sums
        self._numbers = itertools.count()
        self.statements: list[Any] = []

    def replaced(self, value: Any) -> Any:
        """``value`` over registers."""
        if isinstance(value, tvm.ir.TensorLoad):
            return value if value.source.same_as(self._sums) else self._loaded(value)
        if isinstance(value, tvm.ir.Call):
            if is_choice(value) and not self._reads_sums(value):
                return self._loaded(value)
            args = list(map(self.replaced, value.args))
            return tvm.ir.Call(value.op, args, attrs=value.attrs, ret_ty=value.ty)
        if hasattr(value, "a") and hasattr(value, "b"):
            return type(value)(self.replaced(value.a), self.replaced(value.b))
        if isinstance(value, tirx.Cast):
            return tirx.Cast(str(value.ty.dtype), self.replaced(value.value))
        if isinstance(value, tirx.Select):
            parts = (value.condition, value.true_value, value.false_value)
            return tirx.Select(*map(self.replaced, parts))
        return value

    def _reads_sums(self, value: Any) -> bool:
        return any(load.source.same_as(self._sums) for load in nodes_of(value, tvm.ir.TensorLoad))

    def _loaded(self, operand: Any) -> Any:
        """A load from registers that are filled with ``operand``."""
        used = nodes_of(operand, tvm.ir.Var)
        places = [(var, extent) for var, extent in self._tiled if is_one_of(var, used)]
        inner = [var for var in (self._step, self._lane) if var is not None and is_one_of(var, used)]
        if len(inner) == 2 and not self._is_vector(operand, inner[1]) and self._is_vector(operand, inner[0]):
            inner.reverse()
        places += [(var, LANES) for var in inner]
        count = 1
        for _, extent in places:
            count *= extent
        name, dtype = f"operand{next(self._numbers)}", str(operand.ty.dtype)
        shape = [tirx.IntImm("int64", count)]
        registers = tirx.decl_buffer(shape, dtype, name, scope="local", layout=None)
        index: Any = tirx.IntImm("int64", 0)
        for var, extent in places:
            index = index * extent + var
        store: Any = tirx.BufferStore(registers, operand, [index])
        whole = bool(inner) and as_vector_statement(store, inner[-1])
        for position, (var, extent) in reversed(list(enumerate(places))):
            is_vector = whole and position == len(places) - 1
            kind = tirx.ForKind.VECTORIZED if is_vector else tirx.ForKind.UNROLLED
            zero, extent_ = (tirx.IntImm(var.ty.dtype, n) for n in (0, extent))
            store = tirx.For(var, zero, extent_, kind, store)
        self.statements += [tirx.AllocBuffer(registers), store]
        return tirx.BufferLoad(registers, [index])

    def _is_vector(self, operand: Any, var: Any) -> bool:
        registers = tirx.decl_buffer([LANES], str(operand.ty.dtype), "vector", scope="local", layout=None)
        return as_vector_statement(tirx.BufferStore(registers, operand, [var]), var)
