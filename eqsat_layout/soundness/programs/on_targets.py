"""Random programs compiled for a target and run where we are, beside what TVM makes of them on the CPU.

In: a module, what was compiled from it, a seed. Out: a :class:`TargetPair`, which is compared as any pair of modules
is. CUDA runs on the simulator, thread by thread in an order that the seed shuffles; OpenCL on the first device that
there is; other targets on TVM's virtual machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax

from eqsat_layout.soundness.cuda.driver import simulated
from eqsat_layout.soundness.programs.check import SIDES, Arrays, Pair
from eqsat_layout.targets.cuda.host.executable import CudaProgram
from eqsat_layout.targets.gpu.host.device_program import DeviceProgram
from eqsat_layout.targets.protocol import Target
from eqsat_layout.validation.inputs import flat

Running = Callable[[str, Sequence[Any]], Arrays]
"""From the name of a function and its inputs to its results."""


class TargetPair(Pair):
    """``mod`` itself, and what ``running`` makes of it."""

    def __init__(self, mod: Any, running: Running):
        super().__init__(mod, mod)
        self._running = running

    def run(self, side: str, name: str, inputs: Sequence[Any]) -> Arrays:
        """The results of one side."""
        return super().run(side, name, inputs) if side == SIDES[0] else self._running(name, inputs)


def running(executable: Any, target: Target, seed: int) -> Running:
    """``executable``, which was compiled for ``target``, on a device of this machine."""
    if isinstance(executable, DeviceProgram):
        device = simulated(executable, seed) if isinstance(executable, CudaProgram) else executable.on()
        return lambda name, inputs: list(_leaves(device(*map(_plain, inputs), entry=name)))
    machine = relax.VirtualMachine(executable, target.device)
    return lambda name, inputs: list(flat(machine[name](*inputs)))


def _plain(value: Any) -> Any:
    return value.numpy() if hasattr(value, "numpy") else [_plain(field) for field in value]


def _leaves(value: Any) -> Any:
    """Arrays of results, tuples taken apart."""
    if isinstance(value, list):
        for one in value:
            yield from _leaves(one)
    else:
        yield value
