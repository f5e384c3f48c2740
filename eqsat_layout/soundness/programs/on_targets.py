"""Random programs compiled for a target and run where we are, beside what TVM makes of them on the CPU.

In: a module, what was compiled from it, a seed. Out: a :class:`TargetPair`, which is compared as any pair of modules
is. CUDA runs on the simulator, thread by thread in an order that the seed shuffles; OpenCL on the first device that
there is; other targets on TVM's virtual machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from tvm import ir, relax

from eqsat_layout.graph.op_names import ops_in
from eqsat_layout.soundness.cuda.driver import simulated
from eqsat_layout.soundness.programs.check import SIDES, TOLERANCES, Arrays, Pair, ProgramRun
from eqsat_layout.targets.cuda.host.executable import CudaProgram
from eqsat_layout.targets.gpu.host.device_program import DeviceProgram
from eqsat_layout.targets.protocol import Target
from eqsat_layout.tir.structural import nodes_of
from eqsat_layout.validation.inputs import NORMAL, SPECIAL, arrays_in

_FORMULAS: Final = frozenset({"relax.tanh", "relax.atanh", "relax.nn.gelu_tanh"})
"""TVM computes them for CPUs by formulas that make 0.0 of -0.0; a device's own functions keep the sign."""

_ORDERED: Final = "relax.not_equal"
"""On a CPU nothing differs from what is no number: TVM has LLVM compare so. Elsewhere it does, as IEEE 754 says."""

_FORGETFUL: Final = frozenset(f"relax.nn.max_pool{rank}d" for rank in (1, 2, 3))
"""A NaN beside a border is forgotten or not as LLVM likes, in TVM's own builds too (docs/limits.md)."""

_FROM_BYTES: Final = "relax.dequantize"
"""Less a zero point of float16 TVM rounds to that, and multiplies by float32; kernels keep it in float32."""

Running = Callable[[str, Sequence[Any]], Arrays]
"""From the name of a function and its inputs to its results."""


class TargetPair(Pair):
    """``mod`` itself, and what ``running`` makes of it."""

    tolerances: Mapping[str, float] = {
        **TOLERANCES,
        "bfloat16": 0.1,
    }  # its steps are kept in float32, TVM rounds after each

    def __init__(self, mod: Any, running: Running):
        super().__init__(mod, mod)
        self._running = running
        self._ops = frozenset(ops_in(mod))
        halves = [one for one in nodes_of(mod, ir.GenericConst) if str(getattr(one.ty, "dtype", "")) == "float16"]
        if _FROM_BYTES in self._ops and halves:
            self.tolerances = {**self.tolerances, "float32": TOLERANCES["float16"]}

    def run(self, side: str, name: str, inputs: Sequence[Any]) -> Arrays:
        """The results of one side; zeros without signs where TVM's own have others than the functions' zeros."""
        found = super().run(side, name, inputs) if side == SIDES[0] else self._running(name, inputs)
        return [one + 0.0 if self._ops & _FORMULAS and one.dtype.kind == "f" else one for one in found]

    def cases(self, seed: int, kinds: Sequence[str] = (NORMAL,)) -> Iterator[ProgramRun]:
        """Those of a :class:`Pair`, special numbers left out where no two devices agree on them."""
        is_open = _ORDERED in self._ops or bool(self._ops & _FORGETFUL)
        return super().cases(seed, [kind for kind in kinds if kind != SPECIAL or not is_open])


def running(executable: Any, target: Target, seed: int) -> Running:
    """``executable``, which was compiled for ``target``, on a device of this machine."""
    if isinstance(executable, DeviceProgram):
        device = simulated(executable, seed) if isinstance(executable, CudaProgram) else executable.on()
        return lambda name, inputs: list(_leaves(device(*map(in_numpy, inputs), entry=name)))
    machine = relax.VirtualMachine(executable, target.device)
    return lambda name, inputs: list(arrays_in(machine[name](*inputs)))


def in_numpy(value: Any) -> Any:
    """An input as NumPy's arrays."""
    return value.numpy() if hasattr(value, "numpy") else [in_numpy(field) for field in value]


def _leaves(value: Any) -> Any:
    """Arrays of results, tuples taken apart."""
    if isinstance(value, list):
        for one in value:
            yield from _leaves(one)
    else:
        yield value
