"""Kernels of sizes that are known at run time only count in 32 bits: a device divides by such sizes many times as long
in 64.

In: PrimFuncs that launch threads, with flat buffers. Out: the same with places in tensors, guards and loops of 32
bits; elements keep theirs. The host refuses tensors of more than :data:`LARGEST` elements, and as many threads
(:mod:`eqsat_layout.targets.gpu.host.program`). What neither of them bounds keeps 64 bits.
"""

from __future__ import annotations

from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.targets.gpu.host.sizes import LARGEST
from eqsat_layout.tir.structural import changed_loop, nodes_of, primfunc_pass, structural_map, substitute, walk

_WIDE: Final = "int64"
_NARROW: Final = "int32"
_MOST: Final = (1 << 31) - 1
_DIVISIONS: Final = {tirx.FloorDiv: tirx.Div, tirx.FloorMod: tirx.Mod}
"""What they are of numbers that are not below 0, which a compiler is not told of sizes."""
_QUOTIENTS: Final = (tirx.FloorDiv, tirx.Div)
_REMAINDERS: Final = (tirx.FloorMod, tirx.Mod)
_COMPARISONS: Final = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)
_ARITHMETIC: Final = (
    *(tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod, tirx.Min, tirx.Max),
)


def open_sizes_in_32_bits() -> Any:
    """A pass. Functions of known sizes are TVM's to narrow."""
    return primfunc_pass("OpenSizesIn32Bits", _narrowed)


def _narrowed(func: Any) -> Any:
    extents = [extent for param in func.params if type(param.ty) is tirx.BufferType for extent in param.ty.shape]
    sizes = {size for extent in extents for size in nodes_of(extent, tirx.Var) if _is_wide(size)}
    return func.with_body(_Narrower(sizes, func.body).body()) if sizes else func


def _loads(value: Any) -> bool:
    """It is made of elements, of which nothing is known."""
    return bool(nodes_of(value, tvm.ir.TensorLoad))


def _is_wide(value: Any) -> bool:
    return str(getattr(value.ty, "dtype", "")) == _WIDE


