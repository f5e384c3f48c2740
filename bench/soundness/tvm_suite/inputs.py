"""Inputs whose sums and products are exact, and results compared bit by bit.

In: a function, a size for its symbols. Out: values for its parameters, a copy of them for each run; and in what two
lists of arrays differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi

from eqsat_layout.validation.inputs import WHOLE, Draw

Array = npt.NDArray[Any]

EQUAL, ROUNDING, DIFFERENT = "equal", "rounding", "differ"

_MARGIN: Final = 1 << 16
_ALIGNMENT: Final = 64
_SHARE: Final = {"float64": 1e-9, "float32": 2e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""Of the largest element: where constants and functions are not exact, orders of additions show."""


def whole_inputs(function: Any, size: int, seed: int, *, distinct: bool, tiny: bool = False) -> list[Any]:
    """Small whole numbers, also in floats; ``tiny``: zeros and ones, which may be indices."""
    inputs = Draw(size, seed, WHOLE, distinct=distinct).inputs(function)
    return [_tiny(value) for value in inputs] if tiny else inputs


def copied(value: Any, byte: int) -> Any:
    """Values that a run may overwrite; each tensor lies amid so many of ``byte``, which no right program reads."""
    if hasattr(value, "numpy"):
        return _amid(value.numpy(), byte)
    return _mapped(partial(copied, byte=byte), value)


def _amid(array: Array, byte: int) -> Any:
    if not array.nbytes:  # TVM does not take NumPy's strides of one for compact
        return tvm.runtime.tensor(array)
    memory = np.full(array.nbytes + 2 * _MARGIN + _ALIGNMENT, byte, np.uint8)
    start = _MARGIN - (memory.ctypes.data + _MARGIN) % _ALIGNMENT + _ALIGNMENT
    placed = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    placed[...] = array
    try:
        return tvm_ffi.from_dlpack(placed)
    except (BufferError, TypeError, ValueError):  # a type that NumPy does not hand on
        return tvm.runtime.tensor(array.copy())


def coarsest(mod: Any) -> str:
    """The float type of fewest digits that a module computes in: its results may have been rounded to that."""
    text = mod.script()
    return next((dtype for dtype in reversed(_SHARE) if f'"{dtype}"' in text), "float64")


def compared(expected: Sequence[Array], got: Sequence[Array], coarse: str = "float64") -> tuple[str, str]:
    """How two lists of arrays compare, and in what they differ; ``coarse``: see :func:`coarsest`."""
    if len(expected) != len(got):
        return DIFFERENT, f"{len(got)} results instead of {len(expected)}"
    worst = (EQUAL, "")
    for i, (wanted, found) in enumerate(zip(expected, got, strict=True)):
        kind, text = _compared(wanted, found, _SHARE[coarse])
        if kind == DIFFERENT:
            return kind, f"result {i} {text}"
        if kind == ROUNDING:
            worst = (kind, f"result {i} {text}")
    return worst


def _compared(wanted: Array, found: Array, least: float) -> tuple[str, str]:
    if wanted.shape != found.shape or wanted.dtype != found.dtype:
        return DIFFERENT, f"is {found.dtype}{found.shape} instead of {wanted.dtype}{wanted.shape}"
    if wanted.tobytes() == found.tobytes():
        return EQUAL, ""
    share = _SHARE.get(str(wanted.dtype))
    if share is None:
        count = int(np.count_nonzero(wanted != found))
        return (DIFFERENT, f"differs in {count} of {wanted.size}") if count else (EQUAL, "")
    a, b = wanted.astype("float64"), found.astype("float64")
    wrong = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    if not (wrong | (np.signbit(a) != np.signbit(b)) & ~np.isnan(a)).any():
        return EQUAL, ""
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(a - b)
    scale = float(np.abs(a[np.isfinite(a)]).max(initial=0.0)) or 1.0
    text = (
        f"differs in {int(wrong.sum())} of {a.size}, by up to {float(np.nanmax(off, initial=0.0)):.3g} of {scale:.3g}"
    )
    close = ~wrong | (np.isfinite(off) & (off <= max(share, least) * scale))
    return (ROUNDING if close.all() else DIFFERENT), text


def _tiny(value: Any) -> Any:
    if not hasattr(value, "numpy"):
        return _mapped(_tiny, value)
    array = value.numpy()
    if str(array.dtype) not in _SHARE and array.dtype.kind not in "iu":
        return value
    return tvm.runtime.tensor((np.abs(array.astype("float64")) % 2).astype(array.dtype))


def _mapped(function: Any, value: Any) -> Any:
    is_tuple = hasattr(value, "__iter__") and not isinstance(value, tvm.runtime.ShapeTuple)
    return tvm_ffi.convert([function(field) for field in value]) if is_tuple else value
