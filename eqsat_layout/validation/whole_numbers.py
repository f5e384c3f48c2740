"""What a PrimFunc makes of tensors of whole numbers: whether it rounds, and how large its results may be.

In: a PrimFunc of known sizes and a :class:`Range` for each of its parameters. Out: one for each, after it has run, or
``None`` where some order of its additions may round, or nothing is known. What loops carry from one round to the next
is followed until it does not change any more: what holds then holds always.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import tvm
import tvm_ffi
from tvm import s_tir, tirx

from eqsat_layout.tir.structural import nodes_of

_DIGITS: Final = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
_ANY: Final = 2.0**100
"""The unit of zero and infinity, which are multiples of everything."""
_ROUNDS: Final = 4


class Rounding(Exception):
    """Something may round, or nothing is known of it."""


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, all of them multiples of ``unit``, a power of two."""

    low: float
    high: float
    unit: float

    @staticmethod
    def of(values: Any) -> Range:
        """The range of these numbers. Raises :class:`Rounding` for NaN."""
        array = np.asarray(values).astype("float64")
        if np.isnan(array).any():
            raise Rounding("NaN")
        mantissas, exponents = np.frexp(array[np.isfinite(array) & (array != 0)])
        digits = np.ldexp(mantissas, _DIGITS["float64"]).astype("int64")
        units = np.ldexp((digits & -digits).astype("float64"), exponents - _DIGITS["float64"])
        unit = float(units.min(initial=_ANY))
        return Range(float(array.min(initial=math.inf)), float(array.max(initial=-math.inf)), unit)

    @property
    def size(self) -> float:
        """The largest absolute value."""
        return max(abs(self.low), abs(self.high))

    def __or__(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high), min(self.unit, other.unit))

    def within(self, dtype: str) -> Range:
        """As a result in ``dtype``: integers wrap around, floats must not round."""
        if dtype not in _DIGITS:
            least, most = _ends(dtype)
            return self if least <= self.low and self.high <= most else Range(least, most, 1.0)
        if math.isnan(self.low + self.high) or self.size > self.unit * 2.0 ** _DIGITS[dtype]:
            raise Rounding(dtype)
        return self


_Binary = Callable[[Range, Range], Range]
_FLAGS: Final = Range(0.0, 1.0, 1.0)


def after(func: Any, given: Sequence[Range | None]) -> list[Range | None]:
    """See above. ``given`` is ``None`` for a parameter that is not written yet, or of which nothing is known."""
    function = _Function({p: r for p, r in zip(func.params, given, strict=True) if r is not None})
    try:
        for _ in range(_ROUNDS):
            before = dict(function.buffers)
            function.run(func.body, {}, 1)
            if function.buffers == before:
                return [function.buffers.get(param) for param in func.params]
    except Rounding:
        pass
    return [None] * len(given)


@dataclass
class _Function:
    """``buffers``: what is known of those that are written; ``scope``: of variables."""

    buffers: dict[Any, Range]
    scope: dict[Any, Range] = field(default_factory=dict)

    def run(self, statement: Any, first: Mapping[Any, Range], steps: int) -> None:
        """In a reduction of so many ``steps`` over buffers that are ``first`` at its start."""
        kind = type(statement)
        if kind is tirx.SeqStmt:
            for part in statement.seq:
                self.run(part, first, steps)
        elif kind is tirx.For:
            self.scope[statement.loop_var] = _indices(statement.extent)
            self.run(statement.body, first, steps)
        elif kind is s_tir.stmt.SBlockRealize:
            self._block(statement)
        elif kind is tirx.BufferStore:
            found = self._stored(statement, first, steps)
            self.buffers[statement.buffer] = found | self.buffers.get(statement.buffer, found)
        elif kind is tirx.Bind:
            self.scope[statement.var] = self.value(statement.value)
        elif kind is tirx.IfThenElse:
            for branch in filter(None, (statement.then_case, statement.else_case)):
                self.run(branch, first, steps)
        else:
            raise Rounding(kind.__name__)

    def _block(self, realize: Any) -> None:
        block = realize.block
        if len(block.match_buffers):
            raise Rounding("parts of buffers")
        for axis in block.iter_vars:
            self.scope[axis.var] = _indices(axis.dom.extent)
        reduced = [axis for axis in block.iter_vars if int(axis.iter_type) == tirx.IterVar.CommReduce]
        steps = math.prod(1 + int(self.scope[axis.var].high) for axis in reduced)
        start = _Function({}, self.scope)
        if block.init is not None:
            start.run(block.init, {}, 1)
        is_always = isinstance(realize.predicate, tirx.IntImm) and bool(realize.predicate)
        is_plain = all(_term(store) is not None for store in nodes_of(block.body, tirx.BufferStore))
        if not (is_always and is_plain and steps and reduced):  # what it starts with is read, or may stay
            for buffer, found in start.buffers.items():
                self.buffers[buffer] = found | self.buffers.get(buffer, found)
        self.run(block.body, start.buffers if reduced else {}, steps)

    def _stored(self, store: Any, first: Mapping[Any, Range], steps: int) -> Range:
        buffer, value = store.buffer, store.value
        term = _term(store) if buffer in first else None
        if term is None:
            return self.value(value)
        start, one = first[buffer], self.value(term)
        if type(value) is not tirx.Add:
            return _extreme(max if type(value) is tirx.Max else min, start, one)
        low, high = min(0.0, one.low * steps), max(0.0, one.high * steps)
        total = Range(start.low + low, start.high + high, min(start.unit, one.unit))
        return total.within(str(buffer.ty.dtype))

    def value(self, expr: Any) -> Range:
        """The range of an expression's values."""
        kind = type(expr)
        if kind in (tirx.IntImm, tirx.FloatImm):
            return Range.of(expr.value)
        if kind is tvm.ir.Var and expr in self.scope:
            return self.scope[expr]
        if kind is tvm.ir.expr.TensorLoad and expr.source in self.buffers:
            return self.buffers[expr.source]
        if kind in (tirx.Max, tirx.Min):
            return _extreme(max if kind is tirx.Max else min, self.value(expr.a), self.value(expr.b))
        if kind in _ARITHMETIC:
            dtype = str(expr.ty.dtype)
            made = _ARITHMETIC[kind][dtype in _DIGITS](self.value(expr.a), self.value(expr.b))
            return made.within(dtype)
        if kind in _LOGIC:
            for side in _sides(expr):
                self.value(side)
            return _FLAGS
        if kind is tirx.Cast:
            return _cast(self.value(expr.value), str(expr.ty.dtype))
        if kind is tirx.Select:
            return self._choice(expr.condition, expr.true_value, expr.false_value)
        if kind is tvm.ir.expr.Call:
            return self._call(expr)
        raise Rounding(kind.__name__)

    def _choice(self, condition: Any, yes: Any, no: Any) -> Range:
        self.value(condition)
        return self.value(yes) | self.value(no)

    def _call(self, call: Any) -> Range:
        name = str(getattr(call.op, "name", call.op)).rpartition(".")[2]
        if name == "if_then_else":
            return self._choice(*call.args)
        given = [self.value(arg) for arg in call.args]
        if name in ("isnan", "isinf", "isfinite"):
            return _FLAGS
        if name in ("abs", "fabs"):
            return Range(0.0, given[0].size, given[0].unit)
        if name in ("floor", "ceil", "trunc", "round", "nearbyint"):
            return _cast(given[0], "int64")
        raise Rounding(name)


