"""TIR's binary expressions in NumPy, by node.

In: the type of a node. Out: the function that it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import tirx


def are_floats(*values: Any) -> bool:
    """Whether numbers, arrays or dtypes are floats together; bfloat16, which is no kind of NumPy's own, is one."""
    return np.result_type(*values).kind not in "biu"


def _max(a: Any, b: Any) -> Any:
    """As LLVM compares: the second where one is NaN."""
    return np.where(a > b, a, b)


def _min(a: Any, b: Any) -> Any:
    return np.where(a < b, a, b)


def _not_equal(a: Any, b: Any) -> Any:
    """False where one is NaN, as TVM's LLVM has it."""
    if are_floats(a, b):
        return (a < b) | (a > b)
    return np.not_equal(a, b)


def truncated_div(a: Any, b: Any) -> Any:
    """As C divides; of the smallest integer too, which has no absolute value."""
    if are_floats(a, b):
        return a / b
    b = np.where(b == 0, 1, b).astype(np.asarray(b).dtype)  # in a branch that is not taken
    is_rounded_down = (np.fmod(a, b) != 0) & (np.less(a, 0) != np.less(b, 0))
    return np.floor_divide(a, b) + is_rounded_down


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
    tirx.Div: truncated_div,
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
