"""The rows of ``bench.opencl.programs``: one plan each, compiled, with what its kernels move by the model.

In: a network and a target. Out: a dictionary by plan: ours, those of policies, the one that moves least, TVM's.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tvm import relax

from bench.beside_cpu import difference, on_cpu
from bench.opencl.engines import ENGINES
from bench.opencl.tvm_pipeline import BUFFERS, TEXTURES, FailsError, made_by_tvm
from eqsat_layout.cost.assumed import AssumedSizes
from eqsat_layout.cost.copies import COPY, FewestCopies
from eqsat_layout.errors import TargetError
from eqsat_layout.extract.selection import Selection
from eqsat_layout.graph.importer import import_module
from eqsat_layout.notes import Notes
from eqsat_layout.passes.scalar_literals import with_integers
from eqsat_layout.planning.choice import Choice
from eqsat_layout.planning.pipeline import choose
from eqsat_layout.planning.plan_space import cost_under
from eqsat_layout.planning.summary import summarise
from eqsat_layout.targets.gpu.join import joined_kernels
from eqsat_layout.targets.gpu.views import launched_and_views
from eqsat_layout.targets.lowering import lower, prepared
from eqsat_layout.targets.opencl.costs import ImageRoofline
from eqsat_layout.targets.opencl.free_padding import has_guards, is_padded
from eqsat_layout.targets.opencl.policies import POLICIES
from eqsat_layout.targets.opencl.target import OpenClTarget
from eqsat_layout.targets.opencl.traffic import Traffic, traffic_of
from eqsat_layout.targets.registry import target as target_of
from eqsat_layout.validation.inputs import arrays_in, random_inputs

OURS = "ours"
LEAST = "ours, for traffic"
"""The plan that moves least of all as the planner counts, which is before calls are joined to kernels."""
FEWEST = "ours, for copies"
"""The fastest of the plans with the fewest kernels that only copy, as the planner counts."""
COPIES = ("layout_rewrite", "permute_dims", "layout_transform", "te_layout_transform", "transpose")
"""How the names of kernels begin that only copy, ours and TVM's."""
TVM, TVM_BUFFERS = "TVM textures", "TVM buffers"
NAMES = (OURS, *(p.name for p in POLICIES), *(e.policy.name for e in ENGINES), LEAST, FEWEST, TVM, TVM_BUFFERS)
"""Of all rows."""


def rows(
    head: dict[str, Any], make: Callable[[], Any], run: bool, wanted: Collection[str], longest: int
) -> Iterator[dict[str, Any]]:
    """One row for each of the names ``wanted``; our plan is run on PoCL if ``run``, and what TVM makes gets ``longest``
    seconds of processor time."""
    if not wanted:
        return
    mod, target = make(), of_profile(head["profile"])
    if OURS in wanted:
        yield head | row(target, OURS, mod, {}, Trial(mod) if run else None)
    for policy in POLICIES:
        if policy.name in wanted:
            yield head | row(target, policy.name, mod, {"cost_model": policy.costs(target)}, None)
    for engine in ENGINES:
        if engine.policy.name in wanted:
            costs = engine.policy.costs(target)
            yield head | row(target, engine.policy.name, mod, {"cost_model": costs}, None, engine.annotated)
    for name, objective in ((LEAST, "traffic"), (FEWEST, "copies")):
        if name in wanted:
            yield head | row(target, name, mod, {"objective": objective}, None)
    for name, tag in ((TVM, TEXTURES), (TVM_BUFFERS, BUFFERS)):
        if name in wanted:
            yield head | {"policy": name} | row_of_tvm(make, head["profile"], tag, longest)


def of_profile(name: str) -> OpenClTarget:
    """The target of a profile."""
    target = target_of({"kind": "opencl", "profile": name})
    assert isinstance(target, OpenClTarget)
    return target


