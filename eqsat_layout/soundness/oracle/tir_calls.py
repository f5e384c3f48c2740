"""TIR's calls of pure functions in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


def _power(a: Any, b: Any) -> Any:
    if np.issubdtype(np.result_type(a, b), np.integer):
        return np.power(np.asarray(a, "float64"), b)
    return np.power(a, b)


def _popcount(a: Any) -> Any:
    return np.bitwise_count(a.view(f"u{a.dtype.itemsize}"))


_LANES = 64


def _steady(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` of whole vectors only: NumPy's differ in some bits at the end of an array, and in strides."""

    def run(*operands: Any) -> Any:
        arrays = np.broadcast_arrays(*operands)
        count = arrays[0].size
        padded = [np.concatenate([a.ravel(), np.ones(-count % _LANES, a.dtype)]) for a in arrays]
        return np.asarray(function(*padded))[:count].reshape(arrays[0].shape)

    return run


_PLAIN: Mapping[str, Callable[..., Any]] = {
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

_EXACT = frozenset(
    [
        "abs",
        "fabs",
        "bitwise_and",
        "bitwise_not",
        "bitwise_or",
        "bitwise_xor",
        "ceil",
        "copysign",
        "floor",
        "fma",
        "fmod",
        "isfinite",
        "isinf",
        "isnan",
        "ldexp",
        "likely",
        "nearbyint",
        "nextafter",
        "popcount",
        "round",
        "shift_left",
        "shift_right",
        "sqrt",
        "rsqrt",
        "trunc",
    ]
)
"""What is rounded correctly, so the same however it is computed."""

CALLS: Mapping[str, Callable[..., Any]] = {
    name: function if name in _EXACT else _steady(function) for name, function in _PLAIN.items()
}