def _sum(a: Range, b: Range) -> Range:
    return Range(a.low + b.low, a.high + b.high, min(a.unit, b.unit))


def _difference(a: Range, b: Range) -> Range:
    return _sum(a, Range(-b.high, -b.low, b.unit))


def _product(a: Range, b: Range) -> Range:
    ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return Range(min(ends), max(ends), min(a.unit * b.unit, _ANY))


def _quotient(a: Range, b: Range) -> Range:
    """A quotient by a power of two."""
    if b.low != b.high or b.size != b.unit:
        raise Rounding("a division")
    return _product(a, Range(1 / b.low, 1 / b.high, 1 / b.unit))


def _floored(a: Range, b: Range) -> Range:
    return Range(-a.size, a.size, 1.0)


def _remainder(a: Range, b: Range) -> Range:
    return Range(-b.size, b.size, 1.0)


def _refused(a: Range, b: Range) -> Range:
    raise Rounding("a division of floats")


def _extreme(which: Callable[[float, float], float], a: Range, b: Range) -> Range:
    return Range(which(a.low, b.low), which(a.high, b.high), min(a.unit, b.unit))


_ARITHMETIC: Final[Mapping[Any, tuple[_Binary, _Binary]]] = {
    tirx.Add: (_sum, _sum),
    tirx.Sub: (_difference, _difference),
    tirx.Mul: (_product, _product),
    tirx.Div: (_floored, _quotient),
    tirx.FloorDiv: (_floored, _refused),
    tirx.FloorMod: (_remainder, _refused),
}
"""Of integers, and of floats."""
_LOGIC: Final = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.And, tirx.Or, tirx.Not)


def _sides(expr: Any) -> list[Any]:
    return [getattr(expr, name) for name in ("a", "b") if hasattr(expr, name)]


def _term(store: Any) -> Any:
    """What is added to the element as it was before, or compared with it; ``None`` where something else is done."""
    others = [side for side in _sides(store.value) if not _is_held(side, store)]
    return others[0] if len(others) == 1 and type(store.value) in (tirx.Add, tirx.Max, tirx.Min) else None


def _is_held(expr: Any, store: Any) -> bool:
    is_load = type(expr) is tvm.ir.expr.TensorLoad and expr.source.same_as(store.buffer)
    return is_load and all(map(tvm_ffi.structural_equal, expr.indices, store.indices))


def _cast(given: Range, dtype: str) -> Range:
    if dtype == "bool":
        return _FLAGS
    if dtype in _DIGITS:
        return given.within(dtype)
    return Range(float(np.floor(given.low)), float(np.ceil(given.high)), 1.0).within(dtype)


def _indices(extent: Any) -> Range:
    if not isinstance(extent, tirx.IntImm):
        raise Rounding("an unknown size")
    return Range(0.0, float(int(extent) - 1), 1.0)


def _ends(dtype: str) -> tuple[float, float]:
    try:
        kind = np.dtype(dtype)
    except TypeError:
        raise Rounding(dtype) from None
    if kind.kind == "b":
        return 0.0, 1.0
    if kind.kind not in "iu":
        raise Rounding(dtype)
    return float(np.iinfo(kind).min), float(np.iinfo(kind).max)
