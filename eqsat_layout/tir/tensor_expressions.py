"""Reads tensor expressions: from TE tensors to a :class:`Computation`, without the PrimFunc that TVM makes of them.

In: the operands and the result of a kernel of known sizes. Out: what :func:`~eqsat_layout.tir.signature.analyse` reads
of its PrimFunc, or ``None`` where that is not sure. To make a PrimFunc takes longer than all else that planning does
with an op: TVM solves the condition of every border for its variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import tvm
from tvm import te, tirx

from eqsat_layout.errors import ILL_TYPED, LayoutError
from eqsat_layout.maps import GLOBAL
from eqsat_layout.tir.affine import Affine
from eqsat_layout.tir.block_reader import BlockReader, BufferUse, NotUnderstoodError, Uses
from eqsat_layout.tir.computation import (
    Access,
    Block,
    Buffer,
    Computation,
    Index,
    IterKind,
    Role,
    Store,
    Value,
)
from eqsat_layout.tir.structural import items_of

_NUMBERS: Final = frozenset((tirx.IntImm, tirx.FloatImm))
_LOAD: Final = "te.tensor_load"
_DEEPEST: Final = 100
"""Values in each other: to compare two of hundreds ends with a ``RecursionError``."""
_COUNTED: Final = "int64"
"""The type of iteration variables in PrimFuncs."""
_COMPARISONS: Final = frozenset((tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE))
_OPERATIONS: Final = frozenset((tirx.Add, tirx.Sub, tirx.Mul))
_COUNTING: Final = frozenset((tirx.Add, tirx.Sub, tirx.Mul))
_LEAVES: Final = frozenset((tvm.ir.Var, tirx.IntImm))


def analyse_tensors(tensors: Sequence[Any]) -> Computation | None:
    """What the kernel over ``tensors``, operands first and then its only result, computes; ``None`` if its PrimFunc has
    to be read."""
    try:
        return _TensorReader(tensors).computation()
    except (NotUnderstoodError, LayoutError, RecursionError):
        return None


class _TensorReader:
    """One pass over the stages of a kernel."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        *self.operands, self.result = tensors
        self.uses = Uses()
        self.stages: list[Any] = []
        self.names: dict[str, int] = {}
        self.analyzer = tvm.sym.Analyzer()

    def computation(self) -> Computation:
        for operand in self.operands:
            if isinstance(operand.op, te.ComputeOp):
                raise NotUnderstoodError
            self._declare(operand, Role.OPERAND)
        if not isinstance(self.result.op, te.ComputeOp):  # it is an operand
            raise NotUnderstoodError
        self._declare(self.result, Role.RESULT)
        self._order(self.result, {hash(one) for one in self.operands})
        for stage in self.stages[:-1]:
            self._declare(stage, Role.INTERNAL)
        blocks = tuple(map(self._block, self.stages))
        return Computation.of(tuple(map(_buffer, self.uses.buffers)), blocks)

    def _declare(self, tensor: Any, role: Role) -> None:
        self.uses.declare(tensor, tuple(map(_known, items_of(tensor.shape))), role)

    def _order(self, tensor: Any, done: set[int]) -> None:
        """Stages in TVM's order: each behind all that it reads."""
        if hash(tensor) in done:
            return
        done.add(hash(tensor))
        for read in tensor.op.input_tensors:
            self._order(read, done)
        if not isinstance(tensor.op, te.ComputeOp) or tensor.op.num_outputs != 1:
            raise NotUnderstoodError
        self.stages.append(tensor)

    def _block(self, tensor: Any) -> Block:
        op = tensor.op
        axes = items_of(op.axis)
        reduced = items_of(op.reduce_axis)
        (body,) = op.body
        if not axes or any(_known(one.dom.extent) == 0 for one in (*axes, *reduced)):
            raise NotUnderstoodError
        reader = _StageReader(self.uses, [*axes, *reduced])
        if [i.kind for i in reader.iters] != [IterKind.SPATIAL] * len(axes) + [IterKind.REDUCE] * len(reduced):
            raise NotUnderstoodError
        own = reader.access(tensor, [axis.var for axis in axes])
        if isinstance(body, tirx.Reduce):
            start, value = self._reduction(reader, body, own, str(tensor.dtype))
            inits: tuple[Store, ...] = (Store(own, start),)
        elif reduced:
            raise NotUnderstoodError
        else:
            inits, value = (), reader.value(self._simplified(body))
        return reader.block(self._fresh(str(op.name)), inits, (Store(own, value),))

    def _reduction(self, reader: _StageReader, body: Any, own: Access, dtype: str) -> tuple[Value, Value]:
        """What it starts from, and what it makes of what it had."""
        combiner, sources = body.combiner, items_of(body.source)
        is_whole = isinstance(body.condition, tirx.IntImm) and bool(body.condition.value)
        if len(sources) != 1 or len(body.init) or not is_whole or not len(body.axis):
            raise NotUnderstoodError
        source = self._simplified(sources[0])
        if type(source) in _NUMBERS:  # TVM leaves out what adds nothing
            raise NotUnderstoodError
        reader.lets[combiner.rhs[0]] = reader.value(source)
        reader.lets[combiner.lhs[0]] = reader.load_of(own, dtype)
        return reader.value(combiner.identity_element[0]), reader.value(combiner.result[0])

    def _simplified(self, expr: Any) -> Any:
        """As TVM simplifies it in a PrimFunc."""
        return expr if _is_simple(expr) else _simplified(self.analyzer, expr)

    def _fresh(self, name: str) -> str:
        """As TVM calls a second block of a name."""
        name = name.replace(".", "_")
        if not name:
            raise NotUnderstoodError
        count = self.names.get(name)
        self.names[name] = 0 if count is None else count + 1
        if count is None:
            return name
        if (other := f"{name}_{count + 1}") in self.names:
            raise NotUnderstoodError
        self.names[other] = 0
        return other


