"""A program for CUDA devices, with the machine code of its kernels.

In: what :mod:`eqsat_layout.targets.cuda.build` made, or a file. Out: :class:`CudaProgram`.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

from eqsat_layout.targets.cuda.compiler import machine_code
from eqsat_layout.targets.cuda.host.device import CudaDevice
from eqsat_layout.targets.gpu.host.device_program import DeviceProgram
from eqsat_layout.targets.gpu.host.files import Piece
from eqsat_layout.targets.gpu.host.plan import HostPlan


@dataclass(frozen=True, repr=False)
class CudaProgram(DeviceProgram):
    """``sources`` are CUDA C++, for ``arch``. ``known``: machine code that a file held, by kernel. ``modelled``:
    seconds of kernels that were chosen by a model; a file does not keep them."""

    kind: ClassVar[str] = "cuda"

    arch: str
    known: Mapping[str, bytes] = field(default_factory=dict)
    modelled: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def binaries(self) -> Mapping[str, bytes]:
        """Cubins by kernel, compiled when they are asked for; :class:`TargetError` where no compiler is."""
        if self.known.keys() == self.sources.keys():
            return self.known
        made = machine_code(list(self.sources.values()), self.arch)
        return {name: one.cubin for name, one in zip(self.sources, made, strict=True)}

    def on(self, device: Any = None) -> CudaDevice:
        """On a device by its number; ``None``: the first one."""
        return CudaDevice(self.plan, self.constants, self.binaries, 0 if device is None else device)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a file of JSON and constants, with machine code: no compiler is needed where it is opened."""
        if self.known.keys() == self.sources.keys():
            super().save(path)
        else:
            replace(self, known=self.binaries).save(path)

    def said(self) -> Mapping[str, Any]:
        """The architecture, and machine code as far as there is any."""
        return {"arch": self.arch, "binaries": {name: base64.b64encode(c).decode() for name, c in self.known.items()}}

    @classmethod
    def of(
        cls, said: Mapping[str, Any], sources: Mapping[str, str], plan: HostPlan, constants: Sequence[Piece]
    ) -> CudaProgram:
        """See :meth:`DeviceProgram.of`."""
        binaries = {str(name): base64.b64decode(code, validate=True) for name, code in said["binaries"].items()}
        return cls(sources, plan, constants, str(said["arch"]), binaries)
