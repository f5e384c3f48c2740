"""A program for OpenCL devices: sources of kernels, a host plan, constants. All of it is data.

In: what :mod:`eqsat_layout.targets.gpu.host.program` made, or a file. Out: :class:`OpenClProgram`: to look at, to
keep, to embed elsewhere, and to run here where pyopencl and a device are.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from eqsat_layout.errors import EqsatError
from eqsat_layout.targets.gpu.host.files import parts_of, read_parts
from eqsat_layout.targets.gpu.host.plan import HostPlan
from eqsat_layout.targets.opencl.host.device import DeviceProgram

_KIND: Final = "OpenCL program of eqsat_layout"


@dataclass(frozen=True)
class OpenClProgram:
    """``sources``: OpenCL C by the name of the kernel, each complete. ``plan``: what the host does with them.

    ``constants``: bytes, of which the plan says what lies where.
    """

    sources: Mapping[str, str]
    plan: HostPlan
    constants: Sequence[bytes | memoryview]

    @property
    def source(self) -> str:
        """All kernels one after the other, to read."""
        return "\n".join(f"// {name}\n{text}" for name, text in self.sources.items())

    def parts(self) -> list[bytes | memoryview]:
        """The program as bytes, in pieces."""
        return parts_of(_KIND, {"sources": dict(self.sources)}, self.plan, self.constants)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a file of JSON and constants."""
        with open(path, "wb") as file:
            file.writelines(self.parts())

    def export_library(self, file_name: Any, **_: Any) -> None:
        """:class:`EqsatError`: what TVM's executables have, and this is no library."""
        raise EqsatError(f"{file_name}: a program for OpenCL is no library; OpenClProgram.save writes a file of data")

    @staticmethod
    def from_bytes(data: bytes | memoryview) -> OpenClProgram:
        """What :meth:`parts` gave, in one piece, which it uses for the constants. :class:`EqsatError` for others."""
        head, plan, constants = read_parts(_KIND, data)
        sources = head.get("sources")
        if not isinstance(sources, Mapping):
            raise EqsatError(f"this is no {_KIND}: it has no sources")
        return OpenClProgram({str(name): str(text) for name, text in sources.items()}, plan, constants)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> OpenClProgram:
        """What :meth:`save` wrote."""
        return OpenClProgram.from_bytes(Path(path).read_bytes())

    def on(self, context: Any = None) -> DeviceProgram:
        """Built for the device of a pyopencl ``Context``; ``None``: the first device there is."""
        return DeviceProgram(self, context)

    def __call__(self, *inputs: Any, entry: str | None = None) -> Any:
        """Runs a function on the first device, the only one if there is one: arrays in and out, tuples as lists."""
        return self._here(*inputs, entry=entry)

    @cached_property
    def _here(self) -> DeviceProgram:
        return self.on()

    def __repr__(self) -> str:
        functions = ", ".join(f.name for f in self.plan.functions)
        return f"<OpenClProgram of {functions}: {len(self.sources)} kernels>"
