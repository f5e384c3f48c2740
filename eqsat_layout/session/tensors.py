"""Tensors of others as TVM's and back, without copies where memory allows it.

In: NumPy arrays, tensors of torch and TVM, whatever speaks DLPack, numbers and lists. Out: TVM tensors on the CPU; and
results as NumPy arrays that own what they show.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tvm_ffi

from eqsat_layout.errors import InputError
from eqsat_layout.notes import first_line, said_by
from eqsat_layout.session.interface import Shape, TensorSpec, type_text
from eqsat_layout.system.dtypes import numpy_dtype
from eqsat_layout.system.frames import ALIGNMENT

Array = npt.NDArray[Any]

_CPUS: Final = frozenset({1, 3})
"""DLPack's numbers of memory that a CPU reads: its own, and CUDA's on the host."""
_PLAIN: Final = frozenset(f"{kind}{bits}" for kind in ("float", "int", "uint") for bits in (8, 16, 32, 64)) - {"float8"}
"""Dtypes that NumPy gives to DLPack and takes from it."""


Staging = dict[str, Any]
"""By name the tensors that inputs of one run at a time are copied to: fresh memory costs more than the copy."""


def serves_as_input(value: Any, spec: TensorSpec) -> bool:
    """``value`` is an array whose memory is an input of ``spec`` as it stands, at an address for its elements."""
    if type(value) is not np.ndarray or value.shape != spec.shape or spec.dtype not in _PLAIN:
        return False
    return bool(value.dtype is _plain(spec.dtype) and value.flags.carray and value.size)


def tensor_of(value: Any, spec: TensorSpec, staging: Staging, *, any_address: bool = False) -> Any:
    """``value`` as a tensor of TVM's, the same memory where that is dense and aligned: as its elements have to be, for
    ``any_address``. :class:`InputError` where it is of another dtype than ``spec`` says or lies on another device."""
    alignment = max(1, _size_of((), spec.dtype)) if any_address else ALIGNMENT
    if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
        return _foreign(value, spec, alignment)
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise InputError(f"input {spec.name!r}: expected {spec}, got an array of which elements are masked out")
    try:
        array = np.asarray(value)
        if type(value) in (list, tuple, bool, int, float):  # not NumPy's own numbers
            array = _of_python(array, spec.dtype)
    except ValueError as error:
        raise InputError(f"input {spec.name!r}: expected {spec}, got no array: {first_line(error)}") from error
    _check_dtype(array.dtype.name, array.shape, spec)
    return _of_array(array, spec, staging, alignment)


def array_of(tensor: Any, *, copied: bool) -> Array:
    """``tensor`` as an array, of memory of its own where it is ``copied``."""
    array: Array = way_back(str(tensor.dtype))(tensor)
    return array.copy() if copied else array


def way_back(dtype: str) -> Callable[[Any], Array]:
    """What shows tensors of ``dtype`` as arrays."""
    if dtype in _PLAIN:
        return np.from_dlpack
    return lambda tensor: _bytes(tensor).view(numpy_dtype(dtype)).reshape(tuple(map(int, tensor.shape)))


def span(tensor: Any) -> tuple[int, int]:
    """The addresses that a tensor takes; none for an empty one."""
    start = int(tensor.data_ptr())
    return start, start + _size(tensor)


def _foreign(value: Any, spec: TensorSpec, alignment: int) -> Any:
    """A tensor of torch's, TVM's or another library's."""
    if hasattr(value, "detach"):  # torch gives no tensor away that gradients are kept for
        value = value.detach()
    try:
        if value.__dlpack_device__()[0] not in _CPUS:
            raise InputError(f"input {spec.name!r}: expected a tensor on the CPU, got one on {value.device}")
        # DLPack does not say that a tensor of torch's stands for its negative
        for make in ("resolve_neg", "contiguous"):
            value = getattr(value, make)() if hasattr(value, make) else value
        tensor = tvm_ffi.from_dlpack(value, require_alignment=1, require_contiguous=True)
    except InputError:
        raise
    except (RuntimeError, ValueError, TypeError, BufferError) as error:  # of torch's, or another library's
        said = f"got what DLPack can't give: {said_by(error)}"
        raise InputError(f"input {spec.name!r}: expected {spec}, {said}") from error
    shape = tuple(map(int, tensor.shape))
    _check_dtype(str(tensor.dtype), shape, spec)
    if not math.prod(shape):  # whatever its strides are, which kernels look at
        return _empty(shape, spec.dtype)
    if tensor.data_ptr() % alignment:
        own = _empty(shape, spec.dtype)
        _bytes(own)[:] = _bytes(tensor)
        return own
    return tensor


