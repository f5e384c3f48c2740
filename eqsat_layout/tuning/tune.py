"""Tuning: the kernels that plans of a program are made of, measured and kept.

In: a module as ``compile`` takes it, and where to measure: this machine or a device elsewhere. Out: measured kernels in
the database, each as soon as it is known, and :class:`TuneReport`. The next ``compile`` plans with them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Unpack

from eqsat_layout.cost.database import Database
from eqsat_layout.cost.kernel_key import copy_key
from eqsat_layout.cost.measured import MeasuredCosts
from eqsat_layout.cost.measurements import KernelKey
from eqsat_layout.cost.model import CostModel
from eqsat_layout.errors import EqsatError, TargetError
from eqsat_layout.extract.region import Region
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.maps import Format, Formats
from eqsat_layout.notes import Notes, first_line
from eqsat_layout.planning.checked_options import TIME, check_objective
from eqsat_layout.planning.options import Options
from eqsat_layout.planning.plan_space import PlanSpace
from eqsat_layout.planning.source_module import as_module
from eqsat_layout.targets.registry import target as target_of
from eqsat_layout.tuning.interrupts import watched_interrupts
from eqsat_layout.tuning.jobs import Job, contractions, ops_without_job, plan_jobs
from eqsat_layout.tuning.measure import op_kernel, record_of
from eqsat_layout.tuning.probe import Here, KernelRunner
from eqsat_layout.tuning.ranks import rank_correlation
from eqsat_layout.tuning.remote import Remote

_DOUBT: Final = 0.8
"""What has not been measured may take that much less than it is modelled to."""
_WORTH: Final = 0.005
"""The least share of a plan's time that it is worth measuring kernels for."""


@dataclass(frozen=True)
class TuneState:
    """How far tuning is: ``done`` kernels of the ``total`` that are known to be wanted so far.

    ``kernel`` is the one that is measured now, "" where the next ones are looked for; ``seconds`` since the start.
    """

    done: int
    total: int
    kernel: str
    seconds: float


@dataclass(frozen=True)
class Failure:
    """A kernel that could not be built or run."""

    kernel: str
    reason: str


@dataclass(frozen=True)
class TuneReport:
    """What tuning did. ``known`` kernels were in the database before, ``left`` are those that time was too short for.

    ``cost`` is what one run of the best plan takes now, in seconds, ``cost_before`` what the plan takes that was best
    before, both by what is measured now; None where tuning was interrupted. ``modelled`` names the kernels of the best
    plan that have no measured time. ``costs`` is the cost model to plan with where the database is not the usual one or
    the device is elsewhere: ``compile(mod, target, cost_model=report.costs)``. ``ranks`` is the rank correlation of
    measured and modelled times of all contractions (Spearman 1904), ``layout_ranks`` its mean among layouts of one op.
    """

    machine: str
    measured: int
    known: int
    left: int
    failures: tuple[Failure, ...]
    seconds: float
    cost_before: float | None = None
    cost: float | None = None
    modelled: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    costs: CostModel | None = field(default=None, repr=False, compare=False)
    ranks: float | None = None
    layout_ranks: float | None = None


class TuneInterrupt(KeyboardInterrupt):
    """Tuning was interrupted. ``report`` says what was done until then, all of which is in the database."""

    def __init__(self, report: TuneReport):
        super().__init__(f"tuning was interrupted after {report.measured} kernels")
        self.report = report


def tune(
    mod: Any,
    target: Any = None,
    *,
    database: Database | str | Path | None = None,
    seconds: float | None = None,
    remote: Remote | None = None,
    progress: Callable[[TuneState], None] | None = None,
    **options: Unpack[Options],
) -> TuneReport:
    """Measures the kernels that decide how ``mod`` is best compiled for ``target``, each once per machine.

    First every contraction in every layout that it could have, also inside of other algorithms for it, those of the
    heaviest ops first; then whatever else the best plan is made of, and plans that could turn out to be better, until
    the best one is made of measured kernels. What the database holds is not measured again, so that a second run goes
    on where one was stopped.

    ``database``: or its directory; default is the one that ``compile`` reads. ``seconds``: start no kernel after that
    time. ``remote``: measure on that device. ``progress`` is called as every kernel starts. ``options`` are those of
    ``compile``. Raises :class:`TuneInterrupt` on Ctrl-C, :class:`~eqsat_layout.errors.TargetError` where the target
    can't be run or the device is lost, and what ``compile`` raises for a malformed module or option.
    """
    _check_seconds(seconds)
    if (objective := check_objective(options.get("objective"), options.get("cost_model"))) != TIME:
        raise EqsatError(f"tune measures seconds, which say nothing of {objective=}")
    approx = options.get("approx", True)
    runner: KernelRunner
    runner = Here(target_of(target, approx=approx)) if remote is None else remote.runner(target, approx=approx)
    mod, options = as_module(mod, options)  # after what may refuse the target: a model can take long
    own = database if isinstance(database, Database) else Database(database)
    with watched_interrupts() as check:
        bench = _Bench(own, runner, seconds, progress or (lambda _: None), check)
        try:
            try:
                return _tuned(PlanSpace(mod, runner.target, options), bench)
            except Exception:  # which may be what an interrupt has left: then it is an interrupt
                check()
                raise
        except KeyboardInterrupt as interrupt:
            raise TuneInterrupt(bench.report()) from interrupt


