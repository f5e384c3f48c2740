"""How others choose memory, as policies inside our planner: what a comparison needs that has no phone.

In: a target. Out: cost models that make a choice against the policy dearer than anything else, so that the plan is the
best one that keeps to it wherever it can. What such a plan then costs is asked of the honest model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from eqsat_layout.cost.model import CostModel
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.maps import GLOBAL, Digit, Extent, Format, Formats, IndexMap
from eqsat_layout.targets.opencl.candidates import TEXEL
from eqsat_layout.targets.opencl.costs import ImageRoofline
from eqsat_layout.targets.opencl.images import NHWC, TEXTURE, WEIGHT
from eqsat_layout.targets.opencl.target import OpenClTarget
from eqsat_layout.tir.computation import Computation
from eqsat_layout.tir.placement import why_not_placed

_AGAINST: Final = 1.0
"""Seconds: thousands of times what a kernel takes."""


@dataclass(frozen=True)
class Policy:
    """Which memory tensors go to. ``scopes`` by profile: the first that holds a tensor is where it has to be; ``()``:
    all stays in buffers."""

    name: str
    scopes: Mapping[str, tuple[str, ...]]

    def costs(self, target: OpenClTarget) -> CostModel:
        """A cost model under which the best plan is one of this policy."""
        return _PolicyCosts(ImageRoofline(target.profile), target, self.scopes.get(target.profile.name, ()))


_IMAGES: Final = (TEXTURE, NHWC, WEIGHT)

BUFFERS: Final = Policy("buffers only", {})

ALL_IMAGES: Final = Policy(
    "all textures", {name: _IMAGES for name in ("adreno5xx", "adreno6xx", "mali", "powervr", "pocl")}
)
"""One mode for the whole network, as MNN has: an image wherever the op can have one, with copies where it can't."""

PER_DEVICE: Final = Policy(
    "per device", {"adreno6xx": (TEXTURE, WEIGHT), "adreno5xx": (NHWC, WEIGHT), "powervr": (NHWC, WEIGHT)}
)
"""As TFLite chooses: arrays of images on newer Adreno, plain images on older ones and PowerVR, else buffers."""

POLICIES: Final = (BUFFERS, ALL_IMAGES, PER_DEVICE)


@dataclass(frozen=True)
class _PolicyCosts:
    """The honest costs, and :data:`_AGAINST` for every tensor that a kernel has in another memory than it should."""

    honest: ImageRoofline
    target: OpenClTarget
    scopes: tuple[str, ...]

    def run(self, op: Signature, operands: Formats, results: Formats, *, fused: frozenset[int] = frozenset()) -> float:
        """Buffers count as against the policy where the op could have the tensor as an image, in some layout."""
        cost = self.honest.run(op, operands, results, fused=fused)
        if op.parts or op.computation is None:
            return cost
        numbers = (*op.computation.operands, *op.computation.results)
        for number, fmt in zip(numbers, (*operands, *results), strict=True):
            if fmt is not None and self._is_against(op.computation, number, fmt):
                cost += _AGAINST
        return cost

    def convert(self, tensor: TensorType, source: Format, target: Format, *, fused: bool = False) -> float:
        return self.honest.convert(tensor, source, target, fused=fused)

    def constant(self, tensor: TensorType, fmt: Format) -> float:
        return self.honest.constant(tensor, fmt)

    def _is_against(self, computation: Computation, number: int, fmt: Format) -> bool:
        if fmt.scope != GLOBAL:
            return fmt.scope not in self.scopes
        return could_be_image(computation, number, self.target, self.scopes)


@cache
def could_be_image(computation: Computation, number: int, target: OpenClTarget, scopes: tuple[str, ...]) -> bool:
    """For some axis in texels, a memory of these scopes holds the buffer and the op can use it there."""
    buffer = computation.buffers[number]
    memories = [target.memories[scope] for scope in scopes if scope in target.memories]
    images = [memory.placed(fmt, buffer.dtype) for fmt in in_texel_blocks(buffer.shape) for memory in memories]
    return any(image is not None and why_not_placed(computation, number, image, target) is None for image in images)


def in_texel_blocks(shape: Sequence[Extent]) -> Iterator[Format]:
    """The tensor with each of its axes that divide in blocks of a texel, these last: NCHW4c for channels."""
    whole = [Digit(axis, 1, extent) for axis, extent in enumerate(shape)]
    for axis, extent in enumerate(shape):
        if isinstance(extent, int) and extent % TEXEL == 0 and extent:
            dims = [(digit,) for digit in whole]
            dims[axis] = (Digit(axis, TEXEL, extent // TEXEL),)
            yield Format.make(IndexMap.make(shape, [*dims, (Digit(axis, 1, TEXEL),)]))
