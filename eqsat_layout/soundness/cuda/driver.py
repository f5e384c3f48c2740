"""A CUDA driver whose device is the simulator: what runs programs is tried as it is, without a card.

In: the calls that :class:`~eqsat_layout.targets.cuda.host.device.CudaDevice` makes of ``cuda.bindings.driver``, with
the text of a kernel for its machine code. Out: what the driver's functions give: an error code, then results.
"""

from __future__ import annotations

import ctypes
import enum
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from eqsat_layout.soundness.cuda.simulator import Simulator
from eqsat_layout.soundness.cuda.tensor_maps import KIND, MappedArray
from eqsat_layout.targets.cuda.host.device import CudaDevice
from eqsat_layout.targets.cuda.host.executable import CudaProgram

_POISON: Final = 0xFF
"""Fills new memory: NaN as a float, and no index of anything."""


class Result(enum.IntEnum):
    """Those that the simulated device gives."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1


@dataclass
class _Graph:
    """Launches that were captured."""

    launches: list[Callable[[], None]] = field(default_factory=list)


class _Narrow(int):
    """A number of the driver's; cuda-bindings takes no others in lists."""


class _Wide(int):
    """Of 64 bits."""


class _Map:
    """What the driver gives for a tensor map: its address is that of the parameter."""

    def __init__(self, mapped: MappedArray) -> None:
        self.mapped, self._words = mapped, mapped.words()

    def getPtr(self) -> int:
        return ctypes.addressof(self._words)


