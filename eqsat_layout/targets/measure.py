"""Times kernels as programs run them: our schedules, one after the other in the VM, operands cold (targets room).

In: an op and the formats of a flow, or a copy, and a target that this machine can run. Out: median seconds and spread.
"""

from __future__ import annotations

import hashlib
import math
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax
from tvm.target import codegen

from eqsat_layout.errors import EqsatError, TargetError
from eqsat_layout.extract.database import Database, Measured, now
from eqsat_layout.extract.kernel_key import KernelKey, copy_key, kernel_key
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.maps import Format
from eqsat_layout.targets.base import normalize_target
from eqsat_layout.targets.lower import lower
from eqsat_layout.tir.flow import Flow, complete
from eqsat_layout.tir.layout_rewrite import LayoutRewrite
from eqsat_layout.tir.rewrite import relayout
from eqsat_layout.tir.rewrite_form import write_primfunc

_MOST_COPIES: Final = 64
_COLD: Final = 2.0
"""How many times the last cache all operands and results together fill."""
_USUAL_CACHE: Final = 32 << 20
_SECONDS: Final = 0.2
_FEWEST_RUNS, _MOST_RUNS = 5, 200


@dataclass(frozen=True)
class Timing:
    """Median ``seconds`` of one kernel, ``spread`` between the quartiles, over ``runs``."""

    seconds: float
    spread: float
    runs: int

    @staticmethod
    def of(seconds: Sequence[float]) -> Timing:
        """From the seconds of each run."""
        ordered = sorted(seconds)
        low, high = ordered[len(ordered) // 4], ordered[(3 * len(ordered)) // 4]
        return Timing(statistics.median(ordered), high - low, len(ordered))


def package_version() -> str:
    """What made the schedules that are measured."""
    return version("eqsat-layout")


def machine_name(target: Any = None) -> str:
    """The text that machines are told apart by: target kind, CPU and its features, threads.

    For a target of this machine's architecture the CPU's own name is in it, not only LLVM's name of the family.
    """
    checked = normalize_target(target)
    attrs = dict(checked.attrs)
    triple = str(attrs.get("mtriple") or codegen.llvm_get_system_triple())
    names = sorted(map(str, codegen.llvm_get_cpu_features(checked)))
    features = hashlib.sha256(" ".join(names).encode()).hexdigest()[:8]
    cpu = _cpu_name() if _runs_here(checked) else "elsewhere"
    threads = int(attrs.get("num-cores", 1))
    parts = (checked.kind.name, triple.split("-")[0], attrs.get("mcpu", "generic"), features, cpu, f"{threads} threads")
    return " ".join(map(str, parts))


def measure_kernel(signature: Signature, flow: Flow | None = None, target: Any = None) -> Timing:
    """One run of an op in the formats of ``flow``, as written where that is ``None``; operands in memory, not in cache.

    :class:`TargetError` where this machine can't run the target, :class:`EqsatError` for an op that is not understood,
    has symbolic sizes or can't be built.
    """
    computation = signature.computation
    if computation is None or signature.func is None:
        raise EqsatError(f"{signature.name}: can't be measured, its TIR is not understood")
    if kernel_key(computation, *_formats(signature, flow)) is None:
        raise EqsatError(f"{signature.name}: can't be measured, it has symbolic sizes")
    func = signature.func
    if flow is not None:
        func = relayout(func, computation, complete(computation, flow.operands, flow.results))
    operands, results = _formats(signature, flow)
    return _measure_func(
        signature.name,
        func,
        [_buffer(t, f) for t, f in zip(signature.operands, operands, strict=True)],
        [_physical(t, f) for t, f in zip(signature.results, results, strict=True)],
        target,
    )


def measure_copy(tensor: TensorType, source: Format, target_format: Format, target: Any = None) -> Timing:
    """A copy of ``tensor`` from one format to another by a kernel of its own."""
    what = f"a copy from {source} to {target_format}"
    rewrite = LayoutRewrite.between(source, target_format)
    if rewrite is None or copy_key(tensor, source, target_format) is None:
        raise EqsatError(f"{what} can't be measured: the maps can't be inverted, or sizes are symbolic")
    func = write_primfunc(rewrite, tensor.dtype)
    return _measure_func(what, func, [_buffer(tensor, source)], [_physical(tensor, target_format)], target)


def measure_missing(
    database: Database,
    kernels: Sequence[tuple[Signature, Flow | None]],
    copies: Sequence[tuple[TensorType, Format, Format]] = (),
    target: Any = None,
) -> int:
    """Measures what the database does not have yet and adds it, each as soon as it is known; how many.

    What can't be measured is passed over.
    """
    machine, release = machine_name(target), package_version()
    known = database.read()
    wanted: dict[KernelKey, Callable[[], Timing]] = {}
    for signature, flow in kernels:
        key = None if signature.computation is None else kernel_key(signature.computation, *_formats(signature, flow))
        if key is not None:
            wanted.setdefault(key, partial(measure_kernel, signature, flow, target))
    for copy in copies:
        key = copy_key(*copy)
        if key is not None:
            wanted.setdefault(key, partial(measure_copy, *copy, target=target))
    count = 0
    for key, measure in wanted.items():
        if known.kernel(machine, release, key) is not None:
            continue
        try:
            timing = measure()
        except TargetError:
            raise
        except EqsatError:
            continue
        database.add(Measured(machine, key, timing.seconds, timing.spread, timing.runs, release, now()))
        count += 1
    return count


Emit = Callable[[Any, Sequence[Any]], Any]
"""From a block builder and operands to one result."""


class Probe:
    """A built function that runs one kernel many times, on other operands each time, so that they are not in cache.

    ``emit`` puts the kernel into a program; ``operands`` are arrays, ``result_bytes`` what it writes.
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
    ):
        """``chained``: run on one operand that many times instead, each time on the result of the time before."""
        checked = require_host(target)
        moved = sum(a.nbytes for a in operands) + result_bytes
        self.name = name
        self.kernels = chained or max(1, min(_MOST_COPIES, math.ceil(_COLD * last_cache_bytes() / max(1, moved))))
        try:
            mod = _repeated(emit, operands, self.kernels, bool(chained))
            self._main = relax.VirtualMachine(lower(mod, checked), tvm.cpu())["main"]
            sets = 1 if chained else self.kernels
            self._arguments = [tvm.runtime.tensor(a) for _ in range(sets) for a in operands]
            for _ in range(2):  # the first run takes memory from the system, the second from the pool
                self.run()
        except EqsatError:
            raise
        except Exception as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise EqsatError(f"{name}: can't be built and run: {lines[-1]}") from error

    def run(self) -> float:
        """Seconds a kernel took in one run of them all."""
        start = time.perf_counter()
        result = self._main(*self._arguments)
        taken = time.perf_counter() - start
        del result
        return taken / self.kernels


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


def _measure_func(
    name: str, func: Any, operands: Sequence[npt.NDArray[Any]], results: Sequence[relax.TensorType], target: Any
) -> Timing:
    if func.attrs is not None and func.attrs.get("global_symbol") is not None:
        func = func.without_attr("global_symbol")

    def emit(builder: Any, given: Sequence[Any]) -> Any:
        out = list(results)
        return relax.call_tir(builder.add_func(func, "kernel"), relax.Tuple(list(given)), out if out[1:] else out[0])

    written = sum(_bytes_of(r) for r in results)
    probe = Probe(name, emit, operands, written, target)
    seconds = [probe.run()]
    least = time.perf_counter() + _SECONDS
    while len(seconds) < _FEWEST_RUNS or (time.perf_counter() < least and len(seconds) < _MOST_RUNS):
        seconds.append(probe.run())
    return Timing.of(seconds)


def _repeated(emit: Emit, operands: Sequence[npt.NDArray[Any]], count: int, chained: bool) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    sets = [
        [relax.Var(f"x{i}_{j}", relax.TensorType(a.shape, str(a.dtype))) for j, a in enumerate(operands)]
        for i in range(1 if chained else count)
    ]
    with builder.function("main", [v for own in sets for v in own]):
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
    return builder.get()


def _formats(signature: Signature, flow: Flow | None) -> tuple[Sequence[Format | None], Sequence[Format | None]]:
    if flow is not None:
        return flow.operands, flow.results
    row_major = [None if t is None else Format.row_major(t.shape) for t in (*signature.operands, *signature.results)]
    return row_major[: len(signature.operands)], row_major[len(signature.operands) :]


def _buffer(tensor: TensorType | None, fmt: Format | None) -> npt.NDArray[Any]:
    """A buffer of positive numbers, or of zeros where they may be indices."""
    assert tensor is not None, "a kernel that has a key has tensors only"
    assert fmt is not None, "a kernel that has a key has formats only"
    shape = [int(extent) for extent in tensor.shape]
    if not tensor.dtype.startswith("float"):
        return fmt.with_fill(0).lay(np.zeros(shape, tensor.dtype))
    values = np.random.default_rng(0).uniform(0.5, 1.5, shape).astype(tensor.dtype)
    return np.ascontiguousarray(fmt.with_fill(0.0).lay(values))


def _physical(tensor: TensorType | None, fmt: Format | None) -> relax.TensorType:
    assert tensor is not None, "a kernel that has a key has tensors only"
    assert fmt is not None, "a kernel that has a key has formats only"
    return relax.TensorType([int(extent) for extent in fmt.physical_shape], tensor.dtype)


def _bytes_of(ty: Any) -> int:
    return math.prod(int(e) for e in ty.shape) * ((int(tvm.DataType(str(ty.dtype)).bits) + 7) // 8)


def _runs_here(target: tvm.target.Target) -> bool:
    """The architecture is this machine's, and it has all features that code for the target may use."""
    triple = str(dict(target.attrs).get("mtriple") or codegen.llvm_get_system_triple())
    if triple.split("-")[0] != str(codegen.llvm_get_system_triple()).split("-")[0]:
        return False
    host = tvm.target.Target({"kind": "llvm", "mcpu": str(codegen.llvm_get_system_cpu())})
    own = set(map(str, codegen.llvm_get_cpu_features(host)))
    return set(map(str, codegen.llvm_get_cpu_features(target))) <= own


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    except OSError:
        pass
    return platform.processor() or platform.machine()