def _tuned(space: PlanSpace, bench: _Bench) -> TuneReport:
    costs = bench.costs(space)
    first = space.best(costs)
    goes_on = bench.run(contractions(space, costs))
    while True:
        costs = bench.costs(space)
        last = space.best(costs)
        jobs = plan_jobs(last, space, costs)
        bench.want(jobs)
        if not goes_on:
            break
        hoped = space.best(_Doubtful(costs, bench))
        is_worth_it = _cost(hoped) < _cost(last) * (1 - _WORTH)
        wanted = [*jobs, *plan_jobs(hoped, space, costs)] if is_worth_it else jobs
        if not bench.any_open(wanted):
            break
        goes_on = bench.run(wanted)
    modelled = [job.label for job in jobs if not bench.is_known(job.kernel.key)]
    ranks, layout_ranks = _ranks(space, bench)
    return bench.report(
        ranks=ranks,
        layout_ranks=layout_ranks,
        cost_before=space.cost_under(first, last),
        cost=_cost(last),
        modelled=(*modelled, *ops_without_job(last, space)),
        notes=tuple(space.notes),
        costs=costs,
    )


def _ranks(space: PlanSpace, bench: _Bench) -> tuple[float | None, float | None]:
    """How well the model without measurements ranks the contractions that were measured: all, and those of one op."""
    model, seconds_of = bench.unmeasured(space), bench.measured()
    by_op: list[list[tuple[float, float]]] = []
    for key in space.times:
        signature = space.signatures[key]
        pairs: list[tuple[float, float]] = []
        for candidate in space.offers.layouts.get(key, ()):
            operands, results = candidate.flow.operands, candidate.flow.results
            kernel = op_kernel(signature, operands, results)
            seconds = None if kernel is None else seconds_of(kernel.key)
            if seconds is not None:
                pairs.append((model.run(signature, operands, results), seconds))
        by_op.append(pairs)
    own = [r for pairs in by_op if (r := rank_correlation(pairs)) is not None]
    return rank_correlation([pair for pairs in by_op for pair in pairs]), sum(own) / len(own) if own else None


def _cost(plan: Sequence[Region]) -> float:
    return sum(region.solution.cost for region in plan)


