"""A program for a device: sources of kernels, a host plan, constants. All of it is data.

In: what a target's build made, or a file. Out: :class:`DeviceProgram`, to look at, to keep, to embed elsewhere, and to
run where a device is.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from eqsat_layout.errors import EqsatError
from eqsat_layout.system.readable import read_bytes
from eqsat_layout.targets.gpu.host.files import Piece, file_parts, read_parts, said_to_be
from eqsat_layout.targets.gpu.host.plan import HostPlan
from eqsat_layout.targets.gpu.host.plan_checks import check_plan
from eqsat_layout.targets.gpu.host.runner import Runner

_KIND: Final = "eqsat_layout program for "


@dataclass(frozen=True)
class DeviceProgram(ABC):
    """``sources``: by the name of the kernel, each complete. ``plan``: what the host does with them. ``constants``:
    bytes, of which the plan says what lies where."""

    kind: ClassVar[str]
    """Of the target."""

    sources: Mapping[str, str]
    plan: HostPlan
    constants: Sequence[Piece]

    @abstractmethod
    def on(self, device: Any = None) -> Runner:
        """On a device of this machine; ``None``: the first one that there is."""

    def said(self) -> Mapping[str, Any]:
        """What else a file holds, as JSON."""
        return {}

    @classmethod
    def of(
        cls, said: Mapping[str, Any], sources: Mapping[str, str], plan: HostPlan, constants: Sequence[Piece]
    ) -> Self:
        """From what :meth:`said` gave and the rest. May raise ``KeyError``, ``TypeError`` or ``ValueError``."""
        return cls(sources, plan, constants)

    @property
    def source(self) -> str:
        """All kernels one after the other, to read."""
        return "\n".join(f"// {name}\n{text}" for name, text in self.sources.items())

    def constant_of(self, function: str) -> bytes:
        """The bytes that a function gives which does nothing but give a constant; :class:`KeyError` for others."""
        results = self.plan.function(function).results
        constant = self.plan.memories[self.plan.values[results].memory].constant if isinstance(results, int) else None
        if constant is None:
            raise KeyError(function)
        return bytes(self.constants[constant])

    def parts(self) -> list[Piece]:
        """The program as bytes, in pieces."""
        return file_parts(_KIND + self.kind, {**self.said(), "sources": dict(self.sources)}, self.plan, self.constants)

    @classmethod
    def from_bytes(cls, data: Piece) -> Self:
        """What :meth:`parts` gave, in one piece, which it uses for the constants. :class:`EqsatError` for others."""
        said, plan, constants = read_parts(_KIND + cls.kind, data)
        try:
            sources = {str(name): str(text) for name, text in said["sources"].items()}
            check_plan(plan, sources)
            return cls.of(said, sources, plan, constants)
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise EqsatError(f"this is no {_KIND}{cls.kind}: {error}") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a file of JSON and constants."""
        with open(path, "wb") as file:
            file.writelines(self.parts())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """What :meth:`save` wrote. :class:`EqsatError`, which names the file, for another one."""
        if Path(path).exists() and not Path(path).is_file():
            raise EqsatError(f"{path}: is no file")  # a pipe would be waited for
        try:
            return cls.from_bytes(read_bytes(Path(path)))
        except OSError as error:
            raise EqsatError(f"{path}: {error.strerror or error}") from error
        except EqsatError as error:
            raise EqsatError(f"{path}: {error}") from error

    def export_library(self, file_name: Any, **_: Any) -> None:
        """:class:`EqsatError`: what TVM's executables have, and this is no library."""
        name = type(self).__name__
        raise EqsatError(f"{file_name}: a program for {self.kind} is no library; {name}.save writes a file of data")

    def __call__(self, *inputs: Any, entry: str | None = None) -> Any:
        """Runs a function on the first device, the only one if there is one: arrays in and out, tuples as lists."""
        return self._here(*inputs, entry=entry)

    @cached_property
    def _here(self) -> Runner:
        return self.on()

    def __repr__(self) -> str:
        functions = ", ".join(f.name for f in self.plan.functions)
        return f"<{type(self).__name__} of {functions}: {len(self.sources)} kernels>"


def kind_of_program(data: Piece) -> str:
    """The kind of target that a file's program is for; :class:`EqsatError` for what is no program."""
    kind = said_to_be(data)
    if not kind.startswith(_KIND):
        raise EqsatError(f"this is no {_KIND}a device")
    return kind.removeprefix(_KIND)
