"""Reads one block: from scalar expressions to loads, stores and values.

In: the variables of a block, its expressions, and the buffers of the function as far as they were used before. Out: a
:class:`~eqsat_layout.tir.computation.Block`; :class:`NotUnderstoodError` where it does more than loads and stores, or
where the order of its points matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx

from eqsat_layout.maps import Extent
from eqsat_layout.tir.affine import Affine, AffineReader, is_injective
from eqsat_layout.tir.computation import Access, Block, Index, Iter, IterKind, Opaque, Role, Store, Value
from eqsat_layout.tir.extents import extent_of
from eqsat_layout.tir.intrinsics import is_pure
from eqsat_layout.tir.structural import items_of
from eqsat_layout.tir.symbol_names import symbol_name


class NotUnderstoodError(Exception):
    """The function is outside of what this room reads."""


_KINDS = {tirx.IterVar.DataPar: IterKind.SPATIAL, tirx.IterVar.CommReduce: IterKind.REDUCE}


@dataclass
class BufferUse:
    """What was done to a buffer by the blocks before."""

    var: Any
    shape: tuple[Extent, ...]
    role: Role
    written: bool = False
    read: bool = False  # before it was written


class Uses:
    """The buffers and the symbols of a function, in the order in which they are declared."""

    def __init__(self) -> None:
        self.buffers: list[BufferUse] = []
        self._numbers: dict[int, int] = {}
        """Of buffers, by their hashes: TVM's own == makes an expression first."""
        self._symbols: dict[str, Any] = {}

    def declare(self, var: Any, shape: tuple[Extent, ...], role: Role) -> None:
        """One buffer more."""
        self._numbers[hash(var)] = len(self.buffers)
        self.buffers.append(BufferUse(var, shape, role))

    def number(self, var: Any) -> int:
        """The place of a buffer."""
        number = self._numbers.get(hash(var))
        if number is None:
            raise NotUnderstoodError
        return number

    def declare_symbol(self, var: Any) -> None:
        """Extents are told apart by name, so a name must mean one variable."""
        if self._symbols.setdefault(symbol_name(var), var) != var:
            raise NotUnderstoodError

    def is_symbol(self, var: Any) -> bool:
        """Whether it was declared."""
        known = self._symbols.get(symbol_name(var))
        return known is not None and bool(known == var)


