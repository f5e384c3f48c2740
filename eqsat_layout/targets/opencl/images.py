"""Images as memories: which tensors TVM's texture scopes hold, and in how many layers, rows and texels.

In: a profile. Out: :class:`ImageMemory` by scope. A tensor in a texture scope is an array of two-dimensional images;
its last axis is a texel. The scopes differ in which of the other axes make layers, rows and columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from eqsat_layout.maps import GLOBAL, Extent, Format, Memory
from eqsat_layout.maps.index_map import extent_product
from eqsat_layout.targets.gpu.host.sizes import Size, product
from eqsat_layout.targets.opencl.profiles import Profile

TEXTURE: Final = "global.texture"
NHWC: Final = "global.texture-nhwc"
WEIGHT: Final = "global.texture-weight"

TEXEL: Final = 4
"""Elements of a texel: TVM also lowers others of 64 and 128 bits, as four of another type; that gains nothing."""

DTYPES: Final = ("float16", "float32")

_FEWEST_AXES: Final = 3
"""Rows, columns and texels; TVM 0.27 lowers tensors of fewer axes to wrong code."""


class Extents(NamedTuple):
    """The extents of an array of images, in texels."""

    layers: Extent
    height: Extent
    width: Extent


@dataclass(frozen=True)
class ImageMemory(Memory):
    """Arrays of images. ``fewest_layers``: arrays of fewer are not read right."""

    fewest_layers: int = 1

    def separators(self, shape: Sequence[Extent]) -> tuple[int, ...] | None:
        """Where rows, columns and texels start; ``None`` for a shape of too few axes."""
        if len(shape) < _FEWEST_AXES:
            return None
        row = first_column(self.scope, len(shape)) - 1
        return tuple(sorted({row, row + 1, len(shape) - 1} - {0}))

    def extents(self, shape: Sequence[Extent]) -> Extents:
        """The extents of the images that hold a tensor of a physical shape."""
        column = first_column(self.scope, len(shape))
        return Extents(extent_product(shape[: column - 1]), shape[column - 1], extent_product(shape[column:-1]))

    def why_not(self, fmt: Format, dtype: str) -> str | None:
        """Why there is no array of images that holds a tensor in ``fmt``, in words."""
        shape = fmt.physical_shape
        found = self.separators(shape)
        if found is None:
            return f"{fmt} has {len(shape)} physical axes, but an image has {_FEWEST_AXES} at least"
        if fmt.separators != found:
            return f"{fmt} does not group its axes as {self.scope} does"
        if dtype not in self.dtypes:
            return f"it holds no elements of {dtype}"
        for name, extent, most in zip(Extents._fields, self.extents(shape), self.largest, strict=True):
            if not isinstance(extent, int):
                return f"{fmt} is an image whose {name} is {extent}, which is known at run time only"
            if extent > most:
                return f"{fmt} is an image whose {name} is {extent}, but it is {most} at most"
        layers = self.extents(shape).layers
        if isinstance(layers, int) and layers < self.fewest_layers:
            return f"{fmt} is an array of {layers} layer, and this device reads arrays of one layer as zeros"
        return self.why_no_texel(fmt, dtype)

    def why_no_texel(self, fmt: Format, dtype: str) -> str | None:
        """Why the innermost axis is no texel, in words."""
        inner = fmt.physical_shape[-1]
        if inner == TEXEL:
            return None
        return f"its innermost axis must have {TEXEL} elements, and that of {fmt} has {inner}"

    def suits(self, fmt: Format) -> bool:
        """Where the blocks that texels are cut from lie: in layers, columns or rows.

        Any scope holds any tensor that fits; this one gives it an image whose neighbours are neighbours in the tensor.
        """
        shape = fmt.physical_shape
        if len(shape) == _FEWEST_AXES:
            return self.scope == TEXTURE  # the three are the same but for nhwc, which is one texel wide
        blocks = _axis_of_blocks(fmt)
        column = first_column(self.scope, len(shape))
        if self.scope == NHWC:
            return blocks == len(shape) - 2 and column <= blocks
        if self.scope == WEIGHT:
            return blocks == 0
        return blocks is None or blocks < column - 1


def first_column(scope: str, rank: int) -> int:
    """The axis at which columns start, as TVM's TextureFlatten has it; the one before it makes rows."""
    return {TEXTURE: rank - 2, NHWC: 2, WEIGHT: 1}[scope]


def image_of(shape: Sequence[Size], scope: str) -> tuple[Size, Size, Size]:
    """Layers, rows and columns of the image that holds a tensor."""
    column = first_column(scope, len(shape))
    return product(shape[: column - 1]), shape[column - 1], product(shape[column:-1])


def memories_of(profile: Profile, spatial_limit: int, layer_limit: int) -> Mapping[str, Memory]:
    """Buffers, and images where the device has any, by scope. The limits lower those of the profile."""
    found: dict[str, Memory] = {GLOBAL: Memory()}
    if profile.has_images:
        most = (
            min(profile.layers, layer_limit),
            min(profile.height, spatial_limit),
            min(profile.width, spatial_limit),
        )
        for scope in (TEXTURE, NHWC, WEIGHT):
            found[scope] = ImageMemory(
                scope,
                axis_groups=4,
                largest=most,
                dtypes=DTYPES,
                fewest_layers=profile.fewest_layers,
            )
    return found


def _axis_of_blocks(fmt: Format) -> int | None:
    """The physical axis that counts the blocks of which a texel is one; ``None`` where there is one block only."""
    texel = [digit for digit in fmt.index_map.dims[-1] if digit.extent != 1]
    if len(texel) != 1:
        return None
    place = texel[0].stride * texel[0].extent if isinstance(texel[0].extent, int) else None
    for axis, digits in enumerate(fmt.index_map.dims[:-1]):
        if any(d.axis == texel[0].axis and d.stride == place and d.extent != 1 for d in digits):
            return axis
    return None
