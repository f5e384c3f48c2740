"""A program on a device of this machine, through pyopencl.

In: an :class:`~eqsat_layout.targets.opencl.host.executable.OpenClProgram` and a context. Out: :class:`DeviceProgram`,
which is called with arrays, by one thread at a time. Tensors in texture scopes are real arrays of images.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from eqsat_layout.errors import InputError, TargetError
from eqsat_layout.maps import GLOBAL
from eqsat_layout.targets.opencl.host.plan import Function, HostPlan, Launch, Memory, Value
from eqsat_layout.targets.opencl.host.pocl import mend
from eqsat_layout.targets.opencl.host.sizes import value_of

if TYPE_CHECKING:
    from eqsat_layout.targets.opencl.host.executable import OpenClProgram

Array = npt.NDArray[Any]

_NO_PYOPENCL: Final = 'OpenCL programs run here through pyopencl: pip install "eqsat-layout[opencl]"'


class DeviceProgram:
    """Kernels built, constants uploaded. ``launched``: how many kernels were launched since it was made."""

    def __init__(self, program: OpenClProgram, context: Any = None) -> None:
        self._cl = _pyopencl()
        self._plan: HostPlan = program.plan
        self._context = first_context() if context is None else context
        self._queue = self._cl.CommandQueue(self._context)
        self._kernels = self._built(program.sources)
        self._constants = {
            number: self._uploaded(memory, program.constants[memory.constant])
            for number, memory in enumerate(self._plan.memories)
            if memory.constant is not None
        }
        self.launched = 0
        self._kept: dict[int, Any] = {}

    def __call__(self, *inputs: Any, entry: str | None = None) -> Any:
        """The results of a function, the only one if there is one, as arrays; tuples as lists, here and there."""
        function = self._function(entry)
        inputs = tuple(_flat(inputs))
        if len(inputs) != len(function.inputs):
            raise InputError(f"{function.name} takes {len(function.inputs)} tensors, got {len(inputs)}")
        arrays = [np.asarray(one, order="C") for one in inputs]
        symbols = self._symbols(function, arrays)
        memories = {**self._constants, **self._kept}
        for name, number, array in zip(function.names, function.inputs, arrays, strict=True):
            value = self._plan.values[number]
            self._check(name, array, value, symbols)
            self._allocate(value.memory, memories, symbols)
            self._write(memories[value.memory], value, symbols, array)
        for launch in function.launches:
            self._launch(launch, memories, symbols)
        self._queue.finish()
        return self._read(function.results, memories, symbols)

    def _function(self, entry: str | None) -> Function:
        names = [f.name for f in self._plan.functions]
        if entry is None and len(names) == 1:
            entry = names[0]
        if entry not in names:
            raise InputError(f"there is no function {entry!r}; there are {', '.join(names)}")
        return self._plan.function(entry)

    def _symbols(self, function: Function, arrays: Sequence[Array]) -> dict[str, int]:
        return {s.name: arrays[s.input].shape[s.axis] if s.axis < arrays[s.input].ndim else 0 for s in function.symbols}

    def _check(self, name: str, array: Array, value: Value, symbols: Mapping[str, int]) -> None:
        shape = tuple(value_of(extent, symbols) for extent in value.shape)
        if array.shape != shape or array.dtype != np.dtype(value.dtype):
            said = f"{value.dtype} {shape}"
            raise InputError(f"input {name!r}: expected {said}, got {array.dtype} {array.shape}")

    def _launch(self, launch: Launch, memories: dict[int, Any], symbols: Mapping[str, int]) -> None:
        groups = [value_of(size, symbols) for size in launch.groups]
        if not math.prod(groups):
            return
        items = [value_of(size, symbols) for size in launch.items]
        arguments: list[Any] = []
        for argument in launch.arguments:
            if argument.memory is None:
                arguments.append(np.dtype(argument.dtype).type(value_of(argument.number, symbols)))
                continue
            self._allocate(argument.memory, memories, symbols)
            arguments.append(memories[argument.memory])
        wide = [group * item for group, item in zip(groups, items, strict=True)]
        self._kernels[launch.kernel](self._queue, wide, items, *arguments)
        self.launched += 1

    def _built(self, sources: Mapping[str, str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self._cl.CompilerWarning)
            for name, source in sources.items():
                try:
                    built = self._cl.Program(self._context, source).build()
                except self._cl.RuntimeError as error:
                    raise TargetError(f"kernel {name} is refused by the device's compiler: {error}") from error
                found[name] = self._cl.Kernel(built, name)
        return found

    def _allocate(self, number: int, memories: dict[int, Any], symbols: Mapping[str, int]) -> None:
        """What has the same size each time is kept for the next run."""
        if number not in memories:
            memory = self._plan.memories[number]
            memories[number] = self._allocated(memory, symbols)
            if isinstance(memory.bytes, int):
                self._kept[number] = memories[number]

    def _allocated(self, memory: Memory, symbols: Mapping[str, int]) -> Any:
        flags = self._cl.mem_flags.READ_WRITE
        if memory.image is None:
            return self._cl.Buffer(self._context, flags, max(1, value_of(memory.bytes, symbols)))
        layers, height, width = (value_of(size, symbols) for size in memory.image)
        channel = self._cl.channel_type
        kind = {"float32": channel.FLOAT, "float16": channel.HALF_FLOAT}[memory.dtype]
        texels = self._cl.ImageFormat(self._cl.channel_order.RGBA, kind)
        return self._cl.create_image(self._context, flags, texels, shape=(width, height, layers), is_array=True)

    def _uploaded(self, memory: Memory, data: bytes | memoryview) -> Any:
        made = self._allocated(memory, {})
        if len(data):
            self._copy(made, np.frombuffer(data, "uint8"), memory, {})
        return made

    def _write(self, made: Any, value: Value, symbols: Mapping[str, int], array: Array) -> None:
        if array.size:
            self._copy(made, array, self._plan.memories[value.memory], symbols)

    def _copy(self, target: Any, source: Any, memory: Memory, symbols: Mapping[str, int]) -> None:
        """Between this machine's memory and the device's, in either direction."""
        region: dict[str, Any] = {}
        if memory.image is not None:
            layers, height, width = (value_of(size, symbols) for size in memory.image)
            region = {"origin": (0, 0, 0), "region": (width, height, layers)}
        self._cl.enqueue_copy(self._queue, target, source, is_blocking=True, **region)

    def _read(self, results: Any, memories: dict[int, Any], symbols: Mapping[str, int]) -> Any:
        if isinstance(results, list):
            return [self._read(one, memories, symbols) for one in results]
        value = self._plan.values[results]
        array = np.empty([value_of(extent, symbols) for extent in value.shape], np.dtype(value.dtype))
        if array.size:
            memory = self._plan.memories[value.memory]
            self._allocate(value.memory, memories, symbols)
            assert value.scope == GLOBAL or memory.image is not None, "a view of an image"
            self._copy(array, memories[value.memory], memory, symbols)
        return array


def _flat(inputs: Sequence[Any]) -> Iterator[Any]:
    for one in inputs:
        if isinstance(one, list | tuple):
            yield from _flat(one)
        else:
            yield one


def first_context() -> Any:
    """A context of the first device that has images, or of the first one there is."""
    cl = _pyopencl()
    try:
        devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error as error:
        raise TargetError(f"no OpenCL device is found here: {error}") from error
    if not devices:
        raise TargetError("no OpenCL device is found here")
    best = next((d for d in devices if d.image_support), devices[0])
    mend(best)
    return cl.Context([best])


def _pyopencl() -> Any:
    try:
        import pyopencl
    except ImportError as error:
        raise TargetError(_NO_PYOPENCL) from error
    return pyopencl
