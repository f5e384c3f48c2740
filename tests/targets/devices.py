"""The devices that programs run on in tests: the simulator of CUDA and PoCL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy.typing as npt
import pytest
from targets.cuda import simulating
from targets.opencl import running

from eqsat_layout.soundness.cuda.driver import simulated
from eqsat_layout.validation.inputs import arrays_in


@dataclass(frozen=True)
class Device:
    """``run`` gives the results of a module on inputs; ``check`` compares them with the CPU's, on random ones.

    ``orders``: what else ``check`` takes, to run each thread first, in between and last, where threads are simulated.
    """

    run: Callable[[Any, Sequence[Any]], Sequence[npt.NDArray[Any]]]
    check: Callable[..., Any]
    orders: Mapping[str, Any] = field(default_factory=dict)


def _on_simulator(mod: Any, inputs: Sequence[Any]) -> Sequence[npt.NDArray[Any]]:
    return list(arrays_in(simulated(simulating.compiled(mod), 2)(*inputs)))


def _on_pocl(mod: Any, inputs: Sequence[Any]) -> Sequence[npt.NDArray[Any]]:
    return running.results(running.compiled(mod), inputs)


_DEVICES: Final = {
    "cuda": Device(_on_simulator, simulating.check, {"orders": (0, 1, 2)}),
    "opencl": Device(_on_pocl, running.check),
}

each_device = pytest.mark.parametrize("device", _DEVICES.values(), ids=_DEVICES)
