"""A program for OpenCL devices.

In: what :mod:`eqsat_layout.targets.opencl.build` made, or a file. Out: :class:`OpenClProgram`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from eqsat_layout.targets.gpu.host.device_program import DeviceProgram
from eqsat_layout.targets.opencl.host.device import OpenClDevice


@dataclass(frozen=True, repr=False)
class OpenClProgram(DeviceProgram):
    """``sources`` are OpenCL C."""

    kind: ClassVar[str] = "opencl"

    def on(self, device: Any = None) -> OpenClDevice:
        """Built for the device of a pyopencl ``Context``; ``None``: the first device there is."""
        return OpenClDevice(self.plan, self.constants, self.sources, device)
