"""Evaluation of constant expressions, in another process, which a fault can't harm.

In: a module whose ``main`` takes nothing and returns a tuple of tensors. Out: these tensors. The kernels are compiled
unscheduled, for one core of this machine: most run once, in less time than scheduling takes.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import tvm
from tvm import relax
from tvm_ffi.serialization import from_json_graph_str, to_json_graph_str

from eqsat_layout.graph.legalize import legalize
from eqsat_layout.graph.skeleton import Kind, Skeleton, kind_of, read_tensors, write_tensors
from eqsat_layout.passes.any_size import for_any_size
from eqsat_layout.passes.guarded_reads import guard_reads
from eqsat_layout.passes.guarded_writes import guard_writes
from eqsat_layout.system.memory_files import files_in_memory
from eqsat_layout.system.own_cpu import own_cpu
from eqsat_layout.system.workers import WorkerError, workers
from eqsat_layout.tir.negated_dividends import dividends_that_count_up

_OPTIMISATION: Final = 1
"""LLVM's level: at 2 it takes longer over kernels of weights than they run."""


@dataclass(frozen=True)
class _Job:
    """What the other process is given: a skeleton as JSON, and where its tensors and the results lie."""

    module: str
    kinds: tuple[Kind, ...]
    given: str
    made: str


def be_ready() -> None:
    """For a process that will be given constants to compute, or kernels to make: what that needs is imported by then,
    and the collector of cycles need not look at it any more."""
    gc.freeze()


def evaluate(mod: tvm.IRModule) -> list[Any]:
    """See above. Raises what the build raises; :class:`~eqsat_layout.errors.EqsatError` where the run has a fault."""
    skeleton = Skeleton.of(mod)
    with files_in_memory(2) as (given, made):
        write_tensors(given, skeleton.tensors)
        kinds = tuple(map(kind_of, skeleton.tensors))
        job = _Job(to_json_graph_str(skeleton.module), kinds, str(given), str(made))
        try:
            made_kinds = workers().apart(_evaluate_job, job)
        except WorkerError as error:
            raise WorkerError(f"constants can't be computed ahead ({_ops(mod)}): {error}") from error
        return read_tensors(made, made_kinds)


def _ops(mod: tvm.IRModule) -> str:
    """What computes them, in words."""
    calls = [b.value for block in mod["main"].body.blocks for b in block.bindings if isinstance(b.value, relax.Call)]
    names = (call.args[0].name_hint if call.op.name == "relax.call_tir" else call.op.name for call in calls)
    return ", ".join(dict.fromkeys(names))


def _evaluate_job(job: _Job) -> list[Kind]:
    """Writes the results; gives what kinds they are."""
    tensors = read_tensors(Path(job.given), job.kinds)
    module = Skeleton(from_json_graph_str(job.module), tuple(tensors)).with_parameters("main")
    target = tvm.target.Target(own_cpu().config | {"opt-level": _OPTIMISATION, "num-cores": 1})
    with tvm.transform.PassContext(opt_level=0):
        mod = dividends_that_count_up()(guard_writes(guard_reads(legalize(for_any_size(module)))))
        executable = tvm.compile(mod, target=target)
    results = list(relax.VirtualMachine(executable, tvm.cpu())["main"](*tensors))
    write_tensors(Path(job.made), results)
    return list(map(kind_of, results))
