"""A module apart from the data of its constants, which are most of its bytes.

In: a module. Out: the same with a number in the place of each constant, small enough for JSON, and the tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import tvm
from tvm import relax

from eqsat_layout.tir.structural import structural_map

_ALIGNMENT: Final = 64
"""Bytes; what TVM asks of memory that it has not allocated."""


@dataclass(frozen=True)
class Skeleton:
    """``module`` with constants that hold numbers of ``tensors``, whatever their types say. It is for keeping only."""

    module: tvm.IRModule
    tensors: tuple[Any, ...]

    @staticmethod
    def of(mod: tvm.IRModule) -> Skeleton:
        """``mod`` apart; it is not changed."""
        tensors: list[Any] = []

        def numbered(constant: Any) -> Any:
            if not isinstance(constant.value, tvm.runtime.Tensor):
                return constant
            tensors.append(constant.value)
            return tvm.ir.GenericConst(tvm.runtime.tensor(np.array(len(tensors) - 1)), constant.ty)

        return Skeleton(_mapped(mod, numbered), tuple(tensors))

    def whole(self) -> tvm.IRModule:
        """The module again."""

        def data(constant: Any) -> Any:
            if not isinstance(constant.value, tvm.runtime.Tensor):
                return constant
            return tvm.ir.GenericConst(self.tensors[int(constant.value.numpy())], constant.ty)

        return _mapped(self.module, data)


def data_of(tensor: Any) -> memoryview:
    """The bytes of a tensor on this machine's CPU, of any dtype, not copied."""
    return memoryview(_bytes(tensor))


def size_of(shape: Sequence[int], dtype: Any) -> int:
    """The bytes of a tensor."""
    element = tvm.DataType(str(dtype))
    return (math.prod(map(int, shape)) * int(element.bits) * int(element.lanes) + 7) // 8


def tensor_on(data: memoryview, shape: Sequence[int], dtype: str) -> Any:
    """A tensor whose elements are these bytes, at an address for TVM's kernels; a copy where it is none."""
    array = np.frombuffer(data, "uint8")
    if not array.size or array.ctypes.data % _ALIGNMENT:
        result = tvm.runtime.empty(tuple(shape), dtype)
        _bytes(result)[:] = array
        return result
    return tvm.runtime.from_dlpack(array)._create_view(tuple(shape), dtype)


def _bytes(tensor: Any) -> Any:
    return np.from_dlpack(tensor._create_view((size_of(tensor.shape, tensor.dtype),), "uint8"))


def _mapped(mod: tvm.IRModule, change: Any) -> tvm.IRModule:
    functions = {
        var: structural_map(func, (tvm.ir.GenericConst, change)) if isinstance(func, relax.Function) else func
        for var, func in mod.functions_items()
    }
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
