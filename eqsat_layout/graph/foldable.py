"""What may be computed while compiling: code that ends, and can neither trap, nor reach elsewhere, nor call out.

In: a PrimFunc, or a Relax call. Out: None, or why not, in words. Folding runs code of the model, which may be
anybody's, in a process that can be lost: what is not known to be safe is left for the run. Writes at indices that are
in memory are guarded there (:mod:`eqsat_layout.passes.guarded_writes`), reads too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, Final

import tvm
from tvm import ir, relax, s_tir, sym, tirx

from eqsat_layout.errors import ILL_TYPED, Refused
from eqsat_layout.graph.quiet import LEGALIZERS
from eqsat_layout.tir.intrinsics import is_pure
from eqsat_layout.tir.structural import nodes_of

_MOST_STEPS: Final = 1 << 32
"""Times that an innermost statement is run."""

_MOST_CASES: Final = 16
"""Ways in which a condition may hold that are looked at one by one."""

_MOST_BYTES: Final = 1 << 30
"""Of the buffers within a function."""

_OPERATOR: Final = re.compile(r"(tirx|prim)\.\w+")
_NO_NUMBERS: Final = re.compile(r"extern|packed|llvm|intrin|address|handle|ptr|buffer|profile|vector")
"""In the names of ops that call what is elsewhere, make pointers, or are a device's, though TVM calls them pure."""

_DIVISIONS: Final = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)
DIVIDES: Final = "divides integers by what may be 0 or -1"
"""The reason for what kills a process where the divisor is."""
_SHIFTS: Final = (ir.prim.LShift, ir.prim.RShift)
_ARITHMETIC: Final = (ir.prim.BinaryOpExpr, ir.prim.CmpExpr, ir.prim.LogicalExpr, tirx.Cast, tirx.Select)
_BITWISE: Final = (ir.prim.BitwiseAnd, ir.prim.BitwiseOr, ir.prim.BitwiseXor, ir.prim.BitwiseNot)
_OPPOSITE: Final = {tirx.LT: tirx.GE, tirx.GE: tirx.LT, tirx.GT: tirx.LE, tirx.LE: tirx.GT}
NO_PRAGMA: Final = "pragma_scope"
"""With which TVM marks loops that are no blocks: nothing reads it."""
_LOOPS: Final = (tirx.ForKind.SERIAL, tirx.ForKind.PARALLEL, tirx.ForKind.UNROLLED)


def may_run_at_compile_time(func: tirx.PrimFunc) -> str | None:
    """Why it is not safe to run ``func`` on tensors of the shapes of its parameters; None if it is."""
    try:
        _Walk().function(func)
    except Refused as refused:
        return str(refused)
    return None


def call_may_run_at_compile_time(call: relax.Call, mod: tvm.IRModule) -> str | None:
    """The same for a call of a Relax op or a PrimFunc of ``mod``: it stands for what it is legalised to."""
    name = str(call.op.name) if isinstance(call.op, ir.Op) else ""
    if name == "relax.call_tir":
        func = mod.functions.get(call.args[0])
        return may_run_at_compile_time(func) if isinstance(func, tirx.PrimFunc) else "calls no PrimFunc of the module"
    if not name.startswith("relax.") or not call.op.has_attr("FLegalize"):
        return f"calls {name or 'what is no op'}"
    try:
        lowered = relax.transform.LegalizeOps(LEGALIZERS)(_alone(call))
    except (*ILL_TYPED, tvm.error.InternalError) as error:
        return f"{name} can't be legalised: {type(error).__name__}"
    for inner in nodes_of(lowered["main"].body, ir.Call):
        if isinstance(inner.op, ir.Op) and str(inner.op.name) == "relax.call_tir":
            func = lowered.functions.get(inner.args[0])
            reason = may_run_at_compile_time(func) if isinstance(func, tirx.PrimFunc) else "calls no PrimFunc"
        else:
            reason = f"calls {getattr(inner.op, 'name', None) or getattr(inner.op, 'global_symbol', 'a function')}"
        if reason is not None:
            return f"{name}: {reason}"
    return None


def _alone(call: relax.Call) -> tvm.IRModule:
    """A module whose function is the call."""
    params = [v for v in relax.analysis.free_vars(call) if isinstance(v.ty, relax.TensorType)]
    result = relax.Var("result", call.ty)
    body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(result, call)])], result)
    function = relax.Function(params, body, call.ty).with_attr("global_symbol", "main")
    return tvm.IRModule({ir.GlobalVar("main"): function})