class Watched(OpenClTarget):
    """``last``: the module that was built last, one PrimFunc for each kernel. ``annotated``: what TVM is told of
    PrimFuncs before it groups them; else as it is for us."""

    last: Any = None
    annotated: Any = None

    def join(self, mod: Any, notes: Any) -> Any:
        return joined_kernels(
            with_integers(mod), notes, lambda scope: relax.VDevice(self.tvm, 0, scope), self.annotated
        )

    def build(self, mod: Any, notes: Any) -> Any:
        self.last = mod
        return super().build(mod, notes)

    def saved(self, executable: Any) -> None:
        """Always built."""


def row(
    target: OpenClTarget, policy: str, mod: Any, options: Any, trial: Trial | None, annotated: Any = None
) -> dict[str, Any]:
    """What the plan's module says, and what the program's kernels move and launch."""
    watched, notes = Watched(target.tvm), Notes()
    watched.annotated = annotated
    plain = prepared(mod, notes=notes)
    start = time.process_time()
    choice = choose(plain, watched, options, build=lambda module: lower(module, watched, notes=notes))
    seconds = time.process_time() - start
    plan = summarise(choice)
    relax.analysis.well_formed(plan.module)
    made = choice.executable
    launched = [launch.op for function in made.plan.functions for launch in function.launches]
    found = {
        "policy": policy,
        "launches": len(launched),
        **copies_of(made.plan),
        **moved_by(watched.last, target),
        "planned_bytes": planned_bytes(choice, target),
        "planned_copies": planned_copies(choice),
        "peak_bytes": made.plan.bytes,
        "gap": plan.gap,
        "seconds": seconds,
    }
    return found | (trial.ran(made) if trial else {})


def planned_bytes(choice: Choice, target: OpenClTarget) -> float:
    """What the planner counts for the plan, which is before calls are joined to kernels; that of :data:`LEAST` is the
    optimum, so no other plan of the same network has less."""
    traffic = target.traffic(ImageRoofline(target.profile))
    return planned(choice, traffic) * target.profile.memory


def planned_copies(choice: Choice) -> int:
    """Kernels that only copy: those of :data:`FEWEST` are the optimum. Built ones are told by
    their names, which say nothing of a slice of the program's own that is laid out anew on the way."""
    return int(planned(choice, FewestCopies(Nothing())) / COPY)


def planned(choice: Choice, costs: Any) -> float:
    """What the plan costs under other costs than it was made by."""
    assumed, seconds = AssumedSizes(costs, choice.search.assumed), 0.0
    for region in choice.regions:
        own = region.selection
        seconds += cost_under(region, Selection(own.tensors, choice.search.program.signatures, assumed, own.fusion))
    return seconds


class Nothing:
    """A cost model."""

    def run(self, *op: Any, fused: frozenset[int] = frozenset()) -> float:
        return 0.0

    def convert(self, *tensor: Any, fused: bool = False) -> float:
        return 0.0

    def constant(self, *tensor: Any) -> float:
        return 0.0


class BuiltCosts(ImageRoofline):
    """Of whole kernels: how what stays inside of them lies is not known, and every vector is taken to be full."""

    def share(self, computation: Any, operands: Any, results: Any) -> float:
        return 1.0

    def of(self, signature: Any) -> float:
        """Seconds of a kernel, which may only copy."""
        operands, results = signature.as_written
        if signature.parts and None not in (*operands[:1], *results):
            return self.convert(signature.results[0], operands[0], results[0])
        return self.run(signature, operands, results)


