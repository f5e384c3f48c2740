"""Where kernels of a file read and write: within their buffers, or not at all.

In: a module as a file gives it. Out: the same, in which a store whose indices are not known to be within its buffer
looks at them first, and such a load takes the nearest element; or :class:`UnsafeBoundsError`. A write elsewhere changes
anything of the process, its code included; a read elsewhere ends it. Loads at indices from memory are clipped when the
module is built (:mod:`eqsat_layout.passes.guarded_reads`).
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from functools import reduce
from typing import Any, Final

import tvm
from tvm import ir, s_tir, sym, tirx

from eqsat_layout.passes.guarded_reads import guarded_load
from eqsat_layout.passes.guarded_writes import guarded_store
from eqsat_layout.tir.intrinsics import is_call, is_choice
from eqsat_layout.tir.structural import mapped_body, nodes_of, with_primfuncs

_ADVICE: Final = "; if you trust the file, load it with TVM and give the module itself"
_ASSUMES: Final = "tirx.assume"
_FIELDS: Final = ("a", "b", "value", "condition", "true_value", "false_value", "base", "stride", "body")
_INT32: Final = (1 << 31) - 1


class UnsafeBoundsError(ValueError):
    """A kernel that could read or write elsewhere."""


def with_accesses_in_bounds(mod: tvm.IRModule) -> tvm.IRModule:
    """See above; ``mod`` itself where all of its stores are and loads known to be within their buffers."""

    def guarded(name: str, function: Any) -> Any:
        try:
            return _guarded(function)
        except UnsafeBoundsError as error:
            raise UnsafeBoundsError(f"{name} {error}{_ADVICE}") from None

    return with_primfuncs(mod, guarded)


def _guarded(function: Any) -> Any:
    found = _Accesses()
    found.function(function)
    stores = nodes_of(function.body, tirx.BufferStore)
    if any(store not in found.seen for store in stores):
        raise UnsafeBoundsError("writes within a statement that is not understood")
    if found.unknown or found.open_axes:
        function = _with_guarded_stores(function, found)
    return _with_clipped_loads(function, found)


def _with_guarded_stores(function: Any, found: _Accesses) -> Any:
    if any(is_call(call, _ASSUMES) for call in nodes_of(function.body, ir.Call)):
        raise UnsafeBoundsError("has TVM assume something, and writes where it could be anything")

    def guard(store: Any) -> Any:
        return guarded_store(store) if store in found.unknown else store

    def guard_block(realize: Any) -> Any:
        conditions = [found.open_axes[a.var] for a in realize.block.iter_vars if a.var in found.open_axes]
        if not conditions:
            return realize
        return s_tir.SBlockRealize(realize.iter_values, reduce(tirx.And, conditions, realize.predicate), realize.block)

    rules = ((tirx.BufferStore, guard), (s_tir.SBlockRealize, guard_block))
    return mapped_body(function, *rules)


def _with_clipped_loads(function: Any, found: _Accesses) -> Any:
    """Loads that were not looked at are not known to be anywhere either."""
    loads = [load for load in nodes_of(function.body, ir.TensorLoad) if not found.is_known(load)]
    if not loads:
        return function
    for load in loads:
        if len(load.indices) != len(load.source.ty.shape) or any(_lanes(index) > 1 for index in load.indices):
            raise UnsafeBoundsError(f"may read beyond {load.source.name}")

    def clip(load: Any) -> Any:
        return load if found.is_known(load) else guarded_load(load, [True] * len(load.indices))

    return mapped_body(function, (ir.TensorLoad, clip))


class _Accesses:
    """``seen``: all stores of a function, ``unknown``: those that are not known to be within their buffers.

    ``inside`` and ``outside``: loads that are known to be within theirs, wherever they stand, and those that are not.

    ``open_axes``: of blocks, those whose values are not known to be such as they have, and when they are.
    """

    def __init__(self) -> None:
        self.seen: set[Any] = set()
        self.unknown: set[Any] = set()
        self.inside: set[Any] = set()
        self.outside: set[Any] = set()
        self.open_axes: dict[Any, Any] = {}
        self._analyzer = sym.Analyzer()

    def is_known(self, load: Any) -> bool:
        """Whether it stays in its buffer, or is clipped later."""
        if any(nodes_of(index, ir.TensorLoad) for index in load.indices):
            return True
        return load in self.inside and load not in self.outside

    def function(self, function: Any) -> None:
        for param in function.params:
            if isinstance(param.ty, tirx.BufferType):  # which callers hold against what they pass
                _check_dense(param, is_given=True)
        self._statement(function.body)

    def _statement(self, node: Any) -> None:
        self._own_loads(node)
        match type(node):
            case tirx.SeqStmt:
                for part in node.seq:
                    self._statement(part)
            case tirx.For:
                self._loop(node)
            case s_tir.SBlockRealize:
                self._block(node)
            case tirx.IfThenElse:
                self._under(node.condition, node.then_case)
                if node.else_case is not None:
                    self._statement(node.else_case)
            case kind if kind in (tirx.AttrStmt, tirx.While):
                self._statement(node.body)
            case tirx.Bind:
                self._bind(node.var, node.value)
            case tirx.AllocBuffer:
                _check_dense(node.buffer)
            case tirx.DeclBuffer:
                _check_view(node)
            case tirx.BufferStore:
                self._store(node)
            case _:
                pass  # its stores are not seen

    def _own_loads(self, statement: Any) -> None:
        """Those that do not stand in a statement inside of it."""
        for field in ("value", "condition", "min", "extent"):
            self._loads(getattr(statement, field, None))

    def _loads(self, node: Any) -> None:
        """The loads of an expression, each where its conditions hold."""
        if is_choice(node):
            condition, chosen, other = node.args
            self._loads(condition)
            for holds, branch in ((condition, chosen), (tirx.Not(condition), other)):
                with self._where(holds):
                    self._loads(branch)
            return
        if isinstance(node, ir.TensorLoad):
            pairs = list(zip(node.indices, node.source.ty.shape, strict=False))
            is_inside = all(self._is_steady(index) and self._is_within(index, 0, extent) for index, extent in pairs)
            (self.inside if is_inside else self.outside).add(node)
        for part in _parts(node):
            self._loads(part)

    def _loop(self, node: Any) -> None:
        if node.step is None or (isinstance(node.step, tirx.IntImm) and int(node.step) == 1):
            self._analyzer.bind(node.loop_var, ir.Range.from_min_extent(node.min, node.extent), allow_override=True)
        self._statement(node.body)

    def _block(self, realize: Any) -> None:
        """TVM takes an axis to be what it is said to be, so it has to be; where it is not, the block is not done."""
        block = realize.block
        for buffer in block.alloc_buffers:
            _check_dense(buffer)
        with self._where(realize.predicate):
            for axis, value in zip(block.iter_vars, realize.iter_values, strict=True):
                dom = axis.dom
                if dom is None or nodes_of(value, ir.TensorLoad):
                    raise UnsafeBoundsError(f"gives the axis {axis.var.name} values that it does not have")
                self._check_arithmetic(value)
                if not self._is_within(value, dom.min, dom.extent):
                    self.open_axes[axis.var] = tirx.And(value >= dom.min, value < dom.min + dom.extent)
            for axis in block.iter_vars:
                self._analyzer.bind(axis.var, axis.dom, allow_override=True)
            for part in block.match_buffers:
                self._check_part(part)
            for body in (block.init, block.body):
                if body is not None:
                    self._statement(body)

    def _check_part(self, part: Any) -> None:
        """A view of a region is as large as it, and the region lies in its buffer."""
        source, region = part.source, part.source.region
        extents = list(part.buffer.ty.shape)
        inner = list(region)[len(region) - len(extents) :]
        is_same = len(inner) == len(extents) and all(
            self._analyzer.can_prove_equal(mine.extent, extent) for mine, extent in zip(inner, extents, strict=True)
        )
        for one, extent in zip(region, source.source.ty.shape, strict=True):
            is_same &= self._analyzer.can_prove(one.min >= 0) and self._analyzer.can_prove(
                one.min + one.extent <= extent
            )
        if not is_same:
            raise UnsafeBoundsError(f"takes {part.buffer.name} for a part of {source.source.name} that it is not")

    def _store(self, store: Any) -> None:
        self.seen.add(store)
        shape, indices = list(store.buffer.ty.shape), list(store.indices)
        lanes = math.prod(_lanes(index) for index in indices)
        element = store.buffer.ty.dtype
        if len(indices) != len(shape) or _bits(store.value.ty.dtype) != _bits(element) * lanes:
            raise UnsafeBoundsError(f"writes to {store.buffer.name} what it does not hold")
        for index in indices:
            self._check_arithmetic(index)
        if not all(self._is_within(index, 0, extent) for index, extent in zip(indices, shape, strict=True)):
            if lanes > 1:
                raise UnsafeBoundsError(f"may write a vector beyond {store.buffer.name}")
            self.unknown.add(store)

    def _check_arithmetic(self, index: Any) -> None:
        if not self._is_steady(index):
            raise UnsafeBoundsError("computes an index beyond 32 bits")

    def _is_steady(self, index: Any) -> bool:
        """TVM's analysis takes integers for endless; so they may not wrap around."""
        for node in nodes_of(index, tirx.Add, tirx.Sub, tirx.Mul):
            if str(node.ty.dtype).startswith("int32"):
                bound = self._analyzer.const_int_bound(node) if _lanes(node) == 1 else None
                ends = () if bound is None else (bound.min_value, bound.max_value)
                if any(_INT32 < abs(end) < 1 << 62 for end in ends):
                    return False
        return True

    def _is_within(self, index: Any, low: Any, extent: Any) -> bool:
        if nodes_of(index, ir.TensorLoad):
            return False
        if isinstance(index, tirx.Ramp):
            last = index.base + index.stride * (index.lanes - 1)
            return self._is_within(index.base, low, extent) and self._is_within(last, low, extent)
        if isinstance(index, tirx.Broadcast):
            return self._is_within(index.value, low, extent)
        return _lanes(index) == 1 and self._holds(index >= low) and self._holds(index < low + extent)

    def _holds(self, condition: Any) -> bool:
        """By the bounds of variables too, which may be symbols: of steps that are counted back."""
        return bool(self._analyzer.can_prove(condition, sym.ProofStrength.SYMBOLIC_BOUND))

    def _bind(self, var: Any, value: Any) -> None:
        """What memory holds may change, and is no bound on anything."""
        if ir.is_prim_expr(value) and str(value.ty.dtype).startswith("int") and not nodes_of(value, ir.TensorLoad):
            self._analyzer.bind(var, value, allow_override=True)

    def _under(self, condition: Any, body: Any) -> None:
        with self._where(condition):
            self._statement(body)

    def _where(self, condition: Any) -> ExitStack:
        stack = ExitStack()
        if not nodes_of(condition, ir.TensorLoad):
            stack.enter_context(self._analyzer.constraint_scope(condition))
        return stack


