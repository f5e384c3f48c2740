"""Inputs whose sums and products are exact, and results compared bit by bit.

In: a function, a size for its symbols. Out: values for its parameters, a copy of them for each run; and in what two
lists of arrays differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from tvm import relax

from eqsat_layout.validation.inputs import WHOLE, Draw

Array = npt.NDArray[Any]

EQUAL, ROUNDING, DIFFERENT = "equal", "rounding", "differ"

KINDS: Final[Mapping[str, Callable[[Array], Array]]] = {
    "whole": lambda array: array,
    "not zero": lambda array: np.where(array == 0, 1, array),
    "indices": lambda array: np.abs(array) % 2,
}
"""Kinds of inputs: as they are drawn; without what may not divide; zeros and ones, which may be indices."""

_AXES: Final = 2
_MARGIN: Final = 1 << 16
_ALIGNMENT: Final = 64
_SHARE: Final = {"float64": 1e-9, "float32": 2e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""Of the largest element: where constants and functions are not exact, orders of additions show."""


def whole_inputs(function: Any, size: int, seed: int, kind: str, *, distinct: bool) -> list[Any]:
    """Small whole numbers, also in floats, of one of :data:`KINDS`. What no type says is float32, of two axes."""
    known = SimpleNamespace(params=[SimpleNamespace(name=p.name, ty=_known(p.ty, size)) for p in function.params])
    inputs = Draw(size, seed, WHOLE, distinct=distinct).inputs(known)
    return [_whole(value, KINDS[kind]) for value in inputs]


def is_open(function: Any) -> bool:
    """Whether a type of a parameter does not say a shape or what the numbers are."""
    return not all(tvm_ffi.structural_equal(_known(param.ty, _AXES), param.ty) for param in function.params)


def _known(ty: Any, size: int) -> Any:
    if isinstance(ty, relax.TupleType):
        return relax.TupleType([_known(each, size) for each in ty.fields])
    if isinstance(ty, relax.ShapeType) and ty.values is None:
        return relax.ShapeType([size] * (ty.ndim if ty.ndim >= 0 else _AXES))
    if isinstance(ty, relax.TensorType):
        is_sized = hasattr(ty.shape, "values")
        if is_sized and ty.dtype is not None:
            return ty
        dtype, ndim = ty.dtype or "float32", ty.ndim if ty.ndim >= 0 else _AXES
        return relax.TensorType(ty.shape, dtype) if is_sized else relax.TensorType(None, dtype, ndim=ndim)
    return relax.TensorType(None, "float32", ndim=_AXES) if isinstance(ty, relax.AnyType) else ty


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
    text = tvm.ir.save_json(mod)  # of what is not in normal form there is no script
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


def _whole(value: Any, change: Callable[[Array], Array]) -> Any:
    if not hasattr(value, "numpy"):
        return _mapped(partial(_whole, change=change), value)
    array = value.numpy()
    if str(array.dtype) not in _SHARE and array.dtype.kind not in "iu":
        return value
    return tvm.runtime.tensor(change(array.astype("float64")).astype(array.dtype))


def _mapped(function: Any, value: Any) -> Any:
    is_tuple = hasattr(value, "__iter__") and not isinstance(value, tvm.runtime.ShapeTuple)
    return tvm_ffi.convert([function(field) for field in value]) if is_tuple else value
