"""Memories, values and constants of a host plan, as they are found.

In: tensors by shape, dtype and memory scope. Out: their numbers, and :class:`PlanWriter` with what they stand for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import tvm

from eqsat_layout.graph.skeleton import data_of, kind_of
from eqsat_layout.graph.vdevices import scope_of
from eqsat_layout.maps import GLOBAL
from eqsat_layout.targets.gpu.host.plan import Allocation, HostFunction, TensorInMemory
from eqsat_layout.targets.gpu.host.sizes import Size, product, symbols_of_size

ImageOf: TypeAlias = Callable[[Sequence[Size], str], tuple[Size, Size, Size]]


class PlanWriter:
    """What all functions of a plan share."""

    def __init__(
        self, mod: tvm.IRModule, hosts: Mapping[str, Any], views: Collection[str], image_of: ImageOf | None
    ) -> None:
        self.mod, self.hosts, self.views, self._image_of = mod, hosts, views, image_of
        self.memories: list[Allocation] = []
        self.values: list[TensorInMemory] = []
        self.data: list[memoryview] = []
        self._constants: dict[Any, int] = {}

    def allocated(self, memory: Allocation) -> int:
        """Its number."""
        self.memories.append(memory)
        return len(self.memories) - 1

    def value(self, shape: Sequence[Size], dtype: str, scope: str, memory: int) -> int:
        """The number of a tensor in a memory."""
        self.values.append(TensorInMemory(tuple(shape), dtype, scope, memory))
        return len(self.values) - 1

    def new(self, shape: Sequence[Size], dtype: str, scope: str, constant: int | None = None) -> int:
        """A tensor in memory of its own."""
        size = product([*shape, stored_bytes(dtype)])
        image = self._image_of(shape, scope) if scope != GLOBAL and self._image_of is not None else None
        return self.value(shape, dtype, scope, self.allocated(Allocation(size, image, dtype, constant)))

    def with_used_symbols(self, function: HostFunction) -> HostFunction:
        """Without the symbols that none of its sizes hangs on."""
        read = [self.values[number] for number in (*function.inputs, *function.read)]
        sizes = [size for value in read for size in value.shape]
        used = {value.memory for value in read}
        for launch in function.launches:
            sizes += [*launch.groups, *launch.items, launch.shared, *(a.number for a in launch.arguments)]
            used |= {argument.memory for argument in launch.arguments if argument.memory is not None}
        sizes += [self.memories[number].bytes for number in used]
        names = {name for size in sizes for name in symbols_of_size(size)}
        return replace(function, symbols=tuple(symbol for symbol in function.symbols if symbol.name in names))

    def constant(self, expr: Any) -> int:
        """The number of a tensor that holds a constant; equal ones are one."""
        (shape, dtype), scope, data = kind_of(expr.value), scope_of(expr.ty), data_of(expr.value)
        key = (*shape, dtype, scope, hashlib.blake2b(data).digest())
        if key not in self._constants:
            self.data.append(data)
            self._constants[key] = self.new(shape, dtype, scope, len(self.data) - 1)
        return self._constants[key]


def stored_bytes(dtype: str) -> int:
    """The bytes of an element in memory; a boolean is one byte."""
    return max(1, int(tvm.DataType(dtype).bits) // 8) * int(tvm.DataType(dtype).lanes)