def _parts(expr: Any) -> list[Any]:
    """The expressions that an expression is made of."""
    lists = [part for name in ("args", "indices") for part in getattr(expr, name, ())]
    return [part for part in (*(getattr(expr, name, None) for name in _FIELDS), *lists) if isinstance(part, ir.Expr)]


def _check_dense(buffer: Any, *, is_given: bool = False) -> None:
    """Elements follow each other; callers may say where those of a given one are."""
    ty = buffer.ty
    offsets = [] if ty.elem_offset is None else [ty.elem_offset]
    parts = [*ty.strides, *offsets]
    known = [part for part in parts if not isinstance(part, ir.Var)]
    if len(known) < len(parts) and not is_given:
        raise UnsafeBoundsError(f"makes {buffer.name} a view of what is unknown")
    if not all(isinstance(part, tirx.IntImm) for part in known) or any(
        int(offset) for offset in offsets if isinstance(offset, tirx.IntImm)
    ):
        raise UnsafeBoundsError(f"makes {buffer.name} a view")
    if len(ty.strides) and not is_given and not _is_compact(ty):
        raise UnsafeBoundsError(f"makes {buffer.name} a view")


def _is_compact(ty: Any) -> bool:
    expected = 1
    for extent, stride in zip(reversed(list(ty.shape)), reversed(list(ty.strides)), strict=True):
        if not isinstance(extent, tirx.IntImm) or not isinstance(stride, tirx.IntImm) or int(stride) != expected:
            return False
        expected *= int(extent)
    return True


def _check_view(node: Any) -> None:
    """A buffer in the memory of another one, from its first byte on, is no larger than that."""
    _check_dense(node.buffer)
    data = node.data
    source = (
        data.args[0] if isinstance(data, ir.Call) and str(getattr(data.op, "name", "")) == "tirx.buffer_data" else None
    )
    sizes = [_bytes(one.ty) for one in (node.buffer, source) if one is not None and isinstance(one.ty, tirx.BufferType)]
    if len(sizes) < 2 or sizes[0] is None or sizes[1] is None or sizes[0] > sizes[1]:
        raise UnsafeBoundsError(f"makes {node.buffer.name} of memory that may be smaller")


def _bytes(ty: Any) -> int | None:
    """The bytes of a buffer, if its shape is known."""
    if not all(isinstance(extent, tirx.IntImm) for extent in ty.shape):
        return None
    return math.prod(map(int, ty.shape)) * ((_bits(ty.dtype) + 7) // 8)


def _bits(dtype: Any) -> int:
    """The bits of a value, all lanes together."""
    found = tvm.DataType(str(dtype))
    return int(found.bits) * int(found.lanes)


def _lanes(value: Any) -> int:
    return int(tvm.DataType(str(value.ty.dtype)).lanes)
