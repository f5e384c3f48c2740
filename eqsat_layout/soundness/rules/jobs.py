"""Fuzzing in several processes.

In: rule files and an effort. Out: one :class:`FuzzReport`, merged. Each process has a seed of its own, derived from the
one that is given, and makes its own models; one that dies is reported, with its seed.
"""

from __future__ import annotations

import multiprocessing
import queue
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from eqsat_layout.errors import EqsatError, RuleError
from eqsat_layout.soundness.rules.fuzzer import Progress, fuzz_rules
from eqsat_layout.soundness.rules.reports import Effort, FuzzReport, RuleReport, merged_reports
from eqsat_layout.soundness.rules.rule_base import read_rule_base
from eqsat_layout.system.sigint import start_without_sigint

_STRIDE = 7919
"""Between the seeds of processes."""


def fuzz_in_processes(
    paths: Sequence[Path],
    effort: Effort,
    seed: int = 0,
    only: Sequence[Path] | None = None,
    jobs: int = 1,
    progress: Progress = lambda found, share: None,
) -> FuzzReport:
    """:func:`fuzz_rules` in ``jobs`` processes; reports on the rules of the files ``only``, by default all.

    Raises what :func:`fuzz_rules` raises, and :class:`EqsatError` if a process dies.
    """
    chosen = {str(path) for path in (paths if only is None else only)}
    _check_there_are_rules(paths, chosen)
    if jobs == 1:
        return fuzz_rules(paths, effort, seed, lambda rule: rule.file in chosen, progress)
    context = multiprocessing.get_context("spawn")
    events: Any = context.Queue()
    share = replace(effort, cases=-(-effort.cases // jobs), models=-(-effort.models // jobs))
    work = [(list(paths), share, seed + j * _STRIDE, chosen, j, events) for j in range(jobs)]
    workers = [context.Process(target=_work, args=arguments, daemon=True) for arguments in work]
    for worker in workers:
        start_without_sigint(worker)
    try:
        return _merged(_collect(workers, events, seed, progress), seed)
    finally:
        for worker in workers:
            worker.terminate()


def _check_there_are_rules(paths: Sequence[Path], chosen: set[str]) -> None:
    """:class:`RuleError` where there is nothing to fuzz: a file of declarations alone may stand beside others."""
    base = read_rule_base(paths)
    if not chosen & {*(rule.file for rule in base.rules), *(one.file for one in base.unread)}:
        raise RuleError(
            f"{', '.join(sorted(chosen))}: there is no rule in it" if chosen else "there is no rule to fuzz"
        )


def _work(paths: list[Path], effort: Effort, seed: int, chosen: set[str], job: int, events: Any) -> None:
    try:
        report = fuzz_rules(
            paths,
            effort,
            seed,
            lambda rule: rule.file in chosen,
            lambda found, share: events.put((job, "progress", (found, share))),
        )
        events.put((job, "report", report))
    except EqsatError as error:
        events.put((job, "error", error))


def _collect(workers: Sequence[Any], events: Any, seed: int, progress: Progress) -> list[FuzzReport]:
    state: dict[int, tuple[FuzzReport, float]] = {}
    reports: dict[int, FuzzReport] = {}
    while len(reports) < len(workers):
        try:
            job, kind, content = events.get(timeout=1.0)
        except queue.Empty:
            for job, worker in enumerate(workers):
                if job not in reports and not worker.is_alive():
                    raise EqsatError(
                        f"a process of the fuzzer died with code {worker.exitcode}; "
                        f"to see it, run with --jobs 1 --seed {seed + job * _STRIDE}"
                    ) from None
            continue
        if kind == "error":
            raise content
        if kind == "report":
            reports[job] = content
        else:
            state[job] = content
            share = sum(share for _, share in state.values()) / len(workers)
            progress(_merged([found for found, _ in state.values()], seed), share)
    return [reports[job] for job in sorted(reports)]


def _merged(reports: Sequence[FuzzReport], seed: int) -> FuzzReport:
    rules = [_merged_rule(of_one) for of_one in zip(*(report.rules for report in reports), strict=True)]
    return replace(merged_reports(reports, rules, max(report.seconds for report in reports)), seed=seed)


def _merged_rule(reports: Sequence[RuleReport]) -> RuleReport:
    found = [r.counterexample for r in reports if r.counterexample is not None]
    instances = sum(r.instances for r in reports)
    trouble = [r.trouble for r in reports if r.trouble and not (instances and not r.instances)]
    return RuleReport(
        reports[0].rule,
        sum(r.matches for r in reports),
        instances,
        sum(r.failures for r in reports),
        min(found, key=lambda c: c.size, default=None),
        trouble[0] if trouble else "",
        tuple(line for line in reports[0].remarks if all(line in r.remarks for r in reports)),
        models=sum(r.models for r in reports),
    )