class _StageReader(BlockReader):
    """What a stage makes of its operands. Of its variables there is nothing in it but indices and conditions: how wide
    they are in a PrimFunc is another matter."""

    _depth = 0

    def index(self, expr: Any) -> Index:
        """One index, a sum of digits. What has to be rearranged first TVM rearranges in a PrimFunc in its own way."""
        affine = self.affine.read_as_written(expr)
        if affine is None:
            raise NotUnderstoodError
        is_zero = not affine.terms and not affine.constant and type(expr) not in _LEAVES
        return self._as_in_primfunc(expr) if is_zero else affine

    def _as_in_primfunc(self, expr: Any) -> Index:
        """Of what is 0: a variable of extent 1 keeps its name where it stands alone when TVM has simplified ``expr``,
        and is widened to 64 bits."""
        simple = _simplified(tvm.sym.Analyzer(), expr)
        while type(simple) is tirx.Cast:
            simple = simple.value
        return self.affine.read(simple) or Affine(())

    def value(self, expr: Any) -> Value:
        """See :meth:`BlockReader.value`."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise NotUnderstoodError
        value = self._value(expr)
        self._depth -= 1
        return value

    def _value(self, expr: Any) -> Value:
        if _is_load(expr):
            tensor, *indices = items_of(expr.args)
            return self.loaded(tensor, indices, str(expr.ty.dtype))
        kind = type(expr)
        if kind in _COMPARISONS:
            if self._is_count(expr.a) and self._is_count(expr.b):
                return Value(kind.__name__, "bool", (self._count(expr.a), self._count(expr.b)))
            if "int" in str(expr.a.ty.dtype):  # TVM compares data of 32 bits in 64
                raise NotUnderstoodError
        if kind is tvm.ir.Var and self.affine.number(expr) is not None:
            raise NotUnderstoodError
        if kind is tirx.Cast and not _is_load(expr.value):
            raise NotUnderstoodError
        return super().value(expr)

    def _is_count(self, expr: Any) -> bool:
        """It is made of iteration variables and whole numbers."""
        kind = type(expr)
        if kind is tvm.ir.Var:
            return self.affine.number(expr) is not None
        return kind is tirx.IntImm or (kind in _COUNTING and self._is_count(expr.a) and self._is_count(expr.b))

    def _count(self, expr: Any) -> Value:
        if type(expr) is tirx.IntImm:
            return Value("const", _COUNTED, literal=int(expr.value))
        number = self.affine.number(expr)
        if number is not None:
            return Value("iter", _COUNTED, literal=number)
        return Value(type(expr).__name__, _COUNTED, (self._count(expr.a), self._count(expr.b)))


def _buffer(use: BufferUse) -> Buffer:
    return Buffer(str(use.var.op.name), use.shape, str(use.var.dtype), GLOBAL, use.role)


def _simplified(analyzer: Any, expr: Any) -> Any:
    """Where TVM refuses to simplify, it refuses the PrimFunc too."""
    try:
        return analyzer.simplify(expr)
    except ILL_TYPED as error:  # of 2 as a truth value
        raise NotUnderstoodError from error


def _is_simple(expr: Any) -> bool:
    """A load, or one operation on two tensors: there is nothing to simplify."""
    if type(expr) not in _OPERATIONS:
        return _is_operand(expr)
    if not (_is_operand(expr.a) and _is_operand(expr.b)):
        return False
    a, b = (one.value if type(one) is tirx.Cast else one for one in (expr.a, expr.b))
    return hash(a.args[0]) != hash(b.args[0])


def _is_operand(expr: Any) -> bool:
    return _is_load(expr.value if type(expr) is tirx.Cast else expr)


def _is_load(expr: Any) -> bool:
    return type(expr) is tvm.ir.expr.Call and str(expr.op.name) == _LOAD


def _known(extent: Any) -> int:
    if type(extent) is not tirx.IntImm:
        raise NotUnderstoodError
    return int(extent.value)
