"""TIR's arithmetic in NumPy (tir room): binary expressions and calls of pure functions, by node and by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import tirx


def _max(a: Any, b: Any) -> Any:
    """As LLVM compares: the second where one is NaN."""
    return np.where(a > b, a, b)


def _min(a: Any, b: Any) -> Any:
    return np.where(a < b, a, b)


def _not_equal(a: Any, b: Any) -> Any:
    """False where one is NaN, as TVM's LLVM has it."""
    if np.issubdtype(np.result_type(a, b), np.floating):
        return (a < b) | (a > b)
    return np.not_equal(a, b)


def _power(a: Any, b: Any) -> Any:
    if np.issubdtype(np.result_type(a, b), np.integer):
        return np.power(np.asarray(a, "float64"), b)
    return np.power(a, b)


def _popcount(a: Any) -> Any:
    return np.bitwise_count(a.view(f"u{a.dtype.itemsize}"))


def _truncated_div(a: Any, b: Any) -> Any:
    if np.issubdtype(np.result_type(a, b), np.floating):
        return a / b
    b = np.where(b == 0, 1, b)  # in a branch that is not taken
    return (np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(np.result_type(a, b))


def _floor_div(a: Any, b: Any) -> Any:
    return np.floor_divide(a, np.where(b == 0, 1, b).astype(b.dtype))


def _floor_mod(a: Any, b: Any) -> Any:
    return np.mod(a, np.where(b == 0, 1, b).astype(b.dtype))


def _truncated_mod(a: Any, b: Any) -> Any:
    return np.fmod(a, np.where(b == 0, 1, b).astype(b.dtype))


BINARY: Mapping[Any, Callable[[Any, Any], Any]] = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.Div: _truncated_div,
    tirx.Mod: _truncated_mod,
    tirx.FloorDiv: _floor_div,
    tirx.FloorMod: _floor_mod,
    tirx.Min: _min,
    tirx.Max: _max,
    tirx.EQ: np.equal,
    tirx.NE: _not_equal,
    tirx.LT: np.less,
    tirx.LE: np.less_equal,
    tirx.GT: np.greater,
    tirx.GE: np.greater_equal,
    tirx.LShift: np.left_shift,
    tirx.RShift: np.right_shift,
    tirx.BitwiseAnd: np.bitwise_and,
    tirx.BitwiseOr: np.bitwise_or,
    tirx.BitwiseXor: np.bitwise_xor,
}
"""By node; And and Or are not among them, since one side alone may decide them."""

CALLS: Mapping[str, Callable[..., Any]] = {
    "abs": np.abs,
    "fabs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "atan2": np.arctan2,
    "bitwise_and": np.bitwise_and,
    "bitwise_not": np.bitwise_not,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "ceil": np.ceil,
    "copysign": np.copysign,
    "cos": np.cos,
    "cosh": np.cosh,
    "erf": np.vectorize(math.erf, otypes=[float]),
    "exp": np.exp,
    "exp10": lambda x: np.power(10.0, x),
    "exp2": np.exp2,
    "floor": np.floor,
    "fma": lambda a, b, c: a * b + c,
    "fmod": np.fmod,
    "hypot": np.hypot,
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "ldexp": np.ldexp,
    "likely": lambda x: x,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "nearbyint": np.rint,
    "nextafter": np.nextafter,
    "popcount": _popcount,
    "pow": _power,
    "power": _power,
    "round": np.rint,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "trunc": np.trunc,
}
"""By the name of the op, without its namespace."""
