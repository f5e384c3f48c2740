"""Reads a PrimFunc: from blocks to a :class:`Computation`.

In: a PrimFunc as TE makes them: a sequence of blocks, each alone under plain serial loops over its variables. Out: what
it computes as plain data, or ``None`` where the function is of another form or does more than loads and stores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import s_tir, tirx

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import GLOBAL, Extent
from eqsat_layout.tir.affine import Affine, AffineReader, is_injective
from eqsat_layout.tir.axis_groups import axis_groups
from eqsat_layout.tir.computation import (
    Access,
    Block,
    Buffer,
    Computation,
    Index,
    Iter,
    IterKind,
    Opaque,
    Role,
    Store,
    Value,
)
from eqsat_layout.tir.equality import fingerprint
from eqsat_layout.tir.extents import extent_of
from eqsat_layout.tir.intrinsics import is_pure
from eqsat_layout.tir.structural import items_of
from eqsat_layout.tir.symbol_names import symbol_name

__all__ = ["Computation", "analyse", "same_computation"]


def analyse(func: Any) -> Computation | None:
    """What ``func`` (a ``tirx.PrimFunc``) computes; ``None`` if it is not understood."""
    try:
        return _PrimFuncReader(func).computation()
    except (_NotUnderstoodError, LayoutError, RecursionError):  # a concat of hundreds is that deep
        return None


def same_computation(f: Any, g: Any) -> bool:
    """Both PrimFuncs compute the same of their operands, up to names, unit axes and the order of spatial loops.

    True is a proof, bit for bit: the arithmetic and the order of reductions agree. False may mean "unsure".
    """
    left, right = analyse(f), analyse(g)
    if left is None or right is None:
        return False
    mark = fingerprint(left)
    return mark is not None and mark == fingerprint(right)


class _NotUnderstoodError(Exception):
    """The function is outside of what this room reads."""


_KINDS = {tirx.IterVar.DataPar: IterKind.SPATIAL, tirx.IterVar.CommReduce: IterKind.REDUCE}


@dataclass
class _BufferUse:
    var: Any
    shape: tuple[Extent, ...]
    role: Role
    written: bool = False
    read: bool = False  # before it was written


class _PrimFuncReader:
    """One pass over one PrimFunc."""

    def __init__(self, func: Any) -> None:
        self.func = func
        self.variable_index: dict[int, int] = {}
        """Of buffers, by their hashes: TVM's own == makes an expression first."""
        self.uses: list[_BufferUse] = []
        self.symbols: dict[str, Any] = {}
        self.groups = axis_groups(func)

    def computation(self) -> Computation:
        root = self.func.body
        if type(root) is not s_tir.stmt.SBlockRealize:
            raise _NotUnderstoodError
        for param in self.func.params:
            if type(param.ty) is tirx.BufferType:
                self._declare(param, Role.OPERAND)
            else:
                self._symbol(param)
        body = root.block
        if body.iter_vars or body.match_buffers or body.init is not None:
            raise _NotUnderstoodError
        for buffer in body.alloc_buffers:
            self._declare(buffer, Role.INTERNAL)
        statement = body.body
        statements = list(statement.seq) if type(statement) is tirx.SeqStmt else [statement]
        blocks = tuple(_BlockReader(self, s).block() for s in statements)
        buffers = tuple(self._buffer(use) for use in self.uses)
        return Computation(
            buffers,
            tuple(i for i, b in enumerate(buffers) if b.role is Role.OPERAND),
            tuple(i for i, b in enumerate(buffers) if b.role is Role.RESULT),
            tuple(i for i, b in enumerate(buffers) if b.role is Role.INTERNAL),
            blocks,
        )

    def _declare(self, var: Any, role: Role) -> None:
        info = var.ty
        offset = info.elem_offset
        if len(info.strides) or info.layout is not None or type(offset) is not tirx.IntImm or offset.value:
            raise _NotUnderstoodError
        shape = items_of(info.shape)
        for extent in shape:
            if type(extent) is not tirx.IntImm:
                self._symbols_in(extent)
        self.variable_index[hash(var)] = len(self.uses)
        self.uses.append(_BufferUse(var, tuple(map(extent_of, shape)), role))

    def _symbols_in(self, expr: Any) -> None:
        if type(expr) is tvm.ir.Var:
            self._symbol(expr)
        elif hasattr(expr, "a"):
            self._symbols_in(expr.a)
            self._symbols_in(expr.b)

    def _symbol(self, var: Any) -> None:
        """Extents are told apart by name, so a name must mean one variable."""
        if self.symbols.setdefault(symbol_name(var), var) != var:
            raise _NotUnderstoodError

    def _buffer(self, use: _BufferUse) -> Buffer:
        info = use.var.ty
        role = Role.RESULT if use.role is Role.OPERAND and use.written else use.role
        scope = str(info.storage_scope) or GLOBAL
        return Buffer(str(use.var.name), use.shape, str(info.dtype), scope, role, self.groups.get(use.var, ()))

    def is_symbol(self, var: Any) -> bool:
        known = self.symbols.get(symbol_name(var))
        return known is not None and bool(known == var)


