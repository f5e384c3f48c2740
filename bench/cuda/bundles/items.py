"""What a bundle holds: programs with their machine code, how their numbers are made, and what they should give.

In: a folder. Out: :class:`Item` by item, and the device that runs it. Nothing here needs TVM.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.cuda.bundles.data import Array, Carried, Recipe, from_data
from eqsat_layout.targets.cuda.host.device import CudaDevice
from eqsat_layout.targets.cuda.host.executable import CudaProgram
from eqsat_layout.targets.gpu.host.plan import HostPlan, StoredConstant

MANIFEST: Final = "manifest.json"

CEILING, CASE, CANDIDATES, NETWORK, KERNEL = "ceiling", "case", "candidates", "network", "kernel"
"""Kinds of items. A case is there to be right; candidates are functions of one program that give the same; a kernel is
there to be timed."""


@dataclass(frozen=True)
class Item:
    """``tolerance``: of the relative error of results; 0: they are exact. ``said``: what is reported beside figures."""

    name: str
    kind: str
    constants: Sequence[Recipe | Carried]
    inputs: Sequence[Recipe]
    tolerance: float = 0.0
    said: Mapping[str, Any] = field(default_factory=dict)

    def written(self, folder: Path, program: CudaProgram, expected: Sequence[Array] | None) -> None:
        """The program without its constants, and results that it should give, if they are known."""
        empty = tuple(StoredConstant(0, 0) for _ in program.constants)
        plan = HostPlan(program.plan.memories, program.plan.values, empty, program.plan.functions)
        path = folder / f"{self.name}.program"
        replace(program, plan=plan, constants=[b""] * len(empty)).save(path)
        self._path(folder).write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        path.unlink()
        if expected is not None:
            np.savez_compressed(folder / f"{self.name}.npz", *expected)

    def program(self, folder: Path) -> CudaProgram:
        """With its constants, which are made now."""
        program = CudaProgram.from_bytes(gzip.decompress(self._path(folder).read_bytes()))
        return replace(program, constants=[one.array().tobytes() for one in self.constants])

    def expected(self, folder: Path) -> list[Array] | None:
        """``None`` where nobody has computed them."""
        path = folder / f"{self.name}.npz"
        if not path.exists():
            return None
        with np.load(path) as file:
            return [file[name] for name in file.files]

    def _path(self, folder: Path) -> Path:
        """Of the program, a seventh of its size: text of kernels is much the same."""
        return folder / f"{self.name}.program.gz"

    def to_data(self) -> dict[str, Any]:
        """For JSON."""
        made = {"constants": self.constants, "inputs": self.inputs}
        numbers = {name: [one.to_data() for one in recipes] for name, recipes in made.items()}
        return {"name": self.name, "kind": self.kind, **numbers, "tolerance": self.tolerance, "said": dict(self.said)}

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> Item:
        """What :meth:`to_data` gave."""
        constants, inputs = ([from_data(one) for one in data[name]] for name in ("constants", "inputs"))
        recipes = [one for one in inputs if isinstance(one, Recipe)]
        return Item(data["name"], data["kind"], constants, recipes, data["tolerance"], data["said"])


def on_device(program: CudaProgram, simulate: bool) -> CudaDevice:
    """The first device of this machine, or the simulator in its place."""
    if not simulate:
        return program.on()
    from eqsat_layout.soundness.cuda.driver import simulated

    return simulated(program)


def write_manifest(folder: Path, head: Mapping[str, Any], items: Sequence[Item]) -> None:
    text = json.dumps({**head, "items": [item.to_data() for item in items]}, allow_nan=True)
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def read_manifest(folder: Path) -> tuple[dict[str, Any], list[Item]]:
    """What is said of the whole bundle, and its items."""
    data = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return data, [Item.from_data(one) for one in data.pop("items")]


def median(seconds: Sequence[float]) -> float:
    return float(np.median(seconds)) if seconds else math.nan
