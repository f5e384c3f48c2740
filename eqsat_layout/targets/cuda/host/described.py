"""The GPU of this machine, as its driver describes it.

In: the number of a device. Out: its architecture, and a text that stands for its figures as the ``model`` of a target:
a target means the same wherever it is read, and programs that are kept are those of that GPU.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from eqsat_layout.errors import TargetError
from eqsat_layout.targets.cuda.host.device import answer_of, driver_of
from eqsat_layout.targets.cuda.machine import CudaMachine

HERE: Final = "here"
"""A model: the GPU of this machine."""
_BY_DRIVER: Final = "driver:"
_ATTRIBUTES: Final = (
    "MULTIPROCESSOR_COUNT",
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "L2_CACHE_SIZE",
    "CLOCK_RATE",
    "MEMORY_CLOCK_RATE",
    "GLOBAL_MEMORY_BUS_WIDTH",
)
"""Names of the driver's, in the order of the text."""
_LANES: Final = {"sm_80": 64}
"""Units for single precision of a multiprocessor (CUDA programming guide, arithmetic); :data:`_MOST` of later ones."""
_MOST: Final = 128


def described_here(*, driver: Any = None) -> tuple[str, str]:
    """Architecture and model of the first device. :class:`TargetError` where there is no driver or no device."""
    cuda = driver_of() if driver is None else driver
    answer_of(cuda, "cuInit", 0)
    device = answer_of(cuda, "cuDeviceGet", 0)

    def attribute(name: str) -> int:
        named = getattr(cuda.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(answer_of(cuda, "cuDeviceGetAttribute", named, device))

    arch = "".join(str(attribute(f"COMPUTE_CAPABILITY_{part}")) for part in ("MAJOR", "MINOR"))
    return f"sm_{arch}", _BY_DRIVER + ",".join(str(attribute(name)) for name in _ATTRIBUTES)


def runs_on(arch: str, found: str) -> bool:
    """Whether a device of architecture ``found`` runs machine code for ``arch``: a later one of the same generation
    does, unless the code has what that generation has alone."""
    if arch.endswith("a"):
        return found == arch.removesuffix("a")
    return found[:-1] == arch[:-1] and found >= arch


def is_described(model: str) -> bool:
    """The text is one of :func:`described_here`."""
    return model.startswith(_BY_DRIVER)


def described_machine(model: str, typical: CudaMachine) -> CudaMachine:
    """The machine of a text. What no driver says is that of a ``typical`` one of the architecture: tensor cores are as
    many times as fast as ordinary units, and launches take as long."""
    try:
        figures = [int(one) for one in model.removeprefix(_BY_DRIVER).split(",")]
        units, per_block, shared, registers, cache, kilohertz, memory_kilohertz, bits = figures
    except ValueError as error:
        raise TargetError(f"{model!r} is not what a driver said of a CUDA machine") from error
    flops = 2e3 * kilohertz * units * _LANES.get(typical.arch, _MOST)
    return replace(
        typical,
        multiprocessors=units,
        shared_bytes_per_block=per_block,
        shared_bytes=shared,
        registers=registers,
        l2_bytes=cache,
        bandwidth=2e3 * memory_kilohertz * bits / 8,
        flops={dtype: one * flops / typical.flops["float32"] for dtype, one in typical.flops.items()},
    )