@dataclass
class _BlockReader:
    """One block with its loops."""

    function: _PrimFuncReader
    statement: Any
    affine: AffineReader = field(init=False)
    lets: dict[Any, Value] = field(default_factory=dict)
    reads: dict[Access, None] = field(default_factory=dict)
    stored: set[int] = field(default_factory=set)

    def block(self) -> Block:
        realize, loops = _loops(self.statement)
        block = realize.block
        if block.match_buffers or block.alloc_buffers or not _is_true(realize.predicate):
            raise _NotUnderstoodError
        iter_vars = items_of(block.iter_vars)
        iters = tuple(_iteration(v) for v in iter_vars)
        _check_bindings(list(realize.iter_values), iters, loops)
        self.affine = AffineReader([v.var for v in iter_vars], [i.extent for i in iters], [v.dom for v in iter_vars])
        inits = () if block.init is None else self._stores(block.init)
        stores = self._stores(block.body)
        if {s.access for s in inits} != ({s.access for s in stores} if inits else set()):
            raise _NotUnderstoodError
        own = {s.access.buffer: s.access for s in stores}
        self._check_order(iters, own, bool(inits))
        reads = tuple(r for r in self.reads if r.buffer not in own)
        return Block(str(block.name_hint), iters, stores, inits, reads)

    def _check_order(self, iters: Sequence[Iter], own: Mapping[int, Access], has_init: bool) -> None:
        """The order of the spatial loops must not matter, and nothing may be read before it is written."""
        uses = self.function.uses
        for read in self.reads:
            if read.buffer in own and read != own[read.buffer]:
                raise _NotUnderstoodError
            is_first = not uses[read.buffer].written and not (has_init and read.buffer in own)
            if is_first and (read.buffer in own or uses[read.buffer].role is Role.INTERNAL):
                raise _NotUnderstoodError
            uses[read.buffer].read = uses[read.buffer].read or is_first
        for access in own.values():
            if uses[access.buffer].read or not _is_one_to_one(access, iters):
                raise _NotUnderstoodError
            uses[access.buffer].written = True

    def _stores(self, statement: Any) -> tuple[Store, ...]:
        """The stores of a body. The values of ``let`` are put in place, which is right only before any store."""
        stores: list[Store] = []
        self.stored.clear()
        for part in list(statement.seq) if type(statement) is tirx.SeqStmt else [statement]:
            if type(part) is tirx.Bind and not stores:
                self.lets[part.var] = self.value(part.value)
            elif type(part) is tirx.BufferStore:
                store = Store(self._access(part.buffer, part.indices), self.value(part.value))
                if store.access.buffer in self.stored:
                    raise _NotUnderstoodError
                self.stored.add(store.access.buffer)
                stores.append(store)
            else:
                raise _NotUnderstoodError
        return tuple(stores)

    def _access(self, buffer: Any, indices: Any) -> Access:
        number = self.function.variable_index.get(hash(buffer))
        if number is None:
            raise _NotUnderstoodError
        return Access(number, tuple(map(self._index, items_of(indices))))

    def _index(self, expr: Any) -> Index:
        affine = self.affine.read(expr)
        if affine is not None:
            return affine
        value = self.value(self.affine.simplify(expr))
        iters = {int(i) for v in _walk_all(value) for i in ([v.literal] if v.op == "iter" else [])}
        return Opaque(value, tuple(sorted(iters)))

    def value(self, expr: Any) -> Value:
        """The expression as data; raises for what is not a pure function of loads."""
        kind = type(expr)
        if kind is tvm.ir.expr.TensorLoad:
            access = self._access(expr.source, expr.indices)
            if access.buffer in self.stored:
                raise _NotUnderstoodError
            self.reads[access] = None
            return Value("load", str(expr.ty.dtype), access=access)
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
                raise _NotUnderstoodError
            return Value(str(expr.op.name), dtype, tuple(self.value(a) for a in expr.args))
        if kind is tirx.Cast:
            return Value("Cast", dtype, (self.value(expr.value),))
        if kind is tirx.Not:
            return Value("Not", dtype, (self.value(expr.a),))
        if kind is tirx.Select:
            parts = (expr.condition, expr.true_value, expr.false_value)
            return Value("Select", dtype, tuple(self.value(p) for p in parts))
        raise _NotUnderstoodError

    def _variable(self, var: Any) -> Value:
        number = self.affine.number(var)
        if number is not None:
            return Value("iter", str(var.ty.dtype), literal=number)
        if var in self.lets:
            return self.lets[var]
        if self.function.is_symbol(var):
            return Value("symbol", str(var.ty.dtype), literal=symbol_name(var))
        raise _NotUnderstoodError


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
        raise _NotUnderstoodError
    return dtype


