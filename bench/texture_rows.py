"""The rows of ``texture.py``: one plan each, compiled, with what its kernels move by the model.

In: a network and a target. Out: a dictionary by plan: ours, those of policies, the one that moves least, TVM's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

import eqsat_layout
from eqsat_layout.graph.importer import import_module
from eqsat_layout.targets.gpu.views import launched_and_views
from eqsat_layout.targets.opencl.adreno_pipeline import copies_of_tvm, launches_of_tvm, planned_by_tvm
from eqsat_layout.targets.opencl.costs import ImageRoofline
from eqsat_layout.targets.opencl.free_padding import has_guards, is_padded
from eqsat_layout.targets.opencl.policies import POLICIES, LeastTraffic
from eqsat_layout.targets.opencl.target import OpenClTarget
from eqsat_layout.targets.opencl.traffic import Traffic, traffic_of
from eqsat_layout.targets.registry import target as target_of
from eqsat_layout.validation.inputs import flat, random_inputs

LEAST = "least bytes"
"""The plan that moves least of all as the planner counts, which is before calls are joined to kernels."""


def rows(head: dict[str, Any], make: Callable[[], Any], run: bool) -> Iterator[dict[str, Any]]:
    """One row for our plan, one for each policy, one for the plan that moves least, one for TVM's pipeline."""
    mod = make()
    target = target_of({"kind": "opencl", "profile": head["profile"]})
    assert isinstance(target, OpenClTarget)
    yield head | row(target, "ours", mod, {}, run)
    for policy in POLICIES:
        yield head | row(target, policy.name, mod, {"cost_model": policy.costs(target)}, run)
    yield head | row(target, LEAST, mod, {"cost_model": LeastTraffic(target)}, False)
    yield head | row_of_tvm(mod)


class Watched(OpenClTarget):
    """``kernels``: the module that was built last, one PrimFunc for each kernel."""

    kernels: Any = None

    def build(self, mod: Any, notes: Any) -> Any:
        self.kernels = mod
        return super().build(mod, notes)

    def saved(self, executable: Any) -> None:
        """Always built."""


def row(target: OpenClTarget, policy: str, mod: Any, options: Any, run: bool) -> dict[str, Any]:
    """What the plan's module says, and what the program's kernels move and launch."""
    watched = Watched(target.tvm)
    start = time.process_time()
    plan = eqsat_layout.plan(mod, watched, **options)
    seconds = time.process_time() - start
    relax.analysis.well_formed(plan.module)
    made = eqsat_layout.compile(mod, watched, **options)
    launched = [launch.op for function in made.plan.functions for launch in function.launches]
    found = {
        "policy": policy,
        "launches": len(launched),
        **copies_of(made.plan),
        **moved_by(watched.kernels, target),
        "peak_bytes": made.plan.bytes,
        "gap": plan.gap,
        "seconds": seconds,
    }
    return found | (ran(mod, made) if run else {})


def moved_by(kernels: Any, target: OpenClTarget) -> dict[str, Any]:
    """Of all kernels of a program."""
    program = import_module(kernels, memories=target.memories)
    honest = ImageRoofline(target.profile)
    _, views = launched_and_views(kernels)
    moved, copied, violations, padded, free, modelled = Traffic(), 0.0, 0, 0, 0, 0.0
    for graph in program.graphs:
        for node in graph.nodes:
            if node.kind != "op":
                continue
            signature = program.signatures[node.signature]
            operands, results = signature.as_written
            typed = zip((*signature.operands, *signature.results), (*operands, *results), strict=True)
            violations += sum(ty is not None and target.holds(ty, fmt) is not None for ty, fmt in typed if fmt)
            if called(signature) in views:
                continue
            own = traffic_of(signature, operands, results, target.profile)
            moved += own
            modelled += honest.run(signature, operands, results)
            copied += own.images + own.buffers if signature.view is not None else 0.0
            if signature.computation is not None and is_padded(signature.computation):
                padded += 1
                free += not has_guards(signature.computation, operands, target.profile)
    return {
        "copied_bytes": copied,
        "image_bytes": moved.images,
        "buffer_bytes": moved.buffers,
        "modelled_seconds": modelled,
        "violations": violations,
        "padded": padded,
        "padded_for_free": free,
    }


def copies_of(plan: Any) -> dict[str, int]:
    """Launches that only copy: to or from images, and between layouts of buffers."""
    found = {"copies_of_scope": 0, "copies_of_layout": 0}
    for function in plan.functions:
        for launch in function.launches:
            if launch.op.startswith(("layout_rewrite", "permute_dims", "layout_transform")):
                memories = [plan.memories[a.memory] for a in launch.arguments if a.memory is not None]
                is_scope = any(memory.image is not None for memory in memories)
                found["copies_of_scope" if is_scope else "copies_of_layout"] += 1
    return found


def ran(mod: Any, made: Any) -> dict[str, Any]:
    """CPU seconds on the first OpenCL device, and the greatest difference from the CPU's results, relative."""
    inputs = list(flat(random_inputs(mod["main"], 1, 0)))
    device = made.on()
    device(*inputs)
    start = time.process_time()
    got = device(*inputs)
    seconds = time.process_time() - start
    return {"pocl_seconds": seconds, "error": difference_from_cpu(mod, inputs, got)}


def difference_from_cpu(mod: Any, inputs: Sequence[Any], got: Any) -> float:
    """The greatest difference between results and the CPU's, relative to the greatest number of each."""
    machine = relax.VirtualMachine(eqsat_layout.compile(mod), tvm.cpu())
    expected = machine["main"](*map(tvm.runtime.tensor, inputs))
    pairs = list(zip(leaves(got), leaves(expected), strict=True))
    return max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in pairs)


def leaves(value: Any) -> Iterator[Any]:
    """Arrays, one after the other."""
    if isinstance(value, np.ndarray) or hasattr(value, "numpy"):
        yield value if isinstance(value, np.ndarray) else value.numpy()
    else:
        for one in value:
            yield from leaves(one)


def row_of_tvm(mod: Any) -> dict[str, Any]:
    """What TVM's Relax passes for Adreno launch and copy, or why they don't."""
    start = time.process_time()
    try:
        planned = planned_by_tvm(mod)
    except (RuntimeError, ValueError, TypeError, AttributeError, AssertionError) as error:
        return {"policy": "TVM", "fails": str(error).strip().splitlines()[-1][:80]}
    seconds = time.process_time() - start
    moved = launches_of_tvm(planned).count("to_vdevice")
    layouts = copies_of_tvm(planned) - moved
    launched = len(launches_of_tvm(planned))
    return {
        **{"policy": "TVM", "launches": launched, "copies_of_scope": moved, "copies_of_layout": layouts},
        "seconds": seconds,
    }


def called(signature: Any) -> str:
    """The PrimFunc that an op calls."""
    arguments = getattr(signature.template, "args", ())
    return str(getattr(arguments[0], "name_hint", "")) if arguments else ""
