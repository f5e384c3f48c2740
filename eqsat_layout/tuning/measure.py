"""Times kernels as programs run them: our schedules, one after the other in the VM, operands cold.

In: an op in formats, or a copy, and a runner: this machine, or a device behind an RPC tracker. Out: median seconds and
spread, kept in the database.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax

from eqsat_layout.cost.database import now
from eqsat_layout.cost.kernel_key import copy_key, kernel_key
from eqsat_layout.cost.measurements import KernelKey, Measured
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.graph.public_names import without_public_name
from eqsat_layout.maps import Format, Formats
from eqsat_layout.tir.flow import complete
from eqsat_layout.tir.layout_rewrite import LayoutRewrite
from eqsat_layout.tir.rewrite import relayout
from eqsat_layout.tir.rewrite_form import write_primfunc
from eqsat_layout.tuning.probe import KernelRunner, Probe

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


@dataclass(frozen=True)
class KernelProgram:
    """A kernel by itself: ``func`` from ``operands``, as they lie in memory, to ``results``."""

    func: Any
    operands: Sequence[npt.NDArray[Any]]
    results: Sequence[relax.TensorType]

    def emit(self, builder: Any, given: Sequence[Any]) -> Any:
        """One run."""
        out = list(self.results)
        own = relax.Tuple(list(given))
        return relax.call_tir(builder.add_func(self.func, "kernel"), own, out if out[1:] else out[0])

    def module(self) -> tvm.IRModule:
        """``main`` runs it once."""
        builder = relax.BlockBuilder()
        types = [relax.TensorType(array.shape, str(array.dtype)) for array in self.operands]
        params = [relax.Var(f"x{i}", ty) for i, ty in enumerate(types)]
        with builder.function("main", params):
            with builder.dataflow():
                result = builder.emit_output(builder.emit(self.emit(builder, params)))
            builder.emit_func_output(result)
        return builder.get()


@dataclass(frozen=True)
class MeasurableKernel:
    """What can be measured. ``name``: for a person; ``program``: :class:`EqsatError` where it can't be written."""

    key: KernelKey
    name: str
    program: Callable[[], KernelProgram]

    def measure(self, runner: KernelRunner) -> Timing:
        """One run of it; :class:`EqsatError` where it fails."""
        return _measured(self.name, self.program(), runner)


def op_kernel(signature: Signature, operands: Formats = (), results: Formats = ()) -> MeasurableKernel | None:
    """An op in formats, as written where there are none.

    ``None`` for what has no one time or is no kernel: what is not understood, symbolic sizes, objects, pure views.
    """
    if signature.computation is None or signature.func is None or signature.parts:
        return None
    given = (operands, results) if operands or results else signature.as_written
    key = kernel_key(signature.computation, *given)
    return None if key is None else MeasurableKernel(key, signature.name, lambda: _of_op(signature, *given))


def copy_kernel(tensor: TensorType, source: Format, target_format: Format) -> MeasurableKernel | None:
    """A copy of ``tensor`` from one format to another; ``None`` for symbolic sizes and maps that can't be inverted."""
    key = copy_key(tensor, source, target_format)
    rewrite = None if key is None else LayoutRewrite.between(source, target_format)
    if key is None or rewrite is None:
        return None
    name = f"copy of {'x'.join(map(str, tensor.shape))}"

    def program() -> KernelProgram:
        func = without_public_name(write_primfunc(rewrite, tensor.dtype))
        return KernelProgram(func, [_buffer(tensor, source)], [_physical(tensor, target_format)])

    return MeasurableKernel(key, name, program)


def record_of(kernel: MeasurableKernel, timing: Timing, runner: KernelRunner) -> Measured:
    """What the database keeps of a measured kernel."""
    name, version = runner.target.name, runner.target.version
    return Measured(name, kernel.key, timing.seconds, timing.spread, timing.runs, version, now())


def _of_op(signature: Signature, operands: Formats, results: Formats) -> KernelProgram:
    computation = signature.computation
    assert computation is not None, "what has a key is understood"
    func = signature.func
    if not all(f is not None and f.is_row_major for f in (*operands, *results)):
        func = relayout(func, computation, complete(computation, operands, results))
    return KernelProgram(
        without_public_name(func),
        [_buffer(t, f) for t, f in zip(signature.operands, operands, strict=True)],
        [_physical(t, f) for t, f in zip(signature.results, results, strict=True)],
    )


def _measured(name: str, program: KernelProgram, runner: KernelRunner) -> Timing:
    with Probe(name, program.emit, program.operands, sum(map(_bytes_of, program.results)), runner) as probe:
        (first,) = probe.times(1)
        fitting = math.ceil(_SECONDS / max(first * probe.kernels, 1e-9))
        return Timing.of([first, *probe.times(max(_FEWEST_RUNS, min(_MOST_RUNS, fitting)) - 1)])


def _buffer(tensor: TensorType | None, fmt: Format | None) -> npt.NDArray[Any]:
    """A buffer of positive numbers, or of zeros where they may be indices."""
    assert tensor is not None, "a kernel that has a key has tensors only"
    assert fmt is not None, "a kernel that has a key has formats only"
    shape = [int(extent) for extent in tensor.shape]
    if not tensor.dtype.startswith("float"):
        return fmt.with_fill(0).lay(np.zeros(shape, tensor.dtype))
    values = np.random.default_rng(0).uniform(0.5, 1.5, shape).astype(tensor.dtype)
    return np.asarray(fmt.with_fill(0.0).lay(values), order="C")  # `ascontiguousarray` makes a vector of a scalar


def _physical(tensor: TensorType | None, fmt: Format | None) -> relax.TensorType:
    assert tensor is not None, "a kernel that has a key has tensors only"
    assert fmt is not None, "a kernel that has a key has formats only"
    return relax.TensorType([int(extent) for extent in fmt.physical_shape], tensor.dtype)


def _bytes_of(ty: Any) -> int:
    return math.prod(int(e) for e in ty.shape) * ((int(tvm.DataType(str(ty.dtype)).bits) + 7) // 8)