def _loops(statement: Any) -> tuple[Any, dict[int, Extent]]:
    """The block under a nest of plain loops, and the loops' extents, by the hashes of their variables."""
    loops: dict[int, Extent] = {}
    while type(statement) is tirx.For:
        start = statement.min
        if int(statement.kind) or statement.annotations or type(start) is not tirx.IntImm or start.value:
            raise _NotUnderstoodError
        loops[hash(statement.loop_var)] = extent_of(statement.extent)
        statement = statement.body
    if type(statement) is not s_tir.stmt.SBlockRealize:
        raise _NotUnderstoodError
    return statement, loops


def _check_bindings(values: Sequence[Any], iters: Sequence[Iter], loops: dict[int, Extent]) -> None:
    """Every block variable is one loop over its whole extent, and no loop repeats the block."""
    free = dict(loops)
    places = {loop: place for place, loop in enumerate(loops)}
    reduced = [hash(v) for v, i in zip(values, iters, strict=True) if i.kind is IterKind.REDUCE]
    order = [places[loop] for loop in reduced if loop in places]
    if order != sorted(order):
        raise _NotUnderstoodError
    for value, axis in zip(values, iters, strict=True):
        if type(value) is tvm.ir.Var:
            if free.pop(hash(value), None) != axis.extent:
                raise _NotUnderstoodError
        elif axis.extent != 1 or type(value) is not tirx.IntImm or value.value:
            raise _NotUnderstoodError
    if any(extent != 1 for extent in free.values()):
        raise _NotUnderstoodError


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
        raise _NotUnderstoodError
    return Iter(kind, extent_of(variable.dom.extent))


def _is_true(predicate: Any) -> bool:
    return type(predicate) is tirx.IntImm and bool(predicate.value)