class BlockReader:
    """One block, of iteration variables ``iter_vars``."""

    def __init__(self, uses: Uses, iter_vars: Sequence[Any]) -> None:
        self._uses = uses
        self.iters = tuple(map(_iteration, iter_vars))
        extents = [i.extent for i in self.iters]
        self.affine = AffineReader([v.var for v in iter_vars], extents, [v.dom for v in iter_vars])
        self.lets: dict[Any, Value] = {}
        """What variables stand for."""
        self._reads: dict[Access, None] = {}
        self._stored: set[int] = set()

    def block(self, name: str, inits: tuple[Store, ...], stores: tuple[Store, ...]) -> Block:
        """The block that makes these stores, if the order of its points does not matter, and it reads nothing before
        that is written."""
        if {s.access for s in inits} != ({s.access for s in stores} if inits else set()):
            raise NotUnderstoodError
        own = {s.access.buffer: s.access for s in stores}
        self._check_order(own, bool(inits))
        return Block(name, self.iters, stores, inits, tuple(r for r in self._reads if r.buffer not in own))

    def _check_order(self, own: Mapping[int, Access], has_init: bool) -> None:
        """The order of the spatial loops must not matter, and nothing may be read before it is written."""
        uses = self._uses.buffers
        for read in self._reads:
            if read.buffer in own and read != own[read.buffer]:
                raise NotUnderstoodError
            is_first = not uses[read.buffer].written and not (has_init and read.buffer in own)
            if is_first and (read.buffer in own or uses[read.buffer].role is Role.INTERNAL):
                raise NotUnderstoodError
            uses[read.buffer].read = uses[read.buffer].read or is_first
        for access in own.values():
            if uses[access.buffer].read or not _is_one_to_one(access, self.iters):
                raise NotUnderstoodError
            uses[access.buffer].written = True

    def stores(self, statement: Any) -> tuple[Store, ...]:
        """The stores of a body. The values of ``let`` are put in place, which is right only before any store."""
        stores: list[Store] = []
        self._stored.clear()
        for part in list(statement.seq) if type(statement) is tirx.SeqStmt else [statement]:
            if type(part) is tirx.Bind and not stores:
                self.lets[part.var] = self.value(part.value)
            elif type(part) is tirx.BufferStore:
                store = Store(self.access(part.buffer, items_of(part.indices)), self.value(part.value))
                if store.access.buffer in self._stored:
                    raise NotUnderstoodError
                self._stored.add(store.access.buffer)
                stores.append(store)
            else:
                raise NotUnderstoodError
        return tuple(stores)

    def access(self, buffer: Any, indices: Iterable[Any]) -> Access:
        """Where ``indices`` lead in a buffer."""
        return Access(self._uses.number(buffer), tuple(map(self.index, indices)))

    def index(self, expr: Any) -> Index:
        """One index."""
        affine = self.affine.read(expr)
        if affine is not None:
            return affine
        value = self.value(self.affine.simplify(expr))
        iters = {int(i) for v in _walk_all(value) for i in ([v.literal] if v.op == "iter" else [])}
        return Opaque(value, tuple(sorted(iters)))

    def loaded(self, buffer: Any, indices: Iterable[Any], dtype: str) -> Value:
        """A load from what the block has not stored yet."""
        access = self.access(buffer, indices)
        if access.buffer in self._stored:
            raise NotUnderstoodError
        return self.load_of(access, dtype)

    def load_of(self, access: Access, dtype: str) -> Value:
        """The element there."""
        self._reads[access] = None
        return Value("load", dtype, access=access)

    def value(self, expr: Any) -> Value:
        """The expression as data; raises for what is not a pure function of loads."""
        kind = type(expr)
        if kind is tvm.ir.expr.TensorLoad:
            return self.loaded(expr.source, items_of(expr.indices), str(expr.ty.dtype))
        if kind is tvm.ir.Var:
            return self._variable(expr)
        dtype = _scalar_type(expr)
        if kind is tirx.IntImm:
            return Value("const", dtype, literal=int(expr.value))
        if kind is tirx.FloatImm:
            return Value("const", dtype, literal=float(expr.value).hex())
        if kind in _BINARY:
            return Value(kind.__name__, dtype, (self.value(expr.a), self.value(expr.b)))
        if kind is tvm.ir.expr.Call:
            if not is_pure(expr):
                raise NotUnderstoodError
            return Value(str(expr.op.name), dtype, tuple(self.value(a) for a in expr.args))
        if kind is tirx.Cast:
            return Value("Cast", dtype, (self.value(expr.value),))
        if kind is tirx.Not:
            return Value("Not", dtype, (self.value(expr.a),))
        if kind is tirx.Select:
            parts = (expr.condition, expr.true_value, expr.false_value)
            return Value("Select", dtype, tuple(self.value(p) for p in parts))
        raise NotUnderstoodError

    def _variable(self, var: Any) -> Value:
        number = self.affine.number(var)
        if number is not None:
            return Value("iter", str(var.ty.dtype), literal=number)
        if var in self.lets:
            return self.lets[var]
        if self._uses.is_symbol(var):
            return Value("symbol", str(var.ty.dtype), literal=symbol_name(var))
        raise NotUnderstoodError


_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod, tirx.Min, tirx.Max)
_LOGIC = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.And, tirx.Or)
_BITS = (tirx.LShift, tirx.RShift, tirx.BitwiseAnd, tirx.BitwiseOr, tirx.BitwiseXor)
_BINARY = frozenset((*_ARITHMETIC, *_LOGIC, *_BITS))


def _walk_all(value: Value) -> list[Value]:
    """All nodes, those in the indices of loads too."""
    found: list[Value] = []
    for node in value.walk():
        found.append(node)
        for index in node.access.indices if node.access else ():
            if isinstance(index, Opaque):
                found.extend(_walk_all(index.value))
            else:
                found.extend(Value("iter", "", literal=i) for i in index.iters)
    return found


def _scalar_type(expr: Any) -> str:
    """The dtype of a scalar expression; pointers and vectors are not understood."""
    kind = expr.ty
    dtype = str(kind.dtype) if type(kind) is tvm.ir.PrimType else "handle"
    if dtype == "handle" or "x" in dtype.partition("_")[0].replace("bool", ""):
        raise NotUnderstoodError
    return dtype


def _is_one_to_one(access: Access, iters: Sequence[Iter]) -> bool:
    """Every point of the spatial variables has an element of its own, and the reduced ones share it."""
    digits: dict[int, set[tuple[int, Extent]]] = {}
    for index in access.indices:
        if not isinstance(index, Affine) or not is_injective(index):
            return False
        for term in index.terms:
            digits.setdefault(term.iter, set()).add((term.stride, term.extent))
    for number, axis in enumerate(iters):
        place: Extent = 1
        for stride, extent in sorted(digits.get(number, ()), key=lambda d: d[0]):
            if stride == place:
                place = stride * extent if isinstance(extent, int) else axis.extent
        if place != (axis.extent if axis.kind is IterKind.SPATIAL else 1):
            return False
    return True


def _iteration(variable: Any) -> Iter:
    kind = _KINDS.get(int(variable.iter_type))
    start = variable.dom.min
    if kind is None or type(start) is not tirx.IntImm or start.value:
        raise NotUnderstoodError
    return Iter(kind, extent_of(variable.dom.extent))
