"""A module apart from the data of its constants, which are most of its bytes.

In: a module. Out: the same with a number in the place of each constant, small enough for JSON, and the tensors, which
lie in files as they do in memory.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import tvm
from tvm import relax

from eqsat_layout.system.frames import ALIGNMENT, padding_after
from eqsat_layout.tir.structural import structural_map, with_relax_functions

_LOOKED_AT: Final = 256
"""Bytes of a tensor that tell whether it may be equal to another one."""


@dataclass(frozen=True)
class Skeleton:
    """``module`` with constants that hold numbers of ``tensors``, whatever their types say. It is for keeping only."""

    module: tvm.IRModule
    tensors: tuple[Any, ...]

    @staticmethod
    def of(mod: tvm.IRModule) -> Skeleton:
        """``mod`` apart; it is not changed. Equal tensors are one."""
        tensors = SharedTensors()

        def numbered(constant: Any) -> Any:
            if not isinstance(constant.value, tvm.runtime.Tensor):
                return constant
            number = tensors.number(constant.value)
            return tvm.ir.GenericConst(tvm.runtime.tensor(np.array(number)), constant.ty)

        return Skeleton(_mapped(mod, numbered), tuple(tensors.kept))

    def whole(self) -> tvm.IRModule:
        """The module again."""

        def data(constant: Any) -> Any:
            if not isinstance(constant.value, tvm.runtime.Tensor):
                return constant
            return tvm.ir.GenericConst(self.tensors[int(constant.value.numpy())], constant.ty)

        return _mapped(self.module, data)

    def with_parameters(self, name: str) -> tvm.IRModule:
        """The module where ``name``, which takes nothing, takes the tensors."""
        params = [relax.Var(f"given{i}", relax.TensorType(*kind_of(one))) for i, one in enumerate(self.tensors)]

        def parameter(constant: Any) -> Any:
            is_tensor = isinstance(constant.value, tvm.runtime.Tensor)
            return params[int(constant.value.numpy())] if is_tensor else constant

        mod = _mapped(self.module, parameter)
        own = mod[name]
        mod.update_func(mod.get_global_var(name), relax.Function(params, own.body, own.ret_ty, attrs=own.attrs))
        normalised: tvm.IRModule = relax.transform.Normalize()(mod)
        return normalised


class SharedTensors:
    """Tensors without those that are equal to one before, bit for bit: steps that are written out read one weight."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._alike: dict[Any, list[int]] = {}

    def number(self, tensor: Any) -> int:
        """Of ``tensor``, or of the one in ``kept`` that is equal to it."""
        found = self._numbers.get(tensor)
        if found is None:
            found = self._numbers[tensor] = self._number(tensor)
        return found

    def _number(self, tensor: Any) -> int:
        data = np.frombuffer(data_of(tensor), "uint8")
        some = data[:: max(1, data.size // _LOOKED_AT)][:_LOOKED_AT].tobytes()
        alike = self._alike.setdefault((kind_of(tensor), some), [])
        for number in alike:
            if np.array_equal(np.frombuffer(data_of(self.kept[number]), "uint8"), data):
                return number
        alike.append(len(self.kept))
        self.kept.append(tensor)
        return len(self.kept) - 1


Kind = tuple[tuple[int, ...], str]
"""Shape and dtype of a tensor."""


def kind_of(tensor: Any) -> Kind:
    """Shape and dtype."""
    return tuple(map(int, tensor.shape)), str(tensor.dtype)


def data_of(tensor: Any) -> memoryview:
    """The bytes of a tensor on this machine's CPU, of any dtype, not copied."""
    return memoryview(_bytes(tensor))


def write_tensors(path: Path, tensors: Sequence[Any]) -> None:
    """A file that :func:`read_tensors` reads."""
    with path.open("wb") as file:
        for tensor in tensors:
            data = data_of(tensor)
            file.write(data)
            file.write(bytes(padding_after(len(data))))


def read_tensors(path: Path, kinds: Iterable[Kind]) -> list[Any]:
    """Tensors of such kinds that lie in the file itself; it may be removed. What is written to them stays in memory."""
    if not path.stat().st_size:
        return [tvm.runtime.empty(shape, dtype) for shape, dtype in kinds]
    with path.open("rb") as file:
        return tensors_on(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)), kinds)


def untouched(shape: Sequence[int], dtype: str) -> Any:
    """A tensor of zeros that takes memory where it is written to only."""
    size = _size(shape, dtype)
    return _tensor_on(memoryview(mmap.mmap(-1, max(size, 1)))[:size], shape, dtype)


def tensors_on(data: memoryview, kinds: Iterable[Kind]) -> list[Any]:
    """Tensors of such kinds on these bytes, one after the other at addresses for tensors; elsewhere they are copied."""
    tensors: list[Any] = []
    place = 0
    for shape, dtype in kinds:
        size = _size(shape, dtype)
        tensors.append(_tensor_on(data[place : place + size], shape, dtype))
        place += size + padding_after(size)
    return tensors


def _tensor_on(data: memoryview, shape: Sequence[int], dtype: str) -> Any:
    array = np.frombuffer(data, "uint8")
    if not array.size or array.ctypes.data % ALIGNMENT:
        result = tvm.runtime.empty(tuple(shape), dtype)
        _bytes(result)[:] = array
        return result
    return tvm.runtime.from_dlpack(array)._create_view(tuple(shape), dtype)


def _size(shape: Sequence[int], dtype: str) -> int:
    element = tvm.DataType(dtype)
    return (math.prod(shape) * int(element.bits) * int(element.lanes) + 7) // 8


def _bytes(tensor: Any) -> Any:
    return np.from_dlpack(tensor._create_view((_size(*kind_of(tensor)),), "uint8"))


def _mapped(mod: tvm.IRModule, change: Any) -> tvm.IRModule:
    return with_relax_functions(mod, lambda func: structural_map(func, (tvm.ir.GenericConst, change)))
