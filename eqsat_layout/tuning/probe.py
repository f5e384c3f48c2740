"""Runs a kernel many times on a machine, operands cold: what measuring is made of (targets room).

In: a kernel as an emitter, operands, and a :class:`Runner`: this machine, or a device elsewhere. Out: seconds of runs.
"""

from __future__ import annotations

import hashlib
import math
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy.typing as npt
import tvm
from tvm import relax
from tvm.target import codegen

from eqsat_layout.errors import EqsatError, TargetError
from eqsat_layout.targets.cpu.lower import lower
from eqsat_layout.targets.cpu.target import normalize_target

_MOST_COPIES: Final = 64
_COLD: Final = 2.0
"""How many times the last cache all operands and results together fill."""
_USUAL_CACHE: Final = 32 << 20
_LONGEST: Final = 0.25
"""Seconds that one run of all kernels may take: kernels that take longer hardly notice whether operands are cold."""
_MAIN, _ONE = "main", "one"


Emit = Callable[[Any, Sequence[Any]], Any]
"""From a block builder and operands to one result."""


Runs = Callable[[int], list[float]]
"""Runs something that many times and says how many seconds each run took."""


class Loaded(Protocol):
    """A built program where it is to run, with its operands."""

    def runs(self, function: str, sets: int) -> Runs:
        """The runs of a function of the program on ``sets`` copies of the operands, each in memory of its own."""
        ...

    def close(self) -> None:
        """Lets go of it. Does no harm a second time."""
        ...


class Runner(Protocol):
    """Where kernels are run. ``machine``: the name that the database knows it by; ``cache_bytes``: its last cache."""

    @property
    def target(self) -> tvm.target.Target:
        """What kernels are built for."""
        ...

    @property
    def machine(self) -> str: ...

    @property
    def cache_bytes(self) -> int: ...

    def load(self, executable: Any, operands: Sequence[npt.NDArray[Any]]) -> Loaded:
        """Brings a program there."""
        ...


class Here:
    """Runs kernels on this machine."""

    def __init__(self, target: Any = None):
        """:class:`TargetError` if this machine can't run what is built for ``target``."""
        self.target = require_host(target)
        self.machine = machine_name(self.target)
        self.cache_bytes = last_cache_bytes()

    def load(self, executable: Any, operands: Sequence[npt.NDArray[Any]]) -> Loaded:
        """Loads the program into the VM of this process."""
        return _LoadedHere(relax.VirtualMachine(executable, tvm.cpu()), operands)


@dataclass(frozen=True)
class _LoadedHere:
    vm: Any
    operands: Sequence[npt.NDArray[Any]]

    def runs(self, function: str, sets: int) -> Runs:
        entry = self.vm[function]
        arguments = [tvm.runtime.tensor(a) for _ in range(sets) for a in self.operands]

        def run(count: int) -> list[float]:
            seconds = []
            for _ in range(count):
                start = time.perf_counter()
                result = entry(*arguments)
                seconds.append(time.perf_counter() - start)
                del result
            return seconds

        return run

    def close(self) -> None:
        """What it holds goes with it."""


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
        target: Any = None,
        *,
        chained: int = 0,
        runner: Runner | None = None,
    ):
        """``chained``: run on one operand that many times instead, each time on the result of the time before.

        ``runner``: where it runs, in place of this machine.
        """
        place = runner or Here(target)
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
            if isinstance(error, EqsatError) or not isinstance(error, Exception):
                raise
            raise _failure(name, error) from error

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
        except Exception as error:
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
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return EqsatError(f"{name}: can't be built and run: {lines[-1]}")


def machine_name(target: Any = None, device: str | None = None) -> str:
    """The text that machines are told apart by: target kind, CPU and its features, threads.

    For a target of this machine's architecture the CPU's own name is in it, not only LLVM's name of the family; for a
    ``device`` elsewhere the name that it goes by.
    """
    checked = normalize_target(target)
    attrs = dict(checked.attrs)
    triple = str(attrs.get("mtriple") or codegen.llvm_get_system_triple())
    names = sorted(map(str, codegen.llvm_get_cpu_features(checked)))
    features = hashlib.sha256(" ".join(names).encode()).hexdigest()[:8]
    cpu = device or (_cpu_name() if _runs_here(checked) else "elsewhere")
    threads = int(attrs.get("num-cores", 1))
    parts = (checked.kind.name, triple.split("-")[0], attrs.get("mcpu", "generic"), features, cpu, f"{threads} threads")
    return " ".join(map(str, parts))


def require_host(target: Any = None) -> tvm.target.Target:
    """The checked target; :class:`TargetError` if this machine can't run what is built for it."""
    checked = normalize_target(target)
    if not _runs_here(checked):
        raise TargetError(f"can't measure for {str(checked)!r}: this machine does not run it")
    return checked


def last_cache_bytes() -> int:
    """Size of the last cache, 32 MiB where the system does not say."""
    sizes = [_USUAL_CACHE // 4]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        try:
            text = path.read_text().strip()
            sizes.append(int(text.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(text[-1:], 0))
        except (OSError, ValueError):
            continue
    return max(sizes) if len(sizes) > 1 else _USUAL_CACHE


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


def _runs_here(target: tvm.target.Target) -> bool:
    """The architecture is this machine's, and it has all features that code for the target may use."""
    triple = str(dict(target.attrs).get("mtriple") or codegen.llvm_get_system_triple())
    if triple.split("-")[0] != str(codegen.llvm_get_system_triple()).split("-")[0]:
        return False
    return _instruction_sets(target) <= _instruction_sets(normalize_target())


def _instruction_sets(target: tvm.target.Target) -> set[str]:
    """The features of a target without those that only say what is fast on it."""
    return {name for name in map(str, codegen.llvm_get_cpu_features(target)) if name.split("-")[0] not in _TUNING}


_TUNING: Final = frozenset(
    (
        *("allow", "branchfusion", "false", "fast", "faster", "idivl", "idivq", "lea", "macrofusion"),
        *("no", "pad", "prefer", "sbb", "slow", "tuning", "use", "vzeroupper"),
    )
)
"""First words of LLVM's names of them for x86, where an older CPU has some that a newer one has not."""


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    except OSError:
        pass
    return platform.processor() or platform.machine()