def moved_by(kernels: Any, target: OpenClTarget) -> dict[str, Any]:
    """Of all kernels of a program."""
    program = import_module(kernels, memories=target.memories)
    costs = BuiltCosts(target.profile)
    _, views = launched_and_views(kernels)
    all_kept = replace(target.profile, images_in_l1=True, buffers_in_l1=True)
    moved, written, kept, copied = Traffic(), Traffic(), Traffic(), [0.0, 0.0]
    violations, padded, free, modelled = 0, 0, 0, 0.0
    for graph in program.graphs:
        for node in graph.nodes:
            if node.kind != "op":
                continue
            signature = program.signatures[node.signature]
            operands, results = signature.as_written
            typed = zip((*signature.operands, *signature.results), (*operands, *results), strict=True)
            violations += sum(ty is not None and target.holds(ty, fmt) is not None for ty, fmt in typed if fmt)
            if called(signature) in ("", *views):
                continue  # nothing is launched
            own = traffic_of(signature, operands, results, target.profile)
            moved += own
            written += traffic_of(signature, (None,) * len(operands), results, target.profile)
            kept += traffic_of(signature, operands, results, all_kept)
            modelled += costs.of(signature)
            if signature.view is not None:
                copied[own.images == 0] += own.beyond
            if signature.computation is not None and is_padded(signature.computation):
                padded += 1
                free += not has_guards(signature.computation, operands, target.profile)
    return {
        "bytes_copied_of_scope": copied[0],
        "bytes_copied_of_layout": copied[1],
        "image_bytes": moved.images,
        "image_bytes_written": written.images,
        "buffer_bytes": moved.buffers,
        "buffer_bytes_written": written.buffers,
        "kept_bytes": kept.beyond,
        "once_bytes": moved.memory,
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
            if launch.op.startswith(COPIES):
                memories = [plan.memories[a.memory] for a in launch.arguments if a.memory is not None]
                is_scope = any(memory.image is not None for memory in memories)
                found["copies_of_scope" if is_scope else "copies_of_layout"] += 1
    return found


class Trial:
    """Inputs of a module, and what the CPU makes of them."""

    def __init__(self, mod: Any) -> None:
        self.inputs = list(arrays_in(random_inputs(mod["main"], 1, 0)))
        self.expected = on_cpu(mod, self.inputs)

    def ran(self, made: Any) -> dict[str, Any]:
        """CPU seconds on the first OpenCL device, and the greatest difference from the CPU's results, relative."""
        device = made.on()
        device(*self.inputs)
        start = time.process_time()
        got = device(*self.inputs)
        seconds = time.process_time() - start
        return {"pocl_seconds": seconds, "error": difference(got, self.expected)}


def row_of_tvm(make: Callable[[], Any], profile: str, tag: str, longest: int) -> dict[str, Any]:
    """What TVM's own pipeline makes of a module."""
    found = in_a_process(longest, made_row_of_tvm, make, profile, tag)
    return {"fails": found} if isinstance(found, str) else found


def in_a_process(longest: int, work: Callable[..., Any], *given: Any) -> Any:
    """What ``work`` gives in a process of its own, or in words that it ended: nothing else stops TVM."""
    context, before = multiprocessing.get_context("spawn"), _of_children()
    with (
        ProcessPoolExecutor(1, context, initializer=limited, initargs=(longest,)) as workers,
        suppress(BrokenProcessPool),
    ):
        return workers.submit(work, *given).result()
    taken = _of_children() - before
    return f"{'not done' if taken > longest - 1 else 'the process ended'} after {taken:.0f} s of processor time"


def _of_children() -> float:
    """Seconds of processor time of processes that have ended."""
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime


def limited(longest: int) -> None:
    """This process ends when it has had so many seconds of processor time."""
    resource.setrlimit(resource.RLIMIT_CPU, (longest, longest))


def made_row_of_tvm(make: Callable[[], Any], profile: str, tag: str) -> dict[str, Any]:
    """What TVM's own pipeline launches, copies and moves by the same model, or where it fails."""
    start = time.process_time()
    try:
        made = made_by_tvm(make(), tag)
        seconds = time.process_time() - start
        program = made.program()
    except (FailsError, TargetError) as error:
        return {"fails": str(error)}
    return {
        "launches": sum(len(function.launches) for function in program.plan.functions),
        **copies_of(program.plan),
        **moved_by(made.kernels, of_profile(profile)),
        "peak_bytes": program.plan.bytes,
        "seconds": seconds,
    }


def called(signature: Any) -> str:
    """The PrimFunc that an op calls."""
    arguments = getattr(signature.template, "args", ())
    return str(getattr(arguments[0], "name_hint", "")) if arguments else ""
