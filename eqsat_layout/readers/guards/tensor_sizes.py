"""Tensors that no program has: what a file says of its tensors is judged before anything follows it.

In: a module, or the type of one value. Out: nothing, or :class:`UnsafeTensorError`.
"""

from __future__ import annotations

import math
from typing import Any, Final

import tvm
from tvm import relax

from eqsat_layout.tir.structural import nodes_of

MOST_BYTES: Final = 1 << 40
"""Of one tensor: more than any machine has that this is for."""

MOST_AXES: Final = 64
"""As NumPy has them."""

_FORWARDS: Final = ("strides", "dilation", "pool_size")
"""What convolutions and pools call sizes and steps of windows."""

MOST_PARTS: Final = 1 << 14
"""Of a tuple, as large as those of all weights of a network: TVM's time grows with their square where all are used."""

MOST_IN_ALL: Final = 1 << 20
"""Parts of all values of a text, each counted with its own: TVM looks at all of them, several times."""

MOST_DEPTH: Final = 64
"""Of tuples in one another: TVM follows them by recursion, and in time that grows with the square."""


class UnsafeTensorError(ValueError):
    """A value of a size that can't be, or that nobody meant."""


def check_tensors(mod: tvm.IRModule) -> None:
    """See above, for every value of the module's Relax functions."""
    seen: dict[
        int, tuple[Any, int]
    ] = {}  # a type is met wherever its value is used; kept, so that no other has its handle
    for name, function in mod.functions_items():
        if isinstance(function, relax.Function):
            for var in nodes_of(function, tvm.ir.Var):
                _check_type(var.ty, f"{var.name} of {name.name_hint}", seen)
            for call in nodes_of(function, tvm.ir.Call):
                _check_windows(call, str(name.name_hint))


def check_tuples(mod: tvm.IRModule) -> None:
    """Of values of a module as it was parsed: a pair of twice the same pair, and so on, is short as a text.

    TVM's checks go through types as trees, so that nothing may follow those of more parts than a tuple has.
    """
    counts: dict[int, tuple[int, int]] = {}
    kept = []
    in_all = 0

    def count(ty: Any) -> tuple[int, int]:
        """Its parts, and how deep they are in it."""
        handle = ty.__chandle__()
        if handle not in counts:
            kept.append(ty)
            counts[handle] = 1, 0
            if isinstance(ty, tvm.ir.TupleType):
                inside = list(map(count, ty.fields))
                counts[handle] = sum(n for n, _ in inside), 1 + max((deep for _, deep in inside), default=0)
        return counts[handle]

    def see(expr: Any) -> None:
        nonlocal in_all
        if not isinstance(expr.ty, tvm.ir.TupleType):
            return
        is_new = expr.ty.__chandle__() not in counts
        what = expr.name if isinstance(expr, tvm.ir.Var) else "a value"
        parts, depth = count(expr.ty)
        in_all += parts * is_new
        if parts > MOST_PARTS:
            raise UnsafeTensorError(f"{what} has {parts} parts, more than {MOST_PARTS}")
        if in_all > MOST_IN_ALL:
            raise UnsafeTensorError(f"the values up to {what} have more than {MOST_IN_ALL} parts in all")
        if depth > MOST_DEPTH:
            raise UnsafeTensorError(f"{what} has tuples in one another, more than {MOST_DEPTH} deep")

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, see)


def _check_windows(call: Any, function: str) -> None:
    """Steps of windows go forwards: where they do not, TVM's kernels read what lies before the tensor."""
    for word in _FORWARDS:
        steps = getattr(call.attrs, word, None) if isinstance(call.op, tvm.ir.Op) else None
        if steps is not None and any(int(step) < 1 for step in steps if isinstance(step, int | tvm.tirx.IntImm)):
            numbers = ", ".join(map(str, steps))
            raise UnsafeTensorError(f"{call.op.name} of {function} has {word} of {numbers}, which are no sizes")


def _check_type(ty: Any, what: str, seen: dict[int, tuple[Any, int]]) -> int:
    """How deep tuples are in one another in the type of ``what``; what is ``seen`` was judged. See above.

    Sizes that are not known are taken for one.
    """
    handle, depth = ty.__chandle__(), 0
    if handle in seen:
        return seen[handle][1]
    if isinstance(ty, tvm.ir.TupleType):
        if len(ty.fields) > MOST_PARTS:
            raise UnsafeTensorError(f"{what} has {len(ty.fields)} parts, more than {MOST_PARTS}")
        depth = 1 + max((_check_type(field, what, seen) for field in ty.fields), default=0)
        if depth > MOST_DEPTH:
            raise UnsafeTensorError(f"{what} has tuples in one another, more than {MOST_DEPTH} deep")
    elif isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr):
        extents = [int(extent) for extent in ty.shape.values if isinstance(extent, tvm.tirx.IntImm)]
        check_extents(extents, len(ty.shape.values), str(ty.dtype or "bool"), what)
    seen[handle] = ty, depth
    return depth


def check_extents(extents: list[int], axes: int, dtype: str, what: str) -> None:
    """See above, for a tensor of which these extents are known."""
    if axes > MOST_AXES:
        raise UnsafeTensorError(f"{what} has {axes} axes, more than {MOST_AXES}")
    if any(extent < 0 for extent in extents):
        raise UnsafeTensorError(f"{what} has an extent below zero: {_shape(extents)}")
    if math.prod(extents) * tvm.DataType(dtype).bits > 8 * MOST_BYTES:
        raise UnsafeTensorError(f"{what} has {_shape(extents)} elements of {dtype}, more than 2^40 bytes")


def _shape(extents: list[int]) -> str:
    return " x ".join(map(str, extents))
