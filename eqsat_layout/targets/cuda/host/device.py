"""A program on a CUDA device of this machine, through the driver.

In: a host plan and the machine code of its kernels. Out: :class:`CudaDevice`, which is called with arrays. What a
function launches is captured once as a CUDA graph, where all its sizes are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, Final

import numpy as np

from eqsat_layout.errors import TargetError
from eqsat_layout.targets.gpu.host.files import Piece
from eqsat_layout.targets.gpu.host.plan import Allocation, HostFunction, HostPlan
from eqsat_layout.targets.gpu.host.runner import Array, Mapped, Runner, Started, Symbols
from eqsat_layout.targets.gpu.host.sizes import value_of

_NO_BINDINGS: Final = 'CUDA programs run here through cuda-bindings: pip install "eqsat-layout[cuda]"'
_WITHOUT_ASKING: Final = 48 << 10
"""Bytes of shared memory of a block that need no permission."""
_LONGEST_NAME: Final = 256
_LOADS_FUNCTIONS: Final = 12040
"""The version of drivers that do so when asked."""


class CudaDevice(Runner):
    """Kernels loaded on device ``number``, which goes by ``name``. What is allocated lives until :meth:`close`.

    ``driver``: what has the functions of ``cuda.bindings.driver``; ``None``: that itself.
    """

    def __init__(
        self,
        plan: HostPlan,
        constants: Sequence[Piece],
        binaries: Mapping[str, bytes],
        number: int = 0,
        *,
        driver: Any = None,
    ) -> None:
        super().__init__(plan, constants)
        self._cuda = driver_of() if driver is None else driver
        self._graphs: dict[str, Any] = {}
        self._memories: list[Any] = []
        self._do("cuInit", 0)
        device = self._do("cuDeviceGet", number)
        self.name = self._do("cuDeviceGetName", _LONGEST_NAME, device).split(b"\0")[0].decode()
        self._context = self._do("cuDevicePrimaryCtxRetain", device)
        self._do("cuCtxSetCurrent", self._context)
        self._stream = self._do("cuStreamCreate", 0)
        self._modules = {name: self._do("cuModuleLoadData", code) for name, code in binaries.items()}
        self._kernels = {
            name: self._do("cuModuleGetFunction", module, name.encode()) for name, module in self._modules.items()
        }
        if self._do("cuDriverGetVersion") >= _LOADS_FUNCTIONS:  # else at their first launch, where a graph is captured
            for kernel in self._kernels.values():
                self._do("cuFuncLoad", kernel)
        self._permitted: dict[str, int] = {}

    def allocated(self, memory: Allocation, symbols: Symbols) -> Any:
        """Device memory."""
        self._memories.append(self._do("cuMemAlloc", max(1, value_of(memory.bytes, symbols))))
        return self._memories[-1]

    def copy_in(self, made: Any, memory: Allocation, symbols: Symbols, array: Array) -> None:
        """From this machine's memory."""
        self._do("cuMemcpyHtoD", made, array.ctypes.data, array.nbytes)

    def copy_out(self, array: Array, made: Any, memory: Allocation, symbols: Symbols) -> None:
        """To this machine's memory."""
        self._do("cuMemcpyDtoH", array.ctypes.data, made, array.nbytes)

    def run(self, function: HostFunction, launches: Sequence[Started]) -> None:
        """As a graph; where memories may change from call to call, one by one."""
        if function.symbols or not launches:
            super().run(function, launches)
            return
        if function.name not in self._graphs:
            mode = self._cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
            self._do("cuStreamBeginCapture", self._stream, mode)
            super().run(function, launches)
            captured = self._do("cuStreamEndCapture", self._stream)
            self._graphs[function.name] = self._do("cuGraphInstantiate", captured, 0)
            self._do("cuGraphDestroy", captured)
        self._do("cuGraphLaunch", self._graphs[function.name], self._stream)

    def launch(self, started: Started) -> None:
        """On the one stream."""
        kernel = self._kernels[started.kernel]
        if started.shared > max(_WITHOUT_ASKING, self._permitted.get(started.kernel, 0)):
            attribute = self._cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._do("cuFuncSetAttribute", kernel, attribute, started.shared)
            self._permitted[started.kernel] = started.shared
        maps = [self._encoded(one) if isinstance(one, Mapped) else None for one in started.arguments]
        values = [_value(one) for one in started.arguments if not isinstance(one, Mapped)]
        others = iter(values)
        places = [next(others).ctypes.data if one is None else int(one.getPtr()) for one in maps]
        pointers = np.array(places, dtype=np.uint64)
        config = self._cuda.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = started.groups
        config.blockDimX, config.blockDimY, config.blockDimZ = started.items
        config.sharedMemBytes, config.hStream = started.shared, self._stream
        if started.overlaps:
            attribute = self._cuda.CUlaunchAttribute()
            attribute.id = self._cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            config.attrs, config.numAttrs = [attribute], 1
        self._do("cuLaunchKernelEx", config, kernel, pointers.ctypes.data, 0)

    def _encoded(self, mapped: Mapped) -> Any:
        """The driver's tensor map: rows of 128 bytes exchanged, and zeros beyond the ends."""
        cuda, given = self._cuda, mapped.map
        rank = len(given.extents)
        wide = [[cuda.cuuint64_t(size) for size in sizes] for sizes in (given.extents, given.strides)]
        narrow = [[cuda.cuuint32_t(size) for size in sizes] for sizes in (given.box, [1] * rank)]
        how = (
            cuda.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            cuda.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            cuda.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            cuda.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        dtype = getattr(cuda.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{given.dtype.upper()}")
        return self._do("cuTensorMapEncodeTiled", dtype, rank, int(mapped.made), *wide, *narrow, *how)

    def seconds(self, runs: int = 1, entry: str | None = None) -> float:
        """Of a run of a function that was called before, by the device's clock: ``runs`` of them, one after the other,
        without the copies of inputs and results. :class:`TargetError` where it is no graph."""
        function = self._function(entry)
        graph = self._graphs.get(function.name)
        if graph is None:
            raise TargetError(f"{function.name} has not been called, launches nothing, or has sizes that may change")
        return self._timed(runs, lambda: self._do("cuGraphLaunch", graph, self._stream))

    def copy_seconds(self, size: int, runs: int = 1) -> float:
        """The seconds of a copy of ``size`` bytes on the device, by its clock."""
        source, target = (self._do("cuMemAlloc", size) for _ in range(2))
        seconds = self._timed(runs, lambda: self._do("cuMemcpyDtoDAsync", target, source, size, self._stream))
        for memory in (source, target):
            self._do("cuMemFree", memory)
        return seconds

    def finish(self) -> None:
        """Waits for the stream."""
        self._do("cuStreamSynchronize", self._stream)

    def close(self) -> None:
        """Gives the device's memory back; it can't run any more."""
        while self._graphs:
            self._do("cuGraphExecDestroy", self._graphs.popitem()[1])
        while self._memories:
            self._do("cuMemFree", self._memories.pop())
        for module in self._modules.values():
            self._do("cuModuleUnload", module)
        self._modules = {}

    def _timed(self, runs: int, started: Callable[[], Any]) -> float:
        """Seconds of one of ``runs``, between two events of the stream."""
        events = [self._do("cuEventCreate", 0) for _ in range(2)]
        self._do("cuEventRecord", events[0], self._stream)
        for _ in range(runs):
            started()
        self._do("cuEventRecord", events[1], self._stream)
        self._do("cuEventSynchronize", events[1])
        milliseconds = float(self._do("cuEventElapsedTime", *events))
        for event in events:
            self._do("cuEventDestroy", event)
        return milliseconds * 1e-3 / runs

    def _do(self, name: str, *arguments: Any) -> Any:
        return answer_of(self._cuda, name, *arguments)


def answer_of(driver: Any, name: str, *arguments: Any) -> Any:
    """What a function of the driver gives; :class:`TargetError` with its word for what went wrong."""
    error, *results = getattr(driver, name)(*arguments)
    if error != driver.CUresult.CUDA_SUCCESS:
        raise TargetError(f"{name}: {error.name}")
    return results[0] if results else None


def _value(argument: Any) -> Array:
    """An argument where the driver finds it: a pointer or a number."""
    if isinstance(argument, np.generic):
        return np.array([argument])
    return np.array([int(argument)], dtype=np.uint64)


def driver_of() -> ModuleType:
    """The functions of this machine's driver; :class:`TargetError` says what is missing."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise TargetError(_NO_BINDINGS) from error
    if not isinstance(driver, ModuleType):
        raise TargetError(_NO_BINDINGS)
    try:
        driver.cuInit(0)
    except RuntimeError as error:  # what looks for the driver's library has found none
        raise TargetError(f"CUDA programs need NVIDIA's driver here: {error}") from error
    return driver
