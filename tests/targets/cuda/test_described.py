"""The GPU of this machine as its driver describes it: the same machine as the preset of its maker's figures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eqsat_layout.errors import TargetError
from eqsat_layout.targets.cuda.host.described import described_here
from eqsat_layout.targets.cuda.machines import MACHINES, machine_of

H100 = {
    "COMPUTE_CAPABILITY_MAJOR": 9,
    "COMPUTE_CAPABILITY_MINOR": 0,
    "MULTIPROCESSOR_COUNT": 132,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 227 << 10,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 228 << 10,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536,
    "L2_CACHE_SIZE": 50 << 20,
    "CLOCK_RATE": 1980000,
    "MEMORY_CLOCK_RATE": 2619000,
    "GLOBAL_MEMORY_BUS_WIDTH": 5120,
}
"""What NVIDIA's driver says of one."""


def driver(said: dict[str, int]) -> Any:
    """The functions that are asked, of a device that says this."""
    return SimpleNamespace(
        CUresult=SimpleNamespace(CUDA_SUCCESS=0),
        CUdevice_attribute=SimpleNamespace(**{f"CU_DEVICE_ATTRIBUTE_{name}": name for name in said}),
        cuInit=lambda flags: (0,),
        cuDeviceGet=lambda number: (0, number),
        cuDeviceGetAttribute=lambda name, device: (0, said[name]),
    )


def test_a_described_machine_is_the_one_that_its_maker_describes() -> None:
    arch, model = described_here(driver=driver(H100))
    found, known = machine_of(arch, model), MACHINES["h100"]
    assert arch == "sm_90"
    for name in ("multiprocessors", "shared_bytes_per_block", "shared_bytes", "registers", "l2_bytes"):
        assert getattr(found, name) == getattr(known, name)
    assert found.bandwidth == pytest.approx(known.bandwidth, rel=0.01)
    assert found.flops == pytest.approx(dict(known.flops), rel=0.01)


def test_half_the_units_are_half_as_fast() -> None:
    arch, model = described_here(driver=driver({**H100, "MULTIPROCESSOR_COUNT": 66}))
    assert machine_of(arch, model).flops["float16"] == pytest.approx(MACHINES["h100"].flops["float16"] / 2, rel=0.01)
    assert machine_of("sm_90a", model).warpgroups


def test_what_no_driver_said_is_refused() -> None:
    with pytest.raises(TargetError, match="is not what a driver said"):
        machine_of("sm_90", "driver:1,2")
    with pytest.raises(TargetError, match="h200, and here"):
        machine_of("sm_90", "h300")
