"""The kernels that plans are made of, as jobs for tuning.

In: the plans of a program, and costs. Out: :class:`Job` after job, what matters most first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from eqsat_layout.cost.measurements import KernelKey
from eqsat_layout.cost.model import CostModel
from eqsat_layout.extract.region import Region
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.graph.steps import Convert, Run
from eqsat_layout.maps import Format, Formats
from eqsat_layout.planning.plan_space import PlanSpace
from eqsat_layout.report.layout_names import LayoutNames
from eqsat_layout.tuning.measure import MeasurableKernel, copy_kernel, op_kernel


@dataclass(frozen=True)
class Job:
    """A kernel to be measured; ``label``: what a person knows it by."""

    kernel: MeasurableKernel
    label: str


def contractions(space: PlanSpace, costs: CostModel) -> list[Job]:
    """Every contraction in every layout: the heaviest ops first, of one op what looks best first."""
    weighed: list[tuple[float, float, int, Job]] = []
    for key, times in space.times.items():
        signature = space.signatures[key]
        own: list[tuple[float, Job]] = []
        for candidate in space.offers.layouts.get(key, ()):
            flow = candidate.flow
            job = _op_job(signature, flow.operands, flow.results)
            if job is not None:
                own.append((costs.run(signature, flow.operands, flow.results), job))
        heaviness = times * min((seconds for seconds, _ in own), default=0.0)
        weighed += [(-heaviness, seconds, len(weighed) + i, job) for i, (seconds, job) in enumerate(own)]
    return [job for *_, job in sorted(weighed, key=lambda entry: entry[:3])]


def plan_jobs(plan: Iterable[Region], space: PlanSpace, costs: CostModel) -> list[Job]:
    """The kernels of a plan, what takes most of its time first."""
    seconds: dict[KernelKey, float] = {}
    times: Counter[KernelKey] = Counter()
    jobs: dict[KernelKey, Job] = {}
    for step in (step for region in plan for step in region.steps.steps):
        job: Job | None = None
        taken = 0.0
        if isinstance(step, Run):
            signature, flow = space.signatures[step.signature], step.flow
            operands, results = (flow.operands, flow.results) if flow is not None else signature.as_written
            job = _op_job(signature, operands, results)
            taken = 0.0 if job is None else costs.run(signature, operands, results)
        elif isinstance(step, Convert) and not step.before.serves_as(step.after):
            job = _copy_job(step.type, step.before, step.after)
            taken = costs.convert(step.type, step.before, step.after)
        if job is not None:
            jobs.setdefault(job.kernel.key, job)
            seconds[job.kernel.key] = taken
            times[job.kernel.key] += 1
    return sorted(jobs.values(), key=lambda job: -seconds[job.kernel.key] * times[job.kernel.key])


def ops_without_job(plan: Sequence[Region], space: PlanSpace) -> Iterator[str]:
    """The ops of a plan that can't be measured: those of symbolic sizes, and what is not understood."""
    steps = [step for region in plan for step in region.steps.steps if isinstance(step, Run)]
    signatures = [space.signatures[key] for key in dict.fromkeys(step.signature for step in steps)]
    yield from (s.name for s in signatures if not s.parts and _op_job(s, *s.as_written) is None)


def _op_job(signature: Signature, operands: Formats, results: Formats) -> Job | None:
    kernel = op_kernel(signature, operands, results)
    if kernel is None:
        return None
    shapes = [_sizes(t) for t in signature.results if t is not None]
    layouts = map(LayoutNames.of([signature]), results)
    label = f"{signature.name.removeprefix('relax.')} {' '.join(shapes)} {' '.join(layouts)}"
    return Job(kernel, label)


def _copy_job(tensor: TensorType, before: Format, after: Format) -> Job | None:
    kernel = copy_kernel(tensor, before, after)
    names = LayoutNames()
    label = f"copy {_sizes(tensor)} {names(before)} to {names(after)}"
    return None if kernel is None else Job(kernel, label)


def _sizes(tensor: TensorType) -> str:
    return "x".join(map(str, tensor.shape))