class SimulatedDriver:
    """``order``: of blocks and threads, see :meth:`Simulator.launch`. ``launched``: kernels that ran. ``code``: of all
    modules, to be compiled together; what else is loaded is compiled by itself."""

    CUresult = Result
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="shared")
    CUlaunchAttributeID = SimpleNamespace(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION="overlaps")
    CUtensorMapDataType = SimpleNamespace(CU_TENSOR_MAP_DATA_TYPE_FLOAT16=2, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16=2)
    CUtensorMapInterleave = SimpleNamespace(CU_TENSOR_MAP_INTERLEAVE_NONE=0)
    CUtensorMapSwizzle = SimpleNamespace(CU_TENSOR_MAP_SWIZZLE_128B=3)
    CUtensorMapL2promotion = SimpleNamespace(CU_TENSOR_MAP_L2_PROMOTION_L2_256B=3)
    CUtensorMapFloatOOBfill = SimpleNamespace(CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE=0)
    cuuint32_t, cuuint64_t = _Narrow, _Wide
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL="thread local")

    def __init__(self, order: int = 0, code: Sequence[bytes] = ()) -> None:
        self._order = order
        self._memories: dict[int, npt.NDArray[np.uint8]] = {}
        self._captured: _Graph | None = None
        self._simulators = dict(zip(code, Simulator.of_each([one.decode() for one in code]), strict=True))
        self._unsettled: set[int] = set()
        self._maps: dict[int, _Map] = {}
        self.launched = 0

    def CUlaunchConfig(self) -> Any:
        """An empty one."""
        return SimpleNamespace(attrs=[], numAttrs=0, sharedMemBytes=0)

    def CUlaunchAttribute(self) -> Any:
        """An empty one."""
        return SimpleNamespace(id=None, value=SimpleNamespace())

    def cuInit(self, _flags: int) -> tuple[Result]:
        """Always there."""
        return (Result.CUDA_SUCCESS,)

    def cuDriverGetVersion(self) -> tuple[Result, int]:
        """That of CUDA 13."""
        return Result.CUDA_SUCCESS, 13000

    def cuDeviceGet(self, number: int) -> tuple[Result, int]:
        """There is one device."""
        return (Result.CUDA_ERROR_INVALID_VALUE if number else Result.CUDA_SUCCESS), number

    def cuDeviceGetName(self, _length: int, _device: int) -> tuple[Result, bytes]:
        """What it is."""
        return Result.CUDA_SUCCESS, b"simulator"

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[Result, int]:
        """Its number."""
        return Result.CUDA_SUCCESS, device

    def cuCtxSetCurrent(self, _context: int) -> tuple[Result]:
        """Nothing to do."""
        return (Result.CUDA_SUCCESS,)

    def cuStreamCreate(self, _flags: int) -> tuple[Result, str]:
        """There is one stream, in which all runs at once."""
        return Result.CUDA_SUCCESS, "stream"

    def cuStreamSynchronize(self, _stream: Any) -> tuple[Result]:
        """Nothing to wait for."""
        return (Result.CUDA_SUCCESS,)

    def cuModuleLoadData(self, code: bytes) -> tuple[Result, Simulator]:
        """``code``: the text of kernels."""
        if code not in self._simulators:
            self._simulators[code] = Simulator(code.decode())
        return Result.CUDA_SUCCESS, self._simulators[code]

    def cuModuleUnload(self, _module: Simulator) -> tuple[Result]:
        """Nothing to do."""
        return (Result.CUDA_SUCCESS,)

    def cuModuleGetFunction(self, module: Simulator, name: bytes) -> tuple[Result, tuple[Simulator, str]]:
        """A kernel by name."""
        found = Result.CUDA_SUCCESS if name.decode() in module.kernels else Result.CUDA_ERROR_INVALID_VALUE
        return found, (module, name.decode())

    def cuFuncLoad(self, _kernel: Any) -> tuple[Result]:
        """It is loaded already."""
        return (Result.CUDA_SUCCESS,)

    def cuFuncSetAttribute(self, *_: Any) -> tuple[Result]:
        """The simulator has its own limit."""
        return (Result.CUDA_SUCCESS,)

    def cuMemAlloc(self, size: int) -> tuple[Result, int]:
        """Memory that holds nothing of use."""
        made = np.full(size, _POISON, "uint8")
        self._memories[made.ctypes.data] = made
        return Result.CUDA_SUCCESS, made.ctypes.data

    def cuMemFree(self, address: int) -> tuple[Result]:
        """What was allocated."""
        is_known = self._memories.pop(address, None) is not None
        return (Result.CUDA_SUCCESS if is_known else Result.CUDA_ERROR_INVALID_VALUE,)

    def cuMemcpyHtoD(self, target: int, source: int, size: int) -> tuple[Result]:
        """Within what was allocated."""
        return (self._copied(target, target, source, size),)

    def cuMemcpyDtoH(self, target: int, source: int, size: int) -> tuple[Result]:
        """Within what was allocated."""
        return (self._copied(source, target, source, size),)

    def cuMemcpyDtoDAsync(self, target: int, source: int, size: int, _stream: Any) -> tuple[Result]:
        """Within what was allocated; at once."""
        memory = self._memories.get(source)
        if memory is None or size > memory.nbytes:
            return (Result.CUDA_ERROR_INVALID_VALUE,)
        return (self._copied(target, target, source, size),)

    def _copied(self, device: int, target: int, source: int, size: int) -> Result:
        memory = self._memories.get(device)
        if memory is None or size > memory.nbytes:
            return Result.CUDA_ERROR_INVALID_VALUE
        ctypes.memmove(target, source, size)
        return Result.CUDA_SUCCESS

    def cuTensorMapEncodeTiled(
        self,
        size: int,
        _rank: int,
        address: int,
        extents: Sequence[int],
        strides: Sequence[int],
        box: Sequence[int],
        apart: Sequence[int],
        *_how: int,
    ) -> tuple[Result, _Map | None]:
        """Of a memory from its beginning; rows of boxes are exchanged whatever is asked for."""
        if not {*map(type, [*extents, *strides])} <= {_Wide} or {*map(type, [*box, *apart])} != {_Narrow}:
            raise TypeError("numbers of other types than the driver's")
        memory = self._memories.get(address)
        if memory is None or {*apart} != {1}:
            return Result.CUDA_ERROR_INVALID_VALUE, None
        mapped = MappedArray(memory, size, extents, strides, box)
        if mapped.wrong:
            return Result.CUDA_ERROR_INVALID_VALUE, None
        made = _Map(mapped)
        self._maps[made.getPtr()] = made
        return Result.CUDA_SUCCESS, made

    def cuStreamBeginCapture(self, _stream: Any, _mode: Any) -> tuple[Result]:
        """Launches are kept from here on."""
        self._captured = _Graph()
        return (Result.CUDA_SUCCESS,)

    def cuStreamEndCapture(self, _stream: Any) -> tuple[Result, _Graph | None]:
        """What was launched since."""
        found, self._captured = self._captured, None
        return (Result.CUDA_ERROR_INVALID_VALUE if found is None else Result.CUDA_SUCCESS), found

    def cuGraphInstantiate(self, graph: _Graph, _flags: int) -> tuple[Result, _Graph]:
        """The graph itself."""
        return Result.CUDA_SUCCESS, graph

    def cuGraphLaunch(self, graph: _Graph, _stream: Any) -> tuple[Result]:
        """All that was captured, in order, after all that was launched before."""
        self._unsettled.clear()
        for launch in graph.launches:
            launch()
        return (Result.CUDA_SUCCESS,)

    def cuGraphExecDestroy(self, _graph: _Graph) -> tuple[Result]:
        """Nothing to do."""
        return (Result.CUDA_SUCCESS,)

    def cuGraphDestroy(self, _graph: _Graph) -> tuple[Result]:
        """Nothing to do."""
        return (Result.CUDA_SUCCESS,)

    def cuEventCreate(self, _flags: int) -> tuple[Result, list[float]]:
        """A place for a time."""
        return Result.CUDA_SUCCESS, []

    def cuEventRecord(self, event: list[float], _stream: Any) -> tuple[Result]:
        """This process's CPU seconds: the device's clock."""
        event[:] = [time.process_time()]
        return (Result.CUDA_SUCCESS,)

    def cuEventSynchronize(self, _event: list[float]) -> tuple[Result]:
        """Nothing to wait for."""
        return (Result.CUDA_SUCCESS,)

    def cuEventElapsedTime(self, start: list[float], end: list[float]) -> tuple[Result, float]:
        """Milliseconds between two that were recorded."""
        if not start or not end:
            return Result.CUDA_ERROR_INVALID_VALUE, 0.0
        return Result.CUDA_SUCCESS, (end[0] - start[0]) * 1e3

    def cuEventDestroy(self, _event: list[float]) -> tuple[Result]:
        """Nothing to do."""
        return (Result.CUDA_SUCCESS,)

    def cuLaunchKernelEx(self, config: Any, kernel: tuple[Simulator, str], values: int, _extra: int) -> tuple[Result]:
        """Runs the kernel, or keeps the launch."""
        simulator, name = kernel
        kinds = simulator.kernels[name].parameters
        pointers = (ctypes.c_void_p * max(1, len(kinds))).from_address(values)
        arguments = [self._argument(kind, pointers[i] or 0) for i, kind in enumerate(kinds)]
        grid = (config.gridDimX, config.gridDimY, config.gridDimZ)
        block = (config.blockDimX, config.blockDimY, config.blockDimZ)

        overlaps = any(one.value.programmaticStreamSerializationAllowed for one in config.attrs)

        def launch() -> None:
            if not overlaps:
                self._unsettled.clear()
            settled = {i for i, argument in enumerate(arguments) if id(_memory(argument)) not in self._unsettled}
            report = simulator.launch(
                name, arguments, grid, block, config.sharedMemBytes, self._order, settled if overlaps else None
            )
            self._unsettled.update(id(_memory(arguments[i])) for i in report.written)
            self.launched += 1

        if self._captured is None:
            launch()
        else:
            self._captured.launches.append(launch)
        return (Result.CUDA_SUCCESS,)

    def _argument(self, kind: str, address: int) -> Any:
        """What the pointer to an argument points to: memory from its start, or a number."""
        if kind.endswith("*"):
            return self._memories[ctypes.c_uint64.from_address(address).value]
        if kind == KIND:
            return self._maps[address].mapped
        wide = "64" in kind or "long long" in kind
        return (ctypes.c_int64 if wide else ctypes.c_int32).from_address(address).value


def _memory(argument: Any) -> Any:
    return argument.array if isinstance(argument, MappedArray) else argument


def simulated(program: CudaProgram, order: int = 0) -> CudaDevice:
    """``program`` on a simulated device."""
    texts = {name: text.encode() for name, text in program.sources.items()}
    return CudaDevice(program.plan, program.constants, texts, driver=SimulatedDriver(order, [*texts.values()]))