class _Bench:
    """What is measured, what can't be and what is wanted; measures and stores."""

    def __init__(
        self,
        database: Database,
        runner: KernelRunner,
        limit: float | None,
        progress: Callable[[TuneState], None],
        check: Callable[[], None],
    ):
        """``check`` raises what interrupts have been swallowed."""
        self._database, self._runner, self._progress, self._check = database, runner, progress, check
        self._start = time.monotonic()
        self._limit = math.inf if limit is None else limit
        self._known = database.read()
        self._wanted: dict[KernelKey, bool] = {}
        self._measured: set[KernelKey] = set()
        self._failed: dict[KernelKey, Failure] = {}
        self._notes = Notes()

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._start

    @property
    def _machine(self) -> tuple[str, str]:
        """What records are found by: the machine's name, and the version of its kernels."""
        return self._runner.target.name, self._runner.target.version

    def costs(self, space: PlanSpace) -> MeasuredCosts:
        """Costs by all that is measured so far."""
        return MeasuredCosts(self._database.read(), self.unmeasured(space), *self._machine, space.signatures.values())

    def unmeasured(self, space: PlanSpace) -> CostModel:
        """Costs without any measured kernel."""
        if space.own_costs is not None:
            return space.own_costs
        return self._runner.target.modelled(self._database.read())

    def measured(self) -> Callable[[KernelKey], float | None]:
        """What a kernel was measured to take, as far as it is known by now."""
        known = self._database.read()

        def seconds(key: KernelKey) -> float | None:
            found = known.kernel(*self._machine, key)
            return None if found is None else found.seconds

        return seconds

    def is_known(self, key: KernelKey) -> bool:
        """It was measured, now or before."""
        return key in self._measured or self._was_known(key)

    def is_open(self, key: KernelKey) -> bool:
        """It could be measured and is not."""
        return key not in self._failed and not self.is_known(key)

    def any_open(self, jobs: Iterable[Job]) -> bool:
        """Some of the jobs could be done and are not."""
        return any(self.is_open(job.kernel.key) for job in jobs)

    def want(self, jobs: Iterable[Job]) -> None:
        """Notes what has to be known; the value says whether it was known from the start."""
        for job in jobs:
            if job.kernel.key not in self._wanted:
                self._wanted[job.kernel.key] = self._was_known(job.kernel.key)

    def run(self, jobs: Sequence[Job]) -> bool:
        """Measures what is open, in this order; False if time is up before it is done."""
        self.want(jobs)
        for job in jobs:
            if not self.is_open(job.kernel.key):
                continue
            if self.seconds >= self._limit:
                return False
            self._say(job.label)
            self._measure(job)
        self._say("")
        return True

    def report(self, **found: Any) -> TuneReport:
        """What was done until now, and what was ``found``."""
        return TuneReport(
            machine=self._runner.target.name,
            measured=len(self._measured),
            known=sum(self._wanted.values()),
            left=sum(map(self.is_open, self._wanted)),
            failures=tuple(self._failed.values()),
            seconds=self.seconds,
            **found,
        )

    def _measure(self, job: Job) -> None:
        try:
            timing = job.kernel.measure(self._runner)
        except TargetError:
            raise
        except EqsatError as error:
            self._check()
            self._failed[job.kernel.key] = Failure(job.label, str(error))
            return
        except Exception as error:  # a fault: it is told and logged, and does not end hours of measuring
            self._check()
            self._notes.fault(f"{job.label}: can't be measured", error)
            self._failed[job.kernel.key] = Failure(job.label, first_line(error))
            return
        self._database.add(record_of(job.kernel, timing, self._runner))
        self._measured.add(job.kernel.key)
        self._check()

    def _was_known(self, key: KernelKey) -> bool:
        return self._known.kernel(*self._machine, key) is not None

    def _say(self, kernel: str) -> None:
        done = sum(not self.is_open(key) for key in self._wanted)
        self._progress(TuneState(done, len(self._wanted), kernel, self.seconds))


class _Doubtful:
    """Costs that give what is not measured, but could be, the benefit of the doubt.

    The best plan under them is no dearer than any plan will turn out to be whose kernels take that much less than they
    are modelled to. So when it is no better than a plan of measured kernels, nothing that could matter is left out.
    """

    def __init__(self, costs: MeasuredCosts, bench: _Bench):
        self._costs, self._bench = costs, bench
        self._known: dict[tuple[str, Any], bool] = {}

    def run(self, op: Signature, operands: Formats, results: Formats, *, fused: frozenset[int] = frozenset()) -> float:
        """As measured, or less than modelled."""
        seconds = self._costs.run(op, operands, results, fused=fused)
        return seconds * self._doubt((op.key, (*operands, *results)), lambda: _key_of(op, operands, results))

    def convert(self, tensor: TensorType, source: Format, target: Format, *, fused: bool = False) -> float:
        """As measured, or less than modelled."""
        seconds = self._costs.convert(tensor, source, target, fused=fused)
        return seconds * self._doubt(("", (tensor, source, target)), lambda: copy_key(tensor, source, target))

    def constant(self, tensor: TensorType, fmt: Format) -> float:
        """As modelled: constants are laid out when compiling."""
        return self._costs.constant(tensor, fmt)

    def _doubt(self, question: tuple[str, Any], key_of: Callable[[], KernelKey | None]) -> float:
        if question not in self._known:
            key = key_of()
            self._known[question] = key is None or not self._bench.is_open(key)
        return 1.0 if self._known[question] else _DOUBT


def _key_of(op: Signature, operands: Formats, results: Formats) -> KernelKey | None:
    kernel = op_kernel(op, operands, results)
    return None if kernel is None else kernel.key


def _check_seconds(given: Any) -> None:
    if given is not None and (isinstance(given, bool) or not isinstance(given, int | float) or not given >= 0):
        raise EqsatError(f"seconds must be a number of seconds, got {given!r}")