class _Narrower:
    """``sizes``: of tensors that the function is given."""

    def __init__(self, sizes: set[Any], body: Any) -> None:
        self._sizes, self._body = sizes, body
        self._checked = set(sizes)
        """What the host knows, and what is counted by it: threads, and their places."""
        self._new: dict[Any, Any] = {}
        self._ranges = tvm.sym.Analyzer()
        for size in sizes:
            self._bind(size, 0, LARGEST)
        walk(body, (tirx.AttrStmt, self._see_threads))
        walk(body, (tirx.For, self._see_loop), (tirx.Bind, self._see_name))

    def _bind(self, var: Any, least: int, most: int) -> None:
        span = tvm.ir.Range.from_min_extent(tirx.const(least, var.ty.dtype), tirx.const(most - least, var.ty.dtype) + 1)
        self._ranges.bind(var, span, allow_override=True)

    def _see_threads(self, statement: Any) -> None:
        if statement.attr_key == "thread_extent":
            self._checked.add(statement.node.var)
            self._take(statement.node.var, 0, self._most(statement.value))

    def _see_loop(self, loop: Any) -> None:
        if isinstance(loop.min, tirx.IntImm) and int(loop.min) == 0 and self._fits(loop.extent):
            self._take(loop.loop_var, 0, max(0, self._most(loop.extent) - 1))

    def _see_name(self, bind: Any) -> None:
        if not _is_wide(bind.var) or self._narrow(bind.value) is None:
            return
        if {*nodes_of(bind.value, tirx.Var)} <= self._checked and not _loads(bind.value):
            counts_up = self._counts_up(bind.value)
            self._checked |= {bind.var} if counts_up else set()
            self._take(bind.var, 0 if counts_up else -LARGEST, self._most(bind.value))
        elif self._fits(bind.value):
            bounds = self._ranges.const_int_bound(bind.value)
            self._take(bind.var, int(bounds.min_value), int(bounds.max_value))

    def _take(self, var: Any, least: int, most: int) -> None:
        if _is_wide(var):
            self._new[var] = tirx.Var(var.name, _NARROW)
        self._bind(var, least, most)

    def _most(self, extent: Any) -> int:
        return min(LARGEST, int(self._ranges.const_int_bound(extent).max_value))

    def _fits(self, value: Any) -> bool:
        bounds = self._ranges.const_int_bound(value)
        return bool(bounds.min_value >= -_MOST and bounds.max_value <= _MOST)

    def _has_32_bits(self, value: Any) -> bool:
        return self._fits(value) or (isinstance(value, tirx.Cast) and str(value.value.ty.dtype) == _NARROW)

    def body(self) -> Any:
        rules = (
            (tvm.ir.TensorLoad, lambda load: tirx.BufferLoad(load.source, [*map(self._place, load.indices)])),
            (tirx.BufferStore, lambda s: tirx.BufferStore(s.buffer, s.value, [*map(self._place, s.indices)])),
            (_COMPARISONS, self._compared),
            (tirx.For, self._loop),
            (tirx.AttrStmt, self._threads),
            (tirx.Bind, self._named),
        )
        widened = {old: tirx.Cast(_WIDE, new) for old, new in self._new.items()}
        return substitute(structural_map(self._body, *rules), widened)

    def _place(self, index: Any) -> Any:
        """What is read or written is in a tensor."""
        narrow = self._narrow(index)
        return index if narrow is None else narrow

    def _compared(self, node: Any) -> Any:
        a, b = (self._narrow(side) if self._is_bounded(side) else None for side in (node.a, node.b))
        return node if a is None or b is None else type(node)(a, b)

    def _is_bounded(self, value: Any) -> bool:
        """Extents, threads, places along an axis, and what is near to one of them."""
        names = {*nodes_of(value, tirx.Var)}
        if names <= self._sizes or names <= self._checked - self._sizes or self._fits(value):
            return True
        if isinstance(value, _REMAINDERS):
            return self._is_bounded(value.b) and self._counts_up(value)
        if isinstance(value, tirx.Add | tirx.Sub):
            return self._is_bounded(value.a) and self._is_small(value.b)
        return isinstance(value, _QUOTIENTS) and self._is_bounded(value.a)

    def _is_small(self, value: Any) -> bool:
        bounds = self._ranges.const_int_bound(value)
        return bool(bounds.min_value >= LARGEST - _MOST and bounds.max_value <= _MOST - LARGEST)

    def _loop(self, loop: Any) -> Any:
        new = self._new.get(loop.loop_var)
        if new is None:
            return loop
        return changed_loop(loop, loop_var=new, min=self._place(loop.min), extent=self._place(loop.extent), step=None)

    def _threads(self, statement: Any) -> Any:
        if statement.attr_key != "thread_extent" or statement.node.var not in self._new:
            return statement
        tag = statement.node.thread_tag
        node = tirx.IterVar(None, self._new[statement.node.var], tirx.IterVar.ThreadIndex, tag)
        extent = tirx.Cast(_NARROW, statement.value)  # the host works it out
        return tirx.AttrStmt(node, statement.attr_key, extent, statement.body)

    def _named(self, bind: Any) -> Any:
        return tirx.Bind(self._new[bind.var], self._place(bind.value)) if bind.var in self._new else bind

    def _narrow(self, value: Any) -> Any:
        """``value`` of 32 bits, if it is arithmetic of what has them; else ``None``."""
        if not _is_wide(value):
            return None
        if isinstance(value, tirx.IntImm):
            return tirx.IntImm(_NARROW, int(value)) if abs(int(value)) <= _MOST else None
        if isinstance(value, tirx.Var):
            return tirx.Cast(_NARROW, value) if value in self._sizes else self._new.get(value)
        if isinstance(value, tirx.Cast):
            return value.value if str(value.value.ty.dtype) == _NARROW else None
        if isinstance(value, _ARITHMETIC):
            is_sum = isinstance(value, tirx.Add | tirx.Sub | tirx.Mul)  # right where it fits, whatever its parts are
            if not is_sum and any(_loads(part) and not self._has_32_bits(part) for part in (value.a, value.b)):
                return None
            a, b = self._narrow(value.a), self._narrow(value.b)
            counts_up = type(value) in _DIVISIONS and self._counts_up(value)
            kind = _DIVISIONS[type(value)] if counts_up else type(value)
            return None if a is None or b is None else kind(a, b)
        return None

    def _counts_up(self, value: Any) -> bool:
        """It is not below 0, as no size, thread or step of a loop is."""
        if isinstance(value, tirx.Cast):
            return self._counts_up(value.value)
        if isinstance(value, _ARITHMETIC):
            return not isinstance(value, tirx.Sub) and self._counts_up(value.a) and self._counts_up(value.b)
        return value in self._checked or bool(self._ranges.const_int_bound(value).min_value >= 0)
