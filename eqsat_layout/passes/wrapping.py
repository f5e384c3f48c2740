"""Wrap-around of 32-bit and 64-bit integers, which TVM's code generator tells LLVM can't happen.

In: PrimFuncs just before code generation. Out: the same, in which no sum, difference or product overflows its type.
C compilers take it for impossible, too. Under "no wrap", LLVM rewrites ``(x - y) < 0`` as ``x < y``, and ``0 - x`` of
unsigned integers as 0.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import tvm
from tvm import ir, sym, tirx

from eqsat_layout.tir.structural import mapped_body, nodes_of, structural_map, structural_map_outermost

WRAPPING: Final = (tirx.Add, tirx.Sub, tirx.Mul)
_WIDER: Final = {"int32": "int64", "uint32": "int64", "int64": "int128", "uint64": "int128"}
_INFINITE: Final = 1 << 62
_FUNCTIONS: Final[Mapping[Any, Callable[[Any, Any], Any]]] = {
    tirx.Add: operator.add,
    tirx.Sub: operator.sub,
    tirx.Mul: operator.mul,
}


def wrapped(kind: Any, a: Any, b: Any) -> Any:
    """``kind(a, b)``, which wraps around: computed in twice the bits, of which LLVM makes one instruction again."""
    dtype = str(a.ty.dtype)
    element, _, lanes = dtype.partition("x")
    if element not in _WIDER:
        return kind(a, b)
    signed = _WIDER[element]  # holds sums and products of both, but for products of unsigned ones
    wide = f"u{signed}" if element.startswith("u") and kind is tirx.Mul else signed
    wide = f"{wide}x{lanes}" if lanes else wide
    return tirx.Cast(dtype, kind(tirx.Cast(wide, a), tirx.Cast(wide, b)))


def wrapped_in_c(kind: Any, a: Any, b: Any) -> Any:
    """``kind(a, b)``, which wraps around: of unsigned integers, as in C signed ones never do."""
    dtype = str(a.ty.dtype)
    if not dtype.startswith("int"):
        return kind(a, b)
    return tirx.Cast(dtype, kind(tirx.Cast(f"u{dtype}", a), tirx.Cast(f"u{dtype}", b)))


def with_wrapping_values(func: Any, wrapped: Callable[[Any, Any, Any], Any] = wrapped) -> Any:
    """``func`` with what it computes of integers in memory as they wrap around; indices stay as they are.

    Sums and products of signed ones that only meet one another stay: whatever a compiler makes of these is the same.
    What is stored and read again is not of these, as the compiler may put one in the place of the other; nor is what
    meets a number with the highest bits, which sets a bit where LLVM knows that no sum without overflow has it.
    """
    if not any(_brings_numbers(one) for one in nodes_of(func.body, ir.TensorLoad, tirx.Cast)):
        return func
    analyzer, kept = sym.Analyzer(), _read_again(func.body)

    def value(node: Any, is_met: bool) -> Any:
        """``is_met``: by what tells numbers apart, as comparisons do."""
        if not isinstance(node, WRAPPING) or not _is_wide(node):
            return structural_map_outermost(
                node, (ir.TensorLoad, lambda load: load), (WRAPPING, lambda one: inner(node, one))
            )
        a, b = value(node.a, is_met), value(node.b, is_met)
        is_open = is_met or str(node.ty.dtype).startswith("uint")
        if is_open and nodes_of(node, ir.TensorLoad) and not _fits(analyzer, node):
            return wrapped(type(node), a, b)
        return node if a.same_as(node.a) and b.same_as(node.b) else type(node)(a, b)

    def inner(outer: Any, node: Any) -> Any:
        return None if node.same_as(outer) or not _is_wide(node) else value(node, True)

    def store(node: Any) -> Any:
        if _is_sum_so_far(node):
            return node
        made = value(node.value, node.buffer in kept or _has_high_bits(node.value))
        return node if made.same_as(node.value) else tirx.BufferStore(node.buffer, made, node.indices)

    def bound(node: Any) -> Any:
        made = value(node.value, True)
        return node if made.same_as(node.value) else tirx.Bind(node.var, made)

    return mapped_body(func, (tirx.BufferStore, store), (tirx.Bind, bound))


def with_differences_as_sums(func: Any) -> Any:
    """``func`` with differences of narrow unsigned integers in what has a name as sums, which are the same numbers: of
    the least and the largest that a name stands for TVM takes them, and refuses 0 less another number."""

    def named(let: Any) -> Any:
        value = structural_map(let.value, (tirx.Sub, _as_sum))
        return let if value.same_as(let.value) else tirx.Let(let.var, value, let.body)

    return mapped_body(func, (tirx.Let, named))


def _as_sum(node: Any) -> Any:
    dtype = str(node.ty.dtype)
    element, _, _ = dtype.partition("x")
    if not element.startswith("uint") or element in _WIDER:
        return node
    size = 1 << int(tvm.DataType(element).bits)
    taken = node.b.value if isinstance(node.b, tirx.Broadcast) else node.b
    if isinstance(taken, tirx.IntImm):
        return tirx.Add(node.a, tirx.const(-int(taken) % size, dtype))
    return tirx.Add(node.a, (node.b ^ tirx.const(size - 1, dtype)) + tirx.const(1, dtype))


def _read_again(body: Any) -> set[Any]:
    """Buffers that are read elsewhere than where they are added to, under all of their names."""
    same = {one.buffer: one.data.args[0] for one in nodes_of(body, tirx.DeclBuffer) if _is_data_of(one.data)}
    loads = Counter(same.get(load.source, load.source) for load in nodes_of(body, ir.TensorLoad))
    stores = nodes_of(body, tirx.BufferStore)
    for store in stores:
        own = [one for one in nodes_of(store.value, ir.TensorLoad) if one.source.same_as(store.buffer)]
        loads[same.get(store.buffer, store.buffer)] -= len(own)
    return {store.buffer for store in stores if loads[same.get(store.buffer, store.buffer)] > 0}


def _is_data_of(data: Any) -> bool:
    return isinstance(data, ir.Call) and len(data.args) == 1 and isinstance(data.args[0], ir.Var)


def _is_sum_so_far(store: Any) -> bool:
    """``x[i] = x[i] + y[j]``: nothing to make anything else of, and LLVM knows the loop."""
    value = store.value
    if not isinstance(value, tirx.Add) or not all(isinstance(one, ir.TensorLoad) for one in (value.a, value.b)):
        return False
    return any(one.source.same_as(store.buffer) for one in (value.a, value.b))


def _has_high_bits(value: Any) -> bool:
    """Whether some constant is so large or so far below 0: of ``x + least``, LLVM makes ``x | least``."""
    numbers = (number for number in nodes_of(value, tirx.IntImm) if _is_wide(number))
    return any(abs(number.value) >> int(tvm.DataType(str(number.ty.dtype)).bits) - 2 for number in numbers)


def _brings_numbers(value: Any) -> bool:
    """Read as such an integer, or made one of something else, which indices are not."""
    return _is_wide(value) and not (isinstance(value, tirx.Cast) and _is_wide(value.value))


def _is_wide(value: Any) -> bool:
    return str(value.ty.dtype).partition("x")[0] in _WIDER


def _fits(analyzer: Any, node: Any) -> bool:
    """Whether no operands let it leave its type's range."""
    element = tvm.DataType(str(node.ty.dtype).partition("x")[0])
    if str(node.ty.dtype) != str(element):
        return False
    bounds = [analyzer.const_int_bound(part) for part in (node.a, node.b)]
    ends = [(int(one.min_value), int(one.max_value)) for one in bounds]
    if any(abs(end) >= _INFINITE for pair in ends for end in pair):
        return False
    results = [_FUNCTIONS[type(node)](x, y) for x in ends[0] for y in ends[1]]
    is_signed = str(element).startswith("int")
    bits = int(element.bits) - is_signed
    return bool((-(1 << bits) if is_signed else 0) <= min(results) and max(results) < 1 << bits)
