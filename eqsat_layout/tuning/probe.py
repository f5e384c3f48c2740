"""Runs a kernel many times on a machine, operands cold: what measuring is made of.

In: a kernel as an emitter, operands, and a :class:`KernelRunner`: this machine, or a device elsewhere. Out: seconds of
runs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy.typing as npt
import tvm
from tvm import relax

from eqsat_layout.errors import ILL_TYPED, EqsatError, TargetError
from eqsat_layout.notes import first_line
from eqsat_layout.targets.lowering import lower
from eqsat_layout.targets.protocol import Emit, Target, Workload

_MOST_COPIES: Final = 64
_COLD: Final = 2.0
"""How many times the last cache all operands and results together fill."""
_LONGEST: Final = 0.25
"""Seconds that one run of all kernels may take: kernels that take longer hardly notice whether operands are cold."""
_MAIN, _ONE = "main", "one"
_FAILURES: Final = (*ILL_TYPED, OSError)
"""What TVM, LLVM and the linker raise for a kernel that they can't build, load or run."""


Runs = Callable[[int], list[float]]
"""Runs something that many times and says how many seconds each run took, without waiting for other processes."""


class Loaded(Protocol):
    """A built program where it is to run, with its operands."""

    def runs(self, function: str, sets: int) -> Runs:
        """The runs of a function of the program on ``sets`` copies of the operands, each in memory of its own."""
        ...

    def close(self) -> None:
        """Lets go of it. Does no harm a second time."""
        ...


class KernelRunner(Protocol):
    """Where kernels are run. ``cache_bytes``: the last-level cache there."""

    @property
    def target(self) -> Target:
        """What kernels are built for; its name is what the database knows the machine by."""
        ...

    @property
    def cache_bytes(self) -> int: ...

    def load(self, executable: Any, operands: Sequence[npt.NDArray[Any]]) -> Loaded:
        """Brings a program there."""
        ...


class Here:
    """Runs kernels on this machine."""

    def __init__(self, target: Target):
        """:class:`TargetError` if this machine can't run what is built for ``target``."""
        if target.device is None:
            raise TargetError(f"can't measure for {str(target.tvm)!r}: this machine does not run it")
        self.target = target
        self.cache_bytes = target.cache_bytes

    def load(self, executable: Any, operands: Sequence[npt.NDArray[Any]]) -> Loaded:
        """Loads the program into the VM of this process."""
        device = self.target.device
        return _LoadedHere(relax.VirtualMachine(executable, device), device, operands)


@dataclass(frozen=True)
class _LoadedHere:
    vm: Any
    device: Any
    operands: Sequence[npt.NDArray[Any]]

    def runs(self, function: str, sets: int) -> Runs:
        entry = self.vm[function]
        arguments = [tvm.runtime.tensor(a, self.device) for _ in range(sets) for a in self.operands]

        def run(count: int) -> list[float]:
            seconds = []
            for _ in range(count):
                wall, processor = time.perf_counter(), time.process_time()
                result = entry(*arguments)
                seconds.append(_spent(time.perf_counter() - wall, time.process_time() - processor))
                del result
            return seconds

        return run

    def close(self) -> None:
        """What it holds goes with it."""


def _spent(wall: float, processor: float) -> float:
    """Seconds of a run: by the wall, or of the processor in all threads, neither of which is less than it takes on
    cores of its own. A clock of the processor that stood still ticks too slowly for the run: by the wall then."""
    return min(wall, processor) if processor > 0 else wall


class Probe:
    """A built function that runs one kernel many times, on other operands each time, so that they are not in cache.

    ``emit`` puts the kernel into a program; ``operands`` are arrays, ``result_bytes`` what it writes. A kernel that
    takes so long that caches don't matter is run alone.
    """

    def __init__(
        self,
        name: str,
        emit: Emit,
        operands: Sequence[npt.NDArray[Any]],
        result_bytes: int,
        place: KernelRunner,
        *,
        chained: int = 0,
    ):
        """``chained``: run on one operand that many times instead, each time on the result of the time before."""
        moved = sum(a.nbytes for a in operands) + result_bytes
        self.name = name
        self.kernels = chained or max(1, min(_MOST_COPIES, math.ceil(_COLD * place.cache_bytes / max(1, moved))))
        self._loaded: Loaded | None = None
        try:
            executable = lower(_repeated(emit, operands, self.kernels, bool(chained)), place.target)
            self._loaded = place.load(executable, operands)
            self._runs = self._started(self._loaded, bool(chained))
        except BaseException as error:
            self.close()
            if isinstance(error, EqsatError) or not isinstance(error, _FAILURES):
                raise
            raise _failure(name, error) from error

    @staticmethod
    def of(workload: Workload, place: KernelRunner) -> Probe:
        """One that a target calibrates by."""
        own = (workload.emit, workload.operands, workload.result_bytes)
        return Probe(workload.name, *own, place, chained=workload.chained)

    def _started(self, loaded: Loaded, chained: bool) -> Runs:
        """Runs that are warm: the first takes memory from the system, the second from the pool."""
        if not chained:
            alone = loaded.runs(_ONE, 1)
            if self.kernels * min(alone(2)) > _LONGEST:
                self.kernels = 1
                return alone
        runs = loaded.runs(_MAIN, 1 if chained else self.kernels)
        runs(2)
        return runs

    def run(self) -> float:
        """Seconds a kernel took in one run of them all."""
        return self.times(1)[0]

    def times(self, count: int) -> list[float]:
        """Seconds a kernel took in each of ``count`` runs of them all."""
        try:
            return [seconds / self.kernels for seconds in self._runs(count)]
        except EqsatError:
            raise
        except _FAILURES as error:
            raise _failure(self.name, error) from error

    def close(self) -> None:
        """Lets go of the program. Does no harm a second time."""
        if self._loaded is not None:
            self._loaded.close()

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _failure(name: str, error: Exception) -> EqsatError:
    return EqsatError(f"{name}: can't be built and run: {first_line(error)}")


def _repeated(emit: Emit, operands: Sequence[npt.NDArray[Any]], count: int, chained: bool) -> tvm.IRModule:
    """``main`` runs the kernel ``count`` times; ``one``, which a chain does not have, once."""
    builder = relax.BlockBuilder()
    _add_function(builder, _MAIN, emit, operands, count, chained)
    if not chained:
        _add_function(builder, _ONE, emit, operands, 1, False)
    return builder.get()


def _add_function(
    builder: Any, name: str, emit: Emit, operands: Sequence[npt.NDArray[Any]], count: int, chained: bool
) -> None:
    sets = [
        [relax.Var(f"x{i}_{j}", relax.TensorType(a.shape, str(a.dtype))) for j, a in enumerate(operands)]
        for i in range(1 if chained else count)
    ]
    with builder.function(name, [v for own in sets for v in own]):
        with builder.dataflow():
            if chained:
                value = sets[0][0]
                for _ in range(count):
                    value = builder.emit(emit(builder, [value]))
                results = [value]
            else:
                results = [builder.emit(emit(builder, own)) for own in sets]
            output = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(output)
