"""Integers divided by what may be 0: CPUs end the process there, and where the least one is divided by -1.

Devices go on with some number: neither OpenCL C nor CUDA C++ says which.

In: a division of integers. Out: whether it may trap, or the same without: 0 where the divisor is 0, as NumPy says, for
quotients and remainders alike; the least integer divided by -1 is itself, as it wraps around everywhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import tvm
from tvm import ir, s_tir, sym, tirx

from eqsat_layout.passes.guarded_writes import is_read
from eqsat_layout.passes.wrapping import wrapped
from eqsat_layout.tir.structural import mapped_body, nodes_of, primfunc_pass, walk

DIVISIONS: Final = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)
_QUOTIENTS: Final = (tirx.Div, tirx.FloorDiv)
_FLOORS: Final = {tirx.FloorDiv: tirx.Div, tirx.FloorMod: tirx.Mod}
"""What they are of unsigned integers."""
_PROMOTED: Final = 32
"""Narrower integers become ones of so many bits in C before anything is done with them."""


class Trapping:
    """Which divisions of a function may trap, at any of its nodes.

    Divisors of nothing but the function's sizes are for :func:`guard_divisions_by_sizes`.
    """

    def __init__(self, body: Any) -> None:
        self._own: set[Any] = set()
        self._analyzer = sym.Analyzer()
        walk(
            body,
            (tirx.For, lambda loop: self._range(loop.loop_var, ir.Range.from_min_extent(loop.min, loop.extent))),
            (tirx.Bind, lambda bind: self._own.add(bind.var)),
            (tirx.Let, lambda let: self._own.add(let.var)),
            (s_tir.SBlock, self._axes),
        )

    def _axes(self, block: Any) -> None:
        for axis in block.iter_vars:
            self._range(axis.var, axis.dom)

    def _range(self, var: Any, dom: Any) -> None:
        self._own.add(var)
        if dom is not None and isinstance(dom.min, tirx.IntImm) and isinstance(dom.extent, tirx.IntImm):
            self._analyzer.bind(var, dom, allow_override=True)

    def may(self, division: Any) -> bool:
        """The expression divides integers by a value from memory or a loop variable, which may be 0 or -1."""
        if isinstance(division.b, tirx.IntImm) or not is_integer(division) or not is_read(division.b, self._own):
            return False
        bounds = self._analyzer.const_int_bound(division.b)
        return not (bounds.min_value > 0 or bounds.max_value < -1)


def is_integer(value: Any) -> bool:
    """Whether it is one, or a vector of some."""
    return str(value.ty.dtype).startswith(("int", "uint"))


def guarded_division(kind: Any, a: Any, b: Any) -> Any:
    """``kind(a, b)``, of any value, which does not trap."""
    if not is_integer(b):
        return kind(a, b)
    if _is_ordinary(b):
        return _divided(kind, a, b)
    return _guarded(kind, a, b, _divided)


def _is_ordinary(divisor: Any) -> bool:
    """A number, in all lanes of a vector, that is neither 0 nor -1."""
    number = divisor.value if isinstance(divisor, tirx.Broadcast) else divisor
    return isinstance(number, tirx.IntImm) and int(number) not in (0, -1)


def _guarded(kind: Any, a: Any, b: Any, divided: Callable[[Any, Any, Any], Any]) -> Any:
    dtype = str(b.ty.dtype)
    dividend, divisor = tirx.Var("dividend", dtype), tirx.Var("divisor", dtype)
    zero, one = tirx.const(0, dtype), tirx.const(1, dtype)
    if dtype.startswith("int"):
        unsigned = f"u{dtype}"
        is_rare = tirx.Cast(unsigned, wrapped(tirx.Add, divisor, one)) <= tirx.const(1, unsigned)  # -1 or 0
        rare = wrapped(tirx.Sub, zero, dividend) & divisor
    else:
        is_rare, rare = divisor.equal(zero), zero
    found = divided(kind, dividend, tirx.Select(is_rare, one, divisor))  # what is left of a division by 1 is 0
    if kind in _QUOTIENTS:
        found = tirx.Select(is_rare, rare, found)
    return tirx.Let(dividend, a, tirx.Let(divisor, b, found))


def guarded_division_in_c(kind: Any, a: Any, b: Any) -> Any:
    """The same in C, for vectors too, whose conditions are other things in each dialect: with masks of bits."""
    if not is_integer(b):
        return kind(a, b)
    if _is_ordinary(b):
        return _divided(kind, a, b)
    dtype = str(b.ty.dtype)
    element, by, lanes = dtype.partition("x")
    bits = int(tvm.DataType(element).bits)
    if bits < _PROMOTED:
        wide = f"int{_PROMOTED}{by}{lanes}"
        return tirx.Cast(dtype, guarded_division_in_c(kind, tirx.Cast(wide, a), tirx.Cast(wide, b)))
    is_signed = dtype.startswith("int")
    unsigned = f"u{dtype}" if is_signed else dtype
    zero, one = tirx.const(0, unsigned), tirx.const(1, unsigned)
    dividend, divisor, value = tirx.Var("dividend", dtype), tirx.Var("divisor", dtype), tirx.Cast
    part, ordinary = tirx.Var("part", unsigned), tirx.Var("ordinary", unsigned)  # not 0; 1 or 0
    kept, dropped = zero - ordinary, ordinary - one
    parts = value(unsigned, divisor) + one >> one if is_signed else divisor  # 0 for -1, too
    found = _divided(kind, dividend, value(dtype, (value(unsigned, divisor) & kept) | (one - ordinary)))
    if kind in _QUOTIENTS:  # what is left of a division by 1 is 0
        rare = (zero - value(unsigned, dividend)) & value(unsigned, divisor) if is_signed else zero
        found = value(dtype, (value(unsigned, found) & kept) | (rare & dropped))
    found = tirx.Let(ordinary, (part | (zero - part)) >> tirx.const(bits - 1, unsigned), found)
    return tirx.Let(dividend, a, tirx.Let(divisor, b, tirx.Let(part, parts, found)))


def _divided(kind: Any, a: Any, b: Any) -> Any:
    """``kind(a, b)``, which does not trap, without floors: those of TVM's go by the range of ``a``, and take what wraps
    around, or is cast from unsigned integers, for positive."""
    if kind not in _FLOORS:
        return kind(a, b)
    dtype = str(b.ty.dtype)
    if dtype.startswith("uint"):
        return _FLOORS[kind](a, b)
    bits = int(tvm.DataType(dtype.partition("x")[0]).bits)
    dividend, divisor, rest = (tirx.Var(name, dtype) for name in ("dividend", "divisor", "rest"))
    differs = (rest ^ divisor) & (rest | (tirx.const(0, dtype) - rest))  # in sign, unless nothing is left
    is_below = differs >> tirx.const(bits - 1, dtype)  # 0 or -1
    found = tirx.Div(dividend, divisor) + is_below if kind is tirx.FloorDiv else rest + (divisor & is_below)
    return tirx.Let(dividend, a, tirx.Let(divisor, b, tirx.Let(rest, tirx.Mod(dividend, divisor), found)))


def guard_divisions_by_sizes() -> Any:
    """A pass: sizes that are known at run time only may be 0, and are divided by where nothing is done, or all is."""
    return primfunc_pass("GuardDivisionsBySizes", _without_divisions_by_zero)


def _without_divisions_by_zero(func: Any) -> Any:
    divisions = [one for one in nodes_of(func.body, *DIVISIONS) if _is_by_size(one)]
    if not divisions:
        return func
    analyzer = sym.Analyzer()
    for param in func.params:
        for extent in param.ty.shape if isinstance(param.ty, tirx.BufferType) else ():
            if isinstance(extent, ir.Var):
                least = tirx.const(0, str(extent.ty.dtype))
                most = tirx.const((1 << 31) - 1, str(extent.ty.dtype))
                analyzer.bind(extent, ir.Range.from_min_extent(least, most), allow_override=True)

    def guarded(node: Any) -> Any:
        if not _is_by_size(node):
            return node
        bounds = analyzer.const_int_bound(node.b)
        if bounds.min_value > 0 or bounds.max_value < -1 or isinstance(node.b, tirx.Select):  # which guards it
            return node
        if bounds.min_value == 0:
            return type(node)(node.a, tirx.Max(node.b, tirx.const(1, str(node.b.ty.dtype))))
        return _guarded(type(node), node.a, node.b, lambda kind, a, b: kind(a, b))  # indices do not wrap around

    return mapped_body(func, (DIVISIONS, guarded))


def _is_by_size(node: Any) -> bool:
    if isinstance(node.b, tirx.IntImm) or not is_integer(node):  # nearly all: bodies may hold many thousands
        return False
    return bool(nodes_of(node.b, ir.Var)) and not nodes_of(node.b, ir.TensorLoad, ir.Call)
