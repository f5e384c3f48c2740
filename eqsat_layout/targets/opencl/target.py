"""An OpenCL device as a target.

In: an ``opencl`` target as the user gives it, with its ``device`` and ``profile``. Out: :class:`OpenClTarget`: buffers
and images by scope, candidates in both, costs by what the caches keep. What is built is OpenCL C and a plan for the
host, which :mod:`eqsat_layout.targets.opencl.host` runs where a device is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Final

import tvm

from eqsat_layout.cost.database import Snapshot
from eqsat_layout.cost.model import CostModel
from eqsat_layout.implementations.layouts import Candidate
from eqsat_layout.maps import Format, Memory
from eqsat_layout.notes import Notes
from eqsat_layout.targets.gpu.target import DeviceTarget
from eqsat_layout.targets.opencl.accesses import why_not_read, why_not_written
from eqsat_layout.targets.opencl.build import build, build_library, slow_kernels
from eqsat_layout.targets.opencl.candidates import candidates, not_held
from eqsat_layout.targets.opencl.costs import ImageRoofline, ImageTraffic
from eqsat_layout.targets.opencl.host.executable import OpenClProgram
from eqsat_layout.targets.opencl.images import memories_of
from eqsat_layout.targets.opencl.library import why_not_called
from eqsat_layout.targets.opencl.profiles import Profile, profile_of
from eqsat_layout.targets.protocol import Alone
from eqsat_layout.targets.registry import parsed
from eqsat_layout.targets.registry import target as target_of
from eqsat_layout.tir.computation import Computation

_WITH_IMAGES: Final = "adreno"


class OpenClTarget(DeviceTarget):
    """A GPU, or PoCL, that its profile describes."""

    kind: ClassVar[str] = "opencl"
    program = OpenClProgram
    left_out = ("im2col", "winograd F(2,3)")
    """A matrix product is no faster here than a convolution, and F(4,3) has fewer products."""

    @cached_property
    def profile(self) -> Profile:
        """What is known of the device."""
        return profile_of(str(self.tvm.attrs.get("device", "")), str(self.tvm.attrs.get("model", "")))

    @cached_property
    def memories(self) -> Mapping[str, Memory]:
        """Buffers and, where the device has images, those of TVM's three texture scopes."""
        attrs = self.tvm.attrs
        return memories_of(self.profile, int(attrs["texture_spatial_limit"]), int(attrs["texture_depth_limit"]))

    def reads(self, computation: Computation, buffer: int, fmt: Format) -> str | None:
        """Whole texels only."""
        return why_not_read(computation, buffer, fmt)

    def writes(self, computation: Computation, buffer: int, fmt: Format) -> str | None:
        """Whole texels only, each once."""
        return why_not_written(computation, buffer, fmt)

    def candidates(self, computation: Computation) -> Sequence[Candidate]:
        """Channels in texels, each tensor in a buffer or in an image."""
        return candidates(computation, self)

    def not_held(self, computation: Computation) -> Iterator[tuple[int, Format, str]]:
        """Images that are too large."""
        return not_held(computation, self)

    def modelled(self, known: Snapshot) -> CostModel:
        """The costs by what the profile says of its caches."""
        return ImageRoofline(self.profile)

    def traffic(self, time: CostModel) -> CostModel:
        """By what the profile says of its caches, too."""
        return ImageTraffic(time, self.profile.memory, self.profile)

    def on_host(self, host: Mapping[str, Any]) -> OpenClTarget:
        """The target with the host of the device."""
        config = json.loads(str(self.tvm)) | {"host": dict(host)}
        return make_target(config, self.approx)

    def slow_kernels(self, mod: tvm.IRModule) -> Sequence[str]:
        """Those that run in one work item."""
        return slow_kernels(mod, self.profile, in_order=not self.approx)

    def build(self, mod: tvm.IRModule, notes: Notes) -> OpenClProgram:
        """Kernels as OpenCL C, and what the host does with them."""
        return build(mod, self.tvm, self.profile, notes, in_order=not self.approx)


class OpenClHostTarget(OpenClTarget):
    """The same with a host: what is built is TVM's executable for it."""

    suffix: ClassVar[str] = ".so"

    def build(self, mod: tvm.IRModule, notes: Notes) -> Any:
        """For ``relax.VirtualMachine(executable, tvm.opencl(0))`` in any TVM runtime that has OpenCL."""
        return build_library(mod, self.tvm, self.profile, notes, in_order=not self.approx)

    def why_not_called(self, mod: tvm.IRModule) -> str | None:
        """Results in images."""
        return why_not_called(mod)

    def alone(self, executable: Any) -> Alone | None:
        """TVM's machine behind RPC makes buffers of the images that it is given."""
        ((name, tensors), *others) = executable.tensors.items()
        return None if others else Alone(executable.kernels, name, tensors)

    def on_host(self, host: Mapping[str, Any]) -> OpenClTarget:
        """It has one."""
        return self

    def saved(self, executable: Any) -> None:
        """It is built anew each time."""


def make_target(given: Any, approx: bool) -> OpenClTarget:
    """See :func:`eqsat_layout.targets.registry.target`. A ``profile`` in a dictionary is what TVM calls ``model``."""
    if isinstance(given, Mapping) and "profile" in given:
        given = {**{k: v for k, v in given.items() if k != "profile"}, "model": given["profile"]}
    checked = parsed(given)
    if checked.host is None:
        found = OpenClTarget(checked, approx=approx)
    else:
        if checked.host.kind.name == "llvm":
            target_of(checked.host)  # refuses one that LLVM ends the process at
        found = OpenClHostTarget(_planned_with_images(checked), approx=approx)
    _ = found.profile  # raises where there is no such one
    return found


def _planned_with_images(target: tvm.target.Target) -> tvm.target.Target:
    """TVM's virtual machine has images share memory with buffers where the keys of the target say so, else it fails."""
    config = json.loads(str(target))
    return tvm.target.Target(config | {"keys": sorted({_WITH_IMAGES, *config["keys"]})})
