"""GPUs that the package knows, as data.

In: ``arch`` and ``model`` of a target. Out: a :class:`~eqsat_layout.targets.cuda.machine.CudaMachine`. The figures are
what a driver said (:mod:`eqsat_layout.targets.cuda.host.described`), or those of the makers' data sheets, dense and at
boost clocks; the seconds of a launch are assumed, fewer where launches overlap. None was measured by us: they decide
proportions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from eqsat_layout.errors import TargetError
from eqsat_layout.targets.cuda.host.described import described_machine, is_described
from eqsat_layout.targets.cuda.machine import CudaMachine

_KIB: Final = 1 << 10
_MIB: Final = 1 << 20


def _flops(f32: float, f16: float, tf32: float, int8: float) -> dict[str, float]:
    return {"float32": f32, "float16": f16, "bfloat16": f16, "tensorfloat32": tf32, "int8": int8}


_A100: Final = CudaMachine(  # 80 GB, SXM
    arch="sm_80",
    multiprocessors=108,
    shared_bytes_per_block=163 * _KIB,
    shared_bytes=164 * _KIB,
    registers=65536,
    l2_bytes=40 * _MIB,
    bandwidth=2.04e12,
    flops=_flops(19.5e12, 312e12, 156e12, 624e12),
    launch_seconds=2.5e-6,
)

_RTX3090: Final = replace(
    _A100,
    arch="sm_86",
    multiprocessors=82,
    shared_bytes_per_block=99 * _KIB,
    shared_bytes=100 * _KIB,
    l2_bytes=6 * _MIB,
    bandwidth=936e9,
    flops=_flops(35.6e12, 71e12, 35.6e12, 284e12),
)

_RTX4090: Final = replace(
    _RTX3090,
    arch="sm_89",
    multiprocessors=128,
    l2_bytes=72 * _MIB,
    bandwidth=1.01e12,
    flops=_flops(82.6e12, 165e12, 82.6e12, 661e12),
)

_L4: Final = replace(
    _RTX4090,
    multiprocessors=58,
    l2_bytes=48 * _MIB,
    bandwidth=300e9,
    flops=_flops(30.3e12, 121e12, 60e12, 242e12),
)

_H100: Final = replace(  # SXM
    _A100,
    arch="sm_90",
    multiprocessors=132,
    shared_bytes_per_block=227 * _KIB,
    shared_bytes=228 * _KIB,
    l2_bytes=50 * _MIB,
    bandwidth=3.35e12,
    flops=_flops(67e12, 989e12, 494e12, 1979e12),
    launch_seconds=1.2e-6,
)

MACHINES: Final = {
    "a100": _A100,
    "rtx3090": _RTX3090,
    "rtx4090": _RTX4090,
    "l4": _L4,
    "h100": _H100,
    "h200": replace(_H100, bandwidth=4.8e12),
}
"""By model."""

_OF_ARCH: Final = {"sm_80": "a100", "sm_86": "rtx3090", "sm_89": "rtx4090", "sm_90": "h100"}

DEFAULT: Final = "sm_80"
"""The oldest that has what the kernels use; later ones of the same generation run its machine code."""


def machine_of(arch: str, model: str) -> CudaMachine:
    """``model`` names a machine, else the one that is typical of ``arch`` is meant.

    Raises :class:`TargetError` for a model that is not known, one of another architecture, and architectures that are
    not known.
    """
    plain = arch.rstrip("a")
    found = _machine_of(arch, plain, model)
    return replace(found, warpgroups=True) if arch != plain else found  # instructions of that generation only


def _machine_of(arch: str, plain: str, model: str) -> CudaMachine:
    if plain not in _OF_ARCH:
        raise TargetError(f"CUDA architecture {arch!r} is not known; there are {', '.join(_OF_ARCH)}")
    model = model_name(plain, model)
    if is_described(model):
        return described_machine(model, MACHINES[_OF_ARCH[plain]])
    if model not in MACHINES:
        raise TargetError(f"there is no CUDA machine {model!r}; there are {', '.join(MACHINES)}, and here")
    if MACHINES[model].arch != plain:
        raise TargetError(f"CUDA machine {model!r} is of architecture {MACHINES[model].arch}, not {arch}")
    return MACHINES[model]


def model_name(arch: str, model: str) -> str:
    """The model that is meant where ``model`` names none."""
    return model if model and model != "unknown" else _OF_ARCH[arch.rstrip("a")]