def _of_python(array: Array, dtype: str) -> Array:
    """Numbers of Python's, which have no dtype of their own, as ``dtype`` where that has such numbers."""
    wanted = numpy_dtype(dtype)
    order = "biuf"
    kind = "f" if dtype.startswith(("float", "bfloat")) else wanted.kind
    if array.size and (array.dtype.kind not in order or order.find(array.dtype.kind) > order.find(kind)):
        return array
    made = array.astype(wanted)
    return made if kind == "f" or np.array_equal(made, array) else array


def _is_ready(array: Array, alignment: int) -> bool:
    """Its memory can be a tensor."""
    flags = array.flags
    is_dense = flags.c_contiguous and flags.writeable and array.dtype.isnative and array.size
    return bool(is_dense and not array.__array_interface__["data"][0] % alignment)


def _of_array(array: Array, spec: TensorSpec, staging: Staging, alignment: int) -> Any:
    if _is_ready(array, alignment):
        return _view(tvm_ffi.from_dlpack(array.reshape(-1).view("uint8")), array.shape, spec.dtype)
    own = staging.get(spec.name)
    if own is None or tuple(own.shape) != array.shape:
        own = staging[spec.name] = _empty(array.shape, spec.dtype)
    if array.size:
        _bytes(own).view(array.dtype.newbyteorder("=")).reshape(array.shape)[...] = array
    return own


def _check_dtype(dtype: str, shape: Shape, spec: TensorSpec) -> None:
    if dtype != spec.dtype:
        raise InputError(f"input {spec.name!r}: expected {spec}, got {type_text(shape, dtype)}")


def _bytes(tensor: Any) -> Array:
    """The memory of a dense tensor; the array keeps it alive."""
    size = _size(tensor)
    if not size:
        return np.empty(0, "uint8")
    return np.from_dlpack(_view(tensor, (size,), "uint8"))


def _view(tensor: Any, shape: Shape, dtype: str) -> Any:
    """The same memory as another tensor."""
    return _create_view()(tensor, tvm_ffi.Shape(shape), tvm_ffi.dtype(dtype), 0)


@cache
def _create_view() -> Any:
    return tvm_ffi.get_global_func("runtime.TVMTensorCreateView")


def _empty(shape: Shape, dtype: str) -> Any:
    """A tensor of this process's memory, at an address for tensors."""
    size = _size_of(shape, dtype)
    if not size:
        return _view(tvm_ffi.from_dlpack(np.empty(ALIGNMENT, "uint8")), shape, dtype)
    memory = np.empty(size + ALIGNMENT, "uint8")
    start = -memory.ctypes.data % ALIGNMENT
    return _view(tvm_ffi.from_dlpack(memory[start : start + size]), shape, dtype)


def _size(tensor: Any) -> int:
    return _size_of(tensor.shape, str(tensor.dtype))


def _size_of(shape: Any, dtype: str) -> int:
    return math.prod(map(int, shape)) * int(tvm_ffi.dtype(dtype).itemsize)


@cache
def _plain(dtype: str) -> Any:
    """NumPy's one object for the dtype, where it is native."""
    return np.dtype(dtype)
