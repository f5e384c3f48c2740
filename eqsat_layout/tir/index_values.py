"""Arithmetic of index values: as sums of digits where they are such, else by evaluating them at points.

In: a :class:`Value` over iteration variables. Out: :class:`Affine`, or NumPy arrays; ``None`` for what is neither.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import tirx

from eqsat_layout.maps import Extent
from eqsat_layout.tir.affine import Affine, Term, divided, summed
from eqsat_layout.tir.arithmetic import truncated_div
from eqsat_layout.tir.computation import Index, Value
from eqsat_layout.tir.scalar_functions import ROUNDED

Points = Mapping[int, npt.NDArray[np.int64]]
"""The values of iteration variables, by number; the arrays broadcast to the points."""

COMPARISONS = ("LT", "LE", "GT", "GE")
"""The ops that bound a value."""


def divided_sums(value: Value, extents: Sequence[Extent]) -> Iterator[Affine]:
    """The sums that are divided where the quotient is no sum."""
    if affine_of(value, extents) is not None:
        return
    inner = affine_of(value.args[0], extents) if value.op in _DIVISIONS else None
    if inner is not None and inner.terms:
        yield inner
        return
    for arg in value.args:
        yield from divided_sums(arg, extents)


def affine_of(value: Value, extents: Sequence[Extent]) -> Affine | None:
    """The sum of digits that ``value`` is; ``extents`` are those of the iteration variables."""
    if value.op == "const" and isinstance(value.literal, int):
        return Affine((), value.literal)
    if value.op == "iter":
        return summed([Term(1, int(value.literal), 1, extents[int(value.literal)])], 0)
    if value.op == "Cast":
        return affine_of(value.args[0], extents) if _widens(value) else None
    if len(value.args) != 2:
        return None
    return combined(value.op, affine_of(value.args[0], extents), affine_of(value.args[1], extents))


def combined(op: str, a: Affine | None, b: Affine | None) -> Affine | None:
    """The sum that ``op`` makes of two."""
    if a is None or b is None:
        return None
    if op in ("Add", "Sub"):
        sign = 1 if op == "Add" else -1
        return summed(
            [*a.terms, *(t._replace(weight=t.weight * sign) for t in b.terms)], a.constant + b.constant * sign
        )
    if op == "Mul" and not (a.terms and b.terms):
        factor, value = (a.constant, b) if b.terms else (b.constant, a)
        return summed([t._replace(weight=t.weight * factor) for t in value.terms], value.constant * factor)
    if op in _DIVISIONS and not b.terms:
        return divided(a, b.constant, _DIVISIONS[op])
    return None


_DIVISIONS = {"FloorDiv": tirx.FloorDiv, "FloorMod": tirx.FloorMod, "Div": tirx.Div, "Mod": tirx.Mod}


def values_at(value: Value, points: Points, *, with_floats: bool = False) -> Any:
    """The value at all points; ``None`` for what is no arithmetic of iteration variables.

    ``with_floats``: places that are worked out in floats too, in double precision. Kernels round otherwise: these are
    estimates.
    """
    if value.op == "const":
        return np.int64(value.literal) if isinstance(value.literal, int) else _float_of(value.literal, with_floats)
    if value.op == "iter":
        return points[int(value.literal)]
    args = [values_at(arg, points, with_floats=with_floats) for arg in value.args]
    if any(arg is None for arg in args):
        return None
    if value.op == "Cast":
        if _widens(value):
            return args[0]
        return np.asarray(args[0]).astype(np.int64 if "int" in value.dtype else np.float64) if with_floats else None
    function = _NUMPY.get(value.op) or (ROUNDED.get(value.op.rpartition(".")[2]) if with_floats else None)
    if function is None:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):  # where a condition leaves out the points that it is not for
        return function(*args)


def index_at(index: Index, points: Points, *, with_floats: bool = False) -> Any:
    """An index at all points, as :func:`values_at`; digits of extents that are not known are not cut."""
    if not isinstance(index, Affine):
        return values_at(index.value, points, with_floats=with_floats)
    total: Any = np.int64(index.constant)
    for weight, axis, stride, extent in index.terms:
        digit = points[axis] // stride
        total = total + weight * (digit % extent if isinstance(extent, int) and extent else digit)
    return total


def _float_of(literal: str, with_floats: bool) -> Any:
    return np.float64(float.fromhex(literal)) if with_floats else None


def _widens(cast: Value) -> bool:
    return cast.args[0].dtype == cast.dtype or (cast.args[0].dtype, cast.dtype) == ("int32", "int64")


_NUMPY: dict[str, Callable[..., Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "FloorDiv": operator.floordiv,
    "FloorMod": operator.mod,
    "Div": truncated_div,
    "Mod": lambda a, b: a - truncated_div(a, b) * b,
    "Min": np.minimum,
    "Max": np.maximum,
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Not": np.logical_not,
    "prim.likely": lambda a: a,
}
