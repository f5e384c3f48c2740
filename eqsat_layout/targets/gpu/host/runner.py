"""What runs a host plan, whatever the device.

In: a plan, constants, and the few things that a device does: memory, copies, launches. Out: :class:`Runner`, which is
called with arrays, by one thread at a time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_layout.errors import InputError
from eqsat_layout.system.dtypes import numpy_dtype
from eqsat_layout.targets.gpu.host.plan import (
    Allocation,
    HostFunction,
    HostPlan,
    Launch,
    TensorInMemory,
    TensorMap,
    flattened,
)
from eqsat_layout.targets.gpu.host.sizes import value_of

Array = npt.NDArray[Any]
Symbols = Mapping[str, int]


@dataclass(frozen=True)
class Mapped:
    """A memory of the device that a kernel looks at by a map, whose sizes are known."""

    made: Any
    map: TensorMap


@dataclass(frozen=True)
class Started:
    """A launch with all sizes known. ``arguments``: memories of the device, some by maps, and numbers with their
    types."""

    kernel: str
    arguments: Sequence[Any]
    groups: Sequence[int]
    items: Sequence[int]
    shared: int
    overlaps: bool


class Runner(ABC):
    """Constants are uploaded once. ``launched``: how many kernels were launched since it was made."""

    def __init__(self, plan: HostPlan, constants: Sequence[bytes | memoryview]) -> None:
        self._plan, self._data = plan, constants
        self._constants: dict[int, Any] = {}
        self._kept: dict[int, Any] = {}
        self.launched = 0

    @abstractmethod
    def allocated(self, memory: Allocation, symbols: Symbols) -> Any:
        """New memory on the device."""

    @abstractmethod
    def copy_in(self, made: Any, memory: Allocation, symbols: Symbols, array: Array) -> None:
        """``array``, contiguous and not empty, to the start of memory that was :meth:`allocated`."""

    @abstractmethod
    def copy_out(self, array: Array, made: Any, memory: Allocation, symbols: Symbols) -> None:
        """The other way."""

    @abstractmethod
    def launch(self, started: Started) -> None:
        """Runs a kernel after those before it."""

    def run(self, function: HostFunction, launches: Sequence[Started]) -> None:
        """All that a call of ``function`` launches, in order."""
        for one in launches:
            self.launch(one)

    @abstractmethod
    def finish(self) -> None:
        """Waits for all launches."""

    def __call__(self, *inputs: Any, entry: str | None = None) -> Any:
        """The results of a function, the only one if there is one, as arrays; tuples as lists, here and there."""
        function = self._function(entry)
        inputs = tuple(flattened(inputs))
        if len(inputs) != len(function.inputs):
            raise InputError(f"{function.name} takes {len(function.inputs)} tensors, got {len(inputs)}")
        arrays = [np.asarray(one, order="C") for one in inputs]
        symbols = {
            s.name: arrays[s.input].shape[s.axis] if s.axis < arrays[s.input].ndim else 0 for s in function.symbols
        }
        function = next((one for one in function.variants if value_of(one.fits, symbols)), function)
        for cast in function.casts:
            size, expected = value_of(cast.size, symbols), value_of(cast.expected, symbols)
            if size != expected:
                raise InputError(f"{function.name}: {cast.text} is {size}, but the program says that it is {expected}")
        memories = {**self._uploaded(), **self._kept}
        for name, number, array in zip(function.names, function.inputs, arrays, strict=True):
            value = self._plan.values[number]
            _check(name, array, value, symbols)
            self._allocate(value.memory, memories, symbols)
            if array.size:
                self.copy_in(memories[value.memory], self._plan.memories[value.memory], symbols, array)
        started = [self._started(one, memories, symbols) for one in function.launches]
        launches = [one for one in started if math.prod(one.groups)]
        self.run(function, launches)
        self.launched += len(launches)
        self.finish()
        for assertion in function.assertions:
            if not self._read(assertion.value, memories, symbols).all():
                raise InputError(f"{function.name}: {assertion.text}")
        return self._read(function.results, memories, symbols)

    def _function(self, entry: str | None) -> HostFunction:
        names = [f.name for f in self._plan.functions]
        if entry is None and len(names) == 1:
            entry = names[0]
        if entry not in names:
            raise InputError(f"there is no function {entry!r}; there are {', '.join(names)}")
        return self._plan.function(entry)

    def _uploaded(self) -> Mapping[int, Any]:
        """The constants, uploaded once."""
        if not self._constants:
            for number, memory in enumerate(self._plan.memories):
                if memory.constant is not None:
                    made, data = self.allocated(memory, {}), self._data[memory.constant]
                    if len(data):
                        self.copy_in(made, memory, {}, np.frombuffer(data, "uint8"))
                    self._constants[number] = made
        return self._constants

    def _started(self, launch: Launch, memories: dict[int, Any], symbols: Symbols) -> Started:
        groups = [value_of(size, symbols) for size in launch.groups]
        arguments: list[Any] = []
        for argument in launch.arguments:
            if argument.memory is None:
                arguments.append(numpy_dtype(argument.dtype).type(value_of(argument.number, symbols)))
                continue
            self._allocate(argument.memory, memories, symbols)
            made = memories[argument.memory]
            arguments.append(made if argument.map is None else Mapped(made, _known(argument.map, symbols)))
        items = [value_of(size, symbols) for size in launch.items]
        shared = value_of(launch.shared, symbols)
        return Started(launch.kernel, arguments, groups, items, shared, launch.overlaps)

    def _allocate(self, number: int, memories: dict[int, Any], symbols: Symbols) -> None:
        """What has the same size each time is kept for the next run."""
        if number not in memories:
            memory = self._plan.memories[number]
            memories[number] = self.allocated(memory, symbols)
            if memory.zeros:
                self.copy_in(memories[number], memory, symbols, np.zeros(value_of(memory.bytes, symbols), "uint8"))
            if isinstance(memory.bytes, int):
                self._kept[number] = memories[number]

    def _read(self, results: Any, memories: dict[int, Any], symbols: Symbols) -> Any:
        if isinstance(results, list):
            return [self._read(one, memories, symbols) for one in results]
        value = self._plan.values[results]
        array = np.empty([value_of(extent, symbols) for extent in value.shape], numpy_dtype(value.dtype))
        if array.size:
            self._allocate(value.memory, memories, symbols)
            self.copy_out(array, memories[value.memory], self._plan.memories[value.memory], symbols)
        return array


def _known(given: TensorMap, symbols: Symbols) -> TensorMap:
    extents, strides = (tuple(value_of(size, symbols) for size in sizes) for sizes in (given.extents, given.strides))
    return replace(given, extents=extents, strides=strides)


def _check(name: str, array: Array, value: TensorInMemory, symbols: Symbols) -> None:
    shape = tuple(value_of(extent, symbols) for extent in value.shape)
    if array.shape != shape or array.dtype != numpy_dtype(value.dtype):
        said = f"{value.dtype} {shape}"
        raise InputError(f"input {name!r}: expected {said}, got {array.dtype} {array.shape}")
