"""A program on a device of this machine, through pyopencl.

In: a host plan, the sources of its kernels and a context. Out: :class:`OpenClDevice`, which is called with arrays.
Tensors in texture scopes are real arrays of images.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

from eqsat_layout.errors import TargetError
from eqsat_layout.targets.gpu.host.files import Piece
from eqsat_layout.targets.gpu.host.plan import Allocation, HostPlan
from eqsat_layout.targets.gpu.host.runner import Array, Runner, Started, Symbols
from eqsat_layout.targets.gpu.host.sizes import value_of
from eqsat_layout.targets.opencl.host.pocl import mend

_HALF: Final = "cl_khr_fp16"
_TOGETHER: Final = 16
"""Kernels of one program: what a compiler does once for each program takes PoCL as long as a kernel or more."""
_NO_PYOPENCL: Final = 'OpenCL programs run here through pyopencl: pip install "eqsat-layout[opencl]"'


class HalfPrecisionError(TargetError):
    """A program computes in half precision, which the device does not."""


class OpenClDevice(Runner):
    """Kernels built for the device of a context; ``None``: the first device there is."""

    def __init__(
        self, plan: HostPlan, constants: Sequence[Piece], sources: Mapping[str, str], context: Any = None
    ) -> None:
        super().__init__(plan, constants)
        self._cl = _pyopencl()
        self._context = first_context() if context is None else context
        self._queue = self._cl.CommandQueue(self._context)
        self._kernels = self._built(sources)

    def launch(self, started: Started) -> None:
        """One ND range."""
        wide = [group * item for group, item in zip(started.groups, started.items, strict=True)]
        kernel = self._kernels[started.kernel]
        if kernel.num_args != len(started.arguments):
            raise TargetError(
                f"kernel {started.kernel} takes {kernel.num_args} arguments, not {len(started.arguments)}"
            )
        try:
            kernel(self._queue, wide, list(started.items), *started.arguments)
        except self._cl.Error as error:
            raise TargetError(f"kernel {started.kernel} is refused by the device: {error}") from error

    def finish(self) -> None:
        """Waits for the queue."""
        self._queue.finish()

    def allocated(self, memory: Allocation, symbols: Symbols) -> Any:
        """A buffer, or an array of images."""
        try:
            return self._allocated(memory, symbols)
        except self._cl.Error as error:
            what = "a buffer" if memory.image is None else "an image"
            raise TargetError(
                f"{what} of {value_of(memory.bytes, symbols)} bytes is refused by the device: {error}"
            ) from error

    def _allocated(self, memory: Allocation, symbols: Symbols) -> Any:
        flags = self._cl.mem_flags.READ_WRITE
        if memory.image is None:
            return self._cl.Buffer(self._context, flags, max(1, value_of(memory.bytes, symbols)))
        layers, height, width = (value_of(size, symbols) for size in memory.image)
        channel = self._cl.channel_type
        kind = {"float32": channel.FLOAT, "float16": channel.HALF_FLOAT}[memory.dtype]
        texels = self._cl.ImageFormat(self._cl.channel_order.RGBA, kind)
        return self._cl.create_image(self._context, flags, texels, shape=(width, height, layers), is_array=True)

    def copy_in(self, made: Any, memory: Allocation, symbols: Symbols, array: Array) -> None:
        """To a buffer or an image."""
        self._copy(made, array, memory, symbols)

    def copy_out(self, array: Array, made: Any, memory: Allocation, symbols: Symbols) -> None:
        """From a buffer or an image."""
        self._copy(array, made, memory, symbols)

    def _copy(self, target: Any, source: Any, memory: Allocation, symbols: Symbols) -> None:
        region: dict[str, Any] = {}
        if memory.image is not None:
            layers, height, width = (value_of(size, symbols) for size in memory.image)
            region = {"origin": (0, 0, 0), "region": (width, height, layers)}
        self._cl.enqueue_copy(self._queue, target, source, is_blocking=True, **region)

    def _built(self, sources: Mapping[str, str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        (device,) = self._context.devices
        halves = [name for name, source in sources.items() if _HALF in source]
        if halves and _HALF not in device.extensions:
            raise HalfPrecisionError(
                f"kernel {halves[0]} computes in half precision ({_HALF}), which {device.name} does not: "
                'compile for a profile that stores halves only, {"kind": "opencl", "profile": "pocl"}'
            )
        names = list(sources)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self._cl.CompilerWarning)
            for first in range(0, len(names), _TOGETHER):
                found |= self._kernels_of({name: sources[name] for name in names[first : first + _TOGETHER]})
        return found

    def _kernels_of(self, sources: Mapping[str, str]) -> dict[str, Any]:
        """One program; where that is refused one for each, so that the error names the kernel."""
        try:
            program = self._cl.Program(self._context, "\n".join(sources.values())).build()
        except self._cl.RuntimeError as error:
            if len(sources) > 1:
                return {key: own for name in sources for key, own in self._kernels_of({name: sources[name]}).items()}
            (name,) = sources
            raise TargetError(f"kernel {name} is refused by the device's compiler: {error}") from error
        return {name: self._cl.Kernel(program, name) for name in sources}


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
