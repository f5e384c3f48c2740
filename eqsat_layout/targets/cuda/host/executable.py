"""A program for CUDA devices, with the machine code of its kernels.

In: what :mod:`eqsat_layout.targets.cuda.build` made, or a file. Out: :class:`CudaProgram`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from eqsat_layout.targets.cuda.compiler import compiled
from eqsat_layout.targets.cuda.host.device import CudaDevice
from eqsat_layout.targets.gpu.host.device_program import DeviceProgram
from eqsat_layout.targets.gpu.host.files import Piece
from eqsat_layout.targets.gpu.host.plan import HostPlan


@dataclass(frozen=True, repr=False)
class CudaProgram(DeviceProgram):
    """``sources`` are CUDA C++, ``binaries`` cubins for ``arch`` by kernel: none where no compiler was."""

    kind: ClassVar[str] = "cuda"

    arch: str
    binaries: Mapping[str, bytes]

    def with_binaries(self) -> CudaProgram:
        """Itself if it has machine code, else compiled here; :class:`TargetError` where there is no compiler."""
        if len(self.binaries) == len(self.sources):
            return self
        return replace(self, binaries={name: compiled(text, self.arch).cubin for name, text in self.sources.items()})

    def on(self, device: Any = None) -> CudaDevice:
        """On a device by its number; ``None``: the first one."""
        own = self.with_binaries()
        return CudaDevice(own.plan, own.constants, own.binaries, 0 if device is None else device)

    def said(self) -> Mapping[str, Any]:
        """The architecture and the machine code."""
        return {
            "arch": self.arch,
            "binaries": {name: base64.b64encode(c).decode() for name, c in self.binaries.items()},
        }

    @classmethod
    def of(
        cls, said: Mapping[str, Any], sources: Mapping[str, str], plan: HostPlan, constants: Sequence[Piece]
    ) -> CudaProgram:
        """See :meth:`DeviceProgram.of`."""
        binaries = {str(name): base64.b64decode(code, validate=True) for name, code in said["binaries"].items()}
        return cls(sources, plan, constants, str(said["arch"]), binaries)
