"""A program for CUDA devices: sources of kernels, their machine code, a host plan, constants. All of it is data.

In: what :mod:`eqsat_layout.targets.cuda.build` made, or a file. Out: :class:`CudaProgram`: to look at, to keep, to
embed elsewhere, and to run where a device is.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from eqsat_layout.errors import EqsatError
from eqsat_layout.targets.cuda.compiler import compiled
from eqsat_layout.targets.cuda.host.device import CudaDevice
from eqsat_layout.targets.gpu.host.files import Piece, parts_of, read_parts
from eqsat_layout.targets.gpu.host.plan import HostPlan
from eqsat_layout.targets.gpu.host.runner import Runner

_KIND: Final = "CUDA program of eqsat_layout"


@dataclass(frozen=True)
class CudaProgram:
    """``sources``: CUDA C++ by the name of the kernel, each complete. ``binaries``: cubins for ``arch``, by kernel,
    none where no compiler was. ``plan``: what the host does with them; ``constants``: bytes, as the plan says."""

    arch: str
    sources: Mapping[str, str]
    binaries: Mapping[str, bytes]
    plan: HostPlan
    constants: Sequence[Piece]

    @property
    def source(self) -> str:
        """All kernels one after the other, to read."""
        return "\n".join(f"// {name}\n{text}" for name, text in self.sources.items())

    def with_binaries(self) -> CudaProgram:
        """Itself if it has machine code, else compiled here; :class:`TargetError` where there is no compiler."""
        if len(self.binaries) == len(self.sources):
            return self
        return replace(self, binaries={name: compiled(text, self.arch).cubin for name, text in self.sources.items()})

    def parts(self) -> list[Piece]:
        """The program as bytes, in pieces."""
        binaries = {name: base64.b64encode(code).decode() for name, code in self.binaries.items()}
        said = {"arch": self.arch, "sources": dict(self.sources), "binaries": binaries}
        return parts_of(_KIND, said, self.plan, self.constants)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a file of JSON and constants."""
        with open(path, "wb") as file:
            file.writelines(self.parts())

    def export_library(self, file_name: Any, **_: Any) -> None:
        """:class:`EqsatError`: what TVM's executables have, and this is no library."""
        raise EqsatError(f"{file_name}: a program for CUDA is no library; CudaProgram.save writes a file of data")

    @staticmethod
    def from_bytes(data: Piece) -> CudaProgram:
        """What :meth:`parts` gave, in one piece, which it uses for the constants. :class:`EqsatError` for others."""
        said, plan, constants = read_parts(_KIND, data)
        try:
            sources = {str(name): str(text) for name, text in said["sources"].items()}
            binaries = {str(name): base64.b64decode(code, validate=True) for name, code in said["binaries"].items()}
            return CudaProgram(str(said["arch"]), sources, binaries, plan, constants)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise EqsatError(f"this is no {_KIND}: {error}") from error

    @staticmethod
    def load(path: str | os.PathLike[str]) -> CudaProgram:
        """What :meth:`save` wrote."""
        return CudaProgram.from_bytes(Path(path).read_bytes())

    def on(self, number: int = 0) -> Runner:
        """On a device of this machine."""
        own = self.with_binaries()
        return CudaDevice(own.plan, own.constants, own.binaries, number)

    def __call__(self, *inputs: Any, entry: str | None = None) -> Any:
        """Runs a function on the first device, the only one if there is one: arrays in and out, tuples as lists."""
        return self._here(*inputs, entry=entry)

    @cached_property
    def _here(self) -> Runner:
        return self.on()

    def __repr__(self) -> str:
        functions = ", ".join(f.name for f in self.plan.functions)
        return f"<CudaProgram of {functions}: {len(self.sources)} kernels for {self.arch}>"
