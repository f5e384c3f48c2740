"""Tensors of others as TVM's and back, without copies where memory allows it.

In: NumPy arrays, tensors of torch and TVM, whatever speaks DLPack, numbers and lists. Out: TVM tensors on the CPU; and
results as NumPy arrays that own what they show.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tvm_ffi

from eqsat_layout.errors import InputError
from eqsat_layout.notes import first_line
from eqsat_layout.session.interface import Shape, TensorSpec, described
from eqsat_layout.session.runtime import empty, viewed
from eqsat_layout.system.frames import ALIGNMENT

Array = npt.NDArray[Any]

_CPUS: Final = frozenset({1, 3})
"""DLPack's numbers of memory that a CPU reads: its own, and CUDA's on the host."""


def taken(value: Any, spec: TensorSpec) -> Any:
    """``value`` as a tensor of TVM's, the same memory where that is dense and aligned. :class:`InputError` where it is
    of another dtype than ``spec`` says or lies on another device."""
    if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
        return _foreign(value, spec)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(f"input {spec.name!r}: expected {spec}, got no array: {first_line(error)}") from error
    _check_dtype(array.dtype.name, array.shape, spec)
    return _of_array(array, spec.dtype)


def given_back(tensor: Any, *, copied: bool) -> Array:
    """``tensor`` as an array, of memory of its own where it is ``copied``."""
    dtype = numpy_dtype(str(tensor.dtype))
    array: Array = _bytes(tensor).view(dtype).reshape(tuple(map(int, tensor.shape)))
    return array.copy() if copied else array


def span(tensor: Any) -> tuple[int, int]:
    """The addresses that a tensor takes; none for an empty one."""
    start = int(tensor.data_ptr())
    return start, start + _size(tensor)


def _foreign(value: Any, spec: TensorSpec) -> Any:
    """A tensor of torch's, TVM's or another library's."""
    if hasattr(value, "detach"):  # torch gives no tensor away that gradients are kept for
        value = value.detach()
    if value.__dlpack_device__()[0] not in _CPUS:
        raise InputError(f"input {spec.name!r}: expected a tensor on the CPU, got one on {value.device}")
    if hasattr(value, "contiguous"):
        value = value.contiguous()
    try:
        tensor = tvm_ffi.from_dlpack(value, require_alignment=1, require_contiguous=True)
    except (RuntimeError, ValueError, TypeError, BufferError) as error:
        raise InputError(f"input {spec.name!r}: expected {spec}, got what DLPack can't give: {error}") from error
    shape = tuple(map(int, tensor.shape))
    _check_dtype(str(tensor.dtype), shape, spec)
    if tensor.data_ptr() % ALIGNMENT:
        own = empty(shape, spec.dtype)
        _bytes(own)[:] = _bytes(tensor)
        return own
    return tensor


def _of_array(array: Array, dtype: str) -> Any:
    is_ready = array.flags.c_contiguous and array.flags.writeable and array.dtype.isnative and array.size
    if is_ready and not array.ctypes.data % ALIGNMENT:
        return viewed(tvm_ffi.from_dlpack(array.reshape(-1).view("uint8")), array.shape, dtype)
    own = empty(array.shape, dtype)
    if array.size:
        _bytes(own).view(array.dtype.newbyteorder("=")).reshape(array.shape)[...] = array
    return own


def _check_dtype(dtype: str, shape: Shape, spec: TensorSpec) -> None:
    if dtype != spec.dtype:
        raise InputError(f"input {spec.name!r}: expected {spec}, got {described(shape, dtype)}")


def _bytes(tensor: Any) -> Array:
    """The memory of a dense tensor; the array keeps it alive."""
    size = _size(tensor)
    if not size:
        return np.empty(0, "uint8")
    return np.from_dlpack(viewed(tensor, (size,), "uint8"))


def _size(tensor: Any) -> int:
    return int(np.prod([int(e) for e in tensor.shape], dtype=np.int64)) * int(numpy_dtype(str(tensor.dtype)).itemsize)


def numpy_dtype(dtype: str) -> Any:
    """NumPy's own, or one of those that ``ml_dtypes`` adds to it, which TVM's Python package needs too."""
    try:
        return np.dtype(dtype)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, dtype))
