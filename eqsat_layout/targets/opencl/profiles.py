"""OpenCL devices as data: what images they have, what caches them, and how fast they are about.

In: ``device`` and ``model`` of a target. Out: a :class:`Profile`. Figures of speed decide proportions only: those of
peak arithmetic and of memory are public figures of one chip of the family, all others are assumed; none was measured
by us. Limits are the smallest that we know of the family; a target's attributes lower them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from eqsat_layout.errors import TargetError
from eqsat_layout.targets.gpu.kernels.work_groups import WorkGroups


@dataclass(frozen=True)
class Profile:
    """A family of devices.

    ``width``, ``height``, ``layers``: the largest image; 0 where there are no images. ``fewest_layers``: 2 where
    arrays of one layer read as zeros. ``images_in_l1``, ``buffers_in_l1``: whether the L1 cache keeps what is read
    so; what it does not keep comes from the second one each time. ``clamps_to_zero``: a read beyond the width or the
    height of an image gives 0. ``has_f16``: arithmetic in half precision; half images are read anywhere.

    ``flops``: operations a second in f32. ``memory``, ``l2``, ``l1``: bytes a second from each. ``launch``: seconds of
    an empty kernel. ``image_slowdown``: how many times as long images take where no hardware reads and writes them.
    ``groups``: of work items.
    """

    name: str
    width: int
    height: int
    buffers_in_l1: bool
    flops: float
    memory: float
    l2: float
    l1: float
    launch: float
    groups: WorkGroups
    layers: int = 2048
    images_in_l1: bool = True
    fewest_layers: int = 1
    clamps_to_zero: bool = True
    has_f16: bool = True
    image_slowdown: float = 1.0

    @property
    def has_images(self) -> bool:
        return self.width > 0

    @property
    def pads_for_free(self) -> bool:
        """Hardware looks whether a read is inside; where images are simulated the same is done by instructions."""
        return self.clamps_to_zero and self.image_slowdown == 1.0


_ADRENO6XX: Final = Profile(  # Adreno 640: 954 GFLOP/s, 34 GB/s of LPDDR4X; l2, l1, launch, groups assumed
    name="adreno6xx",
    width=16384,
    height=16384,
    buffers_in_l1=False,
    flops=954e9,
    memory=34e9,
    l2=85e9,
    l1=340e9,
    launch=15e-6,
    groups=WorkGroups(units=2, wave=64, largest=256),
)

_ADRENO5XX: Final = replace(  # Adreno 540: 567 GFLOP/s, 30 GB/s; l2, l1, launch, groups assumed
    _ADRENO6XX, name="adreno5xx", flops=567e9, memory=30e9, l2=60e9, l1=240e9, launch=20e-6, fewest_layers=2
)

_MALI: Final = Profile(  # Mali-G76 MP10: about 480 GFLOP/s, 34 GB/s; l2, l1, launch, groups assumed
    name="mali",
    width=16384,
    height=16384,
    buffers_in_l1=True,
    flops=480e9,
    memory=34e9,
    l2=85e9,
    l1=250e9,
    launch=20e-6,
    groups=WorkGroups(units=10, wave=8, largest=128),
)

_POWERVR: Final = Profile(  # PowerVR GM9446: about 140 GFLOP/s, 17 GB/s; the rest assumed
    name="powervr",
    width=8192,
    height=8192,
    buffers_in_l1=False,
    flops=140e9,
    memory=17e9,
    l2=40e9,
    l1=130e9,
    launch=25e-6,
    groups=WorkGroups(units=4, wave=32, largest=128),
)

_BUFFER_ONLY: Final = replace(_MALI, name="buffer_only", width=0, height=0, layers=0, images_in_l1=False)

_POCL: Final = Profile(  # a CPU: images are simulated by function calls, all figures assumed
    name="pocl",
    width=16384,
    height=16384,
    buffers_in_l1=True,
    flops=50e9,
    memory=20e9,
    l2=100e9,
    l1=200e9,
    launch=20e-6,
    groups=WorkGroups(units=8, wave=16, largest=64),
    has_f16=False,
    image_slowdown=8.0,
)

PROFILES: Final = {p.name: p for p in (_ADRENO5XX, _ADRENO6XX, _MALI, _POWERVR, _BUFFER_ONLY, _POCL)}
"""By name."""

_OF_DEVICE: Final = {"": _BUFFER_ONLY, "adreno": _ADRENO6XX}
"""By what TVM calls a device, where that is no name of a profile."""


def profile_of(device: str, model: str) -> Profile:
    """``model`` names a profile, else ``device`` does; a device that is not known has no images.

    Raises :class:`TargetError` for a model that is no profile.
    """
    if model and model != "unknown":
        if model not in PROFILES:
            raise TargetError(f"there is no OpenCL profile {model!r}; there are {', '.join(PROFILES)}")
        return PROFILES[model]
    return PROFILES.get(device) or _OF_DEVICE.get(device, _BUFFER_ONLY)