class _Walk:
    """Raises :class:`Refused` at the first node that is not known to be safe."""

    def __init__(self) -> None:
        self.analyzer = sym.Analyzer()
        self.bytes = 0

    def function(self, func: tirx.PrimFunc) -> None:
        for name in func.attrs.keys() if func.attrs is not None else ():
            if "pragma" in str(name):
                raise Refused(f"has the attribute {name}")
        for param in func.params:
            if isinstance(param.ty, tirx.BufferType):
                _check_buffer(param, may_start_anywhere=True)  # what is passed says where
            elif not ir.is_prim_var(param):
                raise Refused(f"takes a {param.ty}")
        self.statement(func.body, 1)

    def statement(self, node: Any, steps: int) -> None:
        """``steps``: how often it is run."""
        if steps > _MOST_STEPS:
            raise Refused(f"runs {steps} steps")
        match type(node):
            case tirx.SeqStmt:
                for part in node.seq:
                    self.statement(part, steps)
            case tirx.For:
                self._loop(node, steps)
            case s_tir.SBlockRealize:
                self._block(node, steps)
            case tirx.BufferStore:
                self._access(node.buffer, node.indices)
                self.expression(node.value)
            case tirx.IfThenElse:
                self._branch(node, steps)
            case tirx.Evaluate:
                self.expression(node.value)
            case tirx.AllocBuffer:
                self._allocate([node.buffer])
            case tirx.AttrStmt if str(node.attr_key) == NO_PRAGMA:
                self.statement(node.body, steps)
            case tirx.Bind:
                self.expression(node.value)
                self._bind(node.var, node.value)
            case _:
                raise Refused(f"holds a {type(node).__name__}")

    def _loop(self, node: Any, steps: int) -> None:
        extent = self.analyzer.simplify(node.extent)
        if node.kind not in _LOOPS or node.annotations or not _is_one(node.step):
            raise Refused("has a loop that is not a plain one")
        if not isinstance(extent, tirx.IntImm):
            raise Refused("has a loop of unknown length")
        self.expression(node.min)
        self.analyzer.bind(node.loop_var, ir.Range.from_min_extent(node.min, extent), allow_override=True)
        self.statement(node.body, steps * max(int(extent), 0))

    def _block(self, realize: Any, steps: int) -> None:
        block = realize.block
        if block.match_buffers:
            raise Refused("views a buffer as another")
        if any("pragma" in str(name) for name in block.annotations):
            raise Refused("has a pragma")
        self._allocate(block.alloc_buffers)
        for iter_var, value in zip(block.iter_vars, realize.iter_values, strict=True):
            self.expression(value)
            self._bind(iter_var.var, value)
        self.expression(realize.predicate)
        for part in (block.init, block.body):
            if part is not None:
                self._under(realize.predicate, self.statement, part, steps)

    def _branch(self, node: Any, steps: int) -> None:
        self.expression(node.condition)
        self._under(node.condition, self.statement, node.then_case, steps)
        if node.else_case is not None:
            self._under(tirx.Not(node.condition), self.statement, node.else_case, steps)

    def expression(self, node: Any) -> None:
        """``Select`` computes both of its values; only ``if_then_else`` guards one."""
        match node:
            case tirx.IntImm() | tirx.FloatImm() | ir.Var():
                return
            case ir.TensorLoad():
                self._access(node.source, node.indices)
            case ir.Call():
                self._call(node)
            case tirx.Let():
                self.expression(node.value)
                self._bind(node.var, node.value)
                self.expression(node.body)
            case _ if isinstance(node, _ARITHMETIC + _BITWISE + _SHIFTS + _DIVISIONS):
                for part in _operands(node):
                    self.expression(part)
                self._check_operation(node)
            case _:
                raise Refused(f"holds a {type(node).__name__}")

    def _call(self, call: Any) -> None:
        name = str(getattr(call.op, "name", "a function of the module"))
        if not is_pure(call) or not _OPERATOR.fullmatch(name) or _NO_NUMBERS.search(name):
            raise Refused(f"calls {name}")
        if name == "prim.if_then_else":
            condition, then, otherwise = call.args
            self.expression(condition)
            self._under(condition, self.expression, then)
            self._under(tirx.Not(condition), self.expression, otherwise)
            return
        for arg in call.args:
            self.expression(arg)

    def _check_operation(self, node: Any) -> None:
        if isinstance(node, _DIVISIONS) and _is_integer(node):
            bounds = self.analyzer.const_int_bound(node.b)
            if not (bounds.min_value > 0 or bounds.max_value < -1):
                raise Refused(DIVIDES)
        if isinstance(node, _SHIFTS):
            bounds = self.analyzer.const_int_bound(node.b)
            if not 0 <= bounds.min_value <= bounds.max_value < node.a.ty.dtype.bits:
                raise Refused("shifts by what may be more than an integer's bits")

    def _access(self, buffer: Any, indices: Sequence[Any]) -> None:
        shape = buffer.ty.shape
        if len(indices) != len(shape):
            raise Refused(f"reads or writes {buffer.name} by another number of indices")
        for index, extent in zip(indices, shape, strict=True):
            self.expression(index)
            if nodes_of(index, ir.TensorLoad):
                continue  # guarded
            if not self._is_within(index, extent):
                raise Refused(f"may read or write {buffer.name} out of its range")

    def _is_within(self, index: Any, extent: Any) -> bool:
        analyzer = self.analyzer
        return bool(analyzer.can_prove(index >= 0) and analyzer.can_prove(index < extent))

    def _allocate(self, buffers: Iterable[Any]) -> None:
        for buffer in buffers:
            _check_buffer(buffer)
            self.bytes += math.prod(map(int, buffer.ty.shape)) * max(buffer.ty.dtype.dtype.bits // 8, 1)
        if self.bytes > _MOST_BYTES:
            raise Refused(f"needs {self.bytes} bytes of memory")

    def _bind(self, var: Any, value: Any) -> None:
        """What memory holds may change, and is no bound on anything."""
        if _is_integer(value) and not nodes_of(value, ir.TensorLoad):
            bounds = self.analyzer.const_int_bound(value)
            length = bounds.max_value - bounds.min_value + 1
            if length < _MOST_STEPS:
                low, extent = (tirx.IntImm(value.ty.dtype, number) for number in (bounds.min_value, length))
                self.analyzer.bind(var, ir.Range.from_min_extent(low, extent), allow_override=True)

    def _under(self, condition: Any, visit: Callable[..., None], *args: Any) -> None:
        """Visits what is run where the condition holds, once for each way in which it can."""
        if nodes_of(condition, ir.TensorLoad):
            visit(*args)
            return
        for case in _cases(condition):
            with ExitStack() as stack:
                for part in case:
                    if self.analyzer.can_prove(tirx.Not(part)):
                        break  # this way it never holds
                    stack.enter_context(self.analyzer.constraint_scope(part))
                else:
                    visit(*args)


def _check_buffer(buffer: Any, *, may_start_anywhere: bool = False) -> None:
    """Of constant shape, dense from its first byte, or from an element whose number is a parameter of its own."""
    ty = buffer.ty
    if not all(isinstance(extent, tirx.IntImm) and int(extent) >= 0 for extent in ty.shape):
        raise Refused(f"{buffer.name} has no constant shape")
    offset = ty.elem_offset
    is_first = offset is None or (isinstance(offset, tirx.IntImm) and int(offset) == 0)
    if len(ty.strides) or not (is_first or (may_start_anywhere and isinstance(offset, ir.Var))):
        raise Refused(f"{buffer.name} is a view")


def _cases(condition: Any) -> list[tuple[Any, ...]]:
    """Conditions that hold together, in each way in which ``condition`` can: TVM's analysis makes nothing of an or."""
    cases = _ways(condition, True)
    return cases if len(cases) <= _MOST_CASES else [(condition,)]


def _ways(condition: Any, holds: bool) -> list[tuple[Any, ...]]:
    match condition:
        case tirx.Not():
            return _ways(condition.a, not holds)
        case tirx.And() | tirx.Or():
            a, b = _ways(condition.a, holds), _ways(condition.b, holds)
            if isinstance(condition, tirx.And) is not holds:
                return a + b
            if len(a) * len(b) <= _MOST_CASES:
                return [(*one, *other) for one in a for other in b]
        case tirx.EQ() | tirx.NE() if isinstance(condition, tirx.EQ) is not holds and _is_integer(condition.a):
            return [(condition.a < condition.b,), (condition.a > condition.b,)]
        case tirx.LT() | tirx.LE() | tirx.GT() | tirx.GE() if not holds and _is_integer(condition.a):
            return [(_OPPOSITE[type(condition)](condition.a, condition.b),)]
    return [(condition if holds else tirx.Not(condition),)]


def _operands(node: Any) -> list[Any]:
    names = ("a", "b", "value", "condition", "true_value", "false_value")
    return [getattr(node, name) for name in names if hasattr(node, name)]


def _is_integer(node: Any) -> bool:
    return ir.is_prim_expr(node) and str(node.ty.dtype).startswith(("int", "uint"))


def _is_one(step: Any) -> bool:
    return step is None or (isinstance(step, tirx.IntImm) and int(step) == 1)
