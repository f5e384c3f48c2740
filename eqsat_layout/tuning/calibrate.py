"""The constants of a target's roofline, measured on this machine through the project's own kernels.

In: a target that this machine can run. Out: :class:`MachineConstants`, kept in the database.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eqsat_layout.cost.database import Database, now
from eqsat_layout.cost.measurements import Constants
from eqsat_layout.targets.protocol import Progress, Target, Workload
from eqsat_layout.targets.registry import target as target_of
from eqsat_layout.tuning.probe import Here, Probe

_ROUNDS, _QUICK_ROUNDS = 25, 5


@dataclass(frozen=True)
class MachineConstants:
    """``values``: fields of the target's roofline as measured, in SI units, with all threads at work.

    ``launch`` is what a kernel takes that has next to nothing to do, starting its threads included.
    """

    values: dict[str, float]


def calibrate(target: Any = None, *, quick: bool = False, progress: Progress | None = None) -> MachineConstants:
    """Measures for about half a minute, ``quick`` for a few seconds. The least of rounds of all probes:
    a busy machine makes none faster.

    Raises :class:`~eqsat_layout.errors.TargetError` for a target that this machine can't run.
    """
    place = Here(target_of(target))
    say = progress or (lambda _: None)
    workloads = place.target.probes(quick)
    probes: list[Probe] = []
    for workload in workloads:
        say(workload.name)
        probes.append(Probe.of(workload, place))
    seconds = _interleaved(probes, _QUICK_ROUNDS if quick else _ROUNDS, say)
    return MachineConstants(_constants(workloads, seconds))


def store(database: Database, constants: MachineConstants, target: Target) -> None:
    """Puts the constants into the database, in place of older ones; :class:`EqsatError` where it can't be written."""
    database.add(Constants(target.name, constants.values, target.version, now()))
    database.compact()


def _constants(workloads: Sequence[Workload], seconds: Sequence[float]) -> dict[str, float]:
    """Seconds of what does no work, and rates of the rest less those."""
    found: dict[str, list[float]] = {}
    launch = 0.0
    for workload, own in zip(workloads, seconds, strict=True):
        if not workload.work:
            launch = own
        rate = workload.work / max(own - launch, own / 2) if workload.work else own
        found.setdefault(workload.constant, []).append(rate)
    best = {workload.constant: workload.is_best for workload in workloads}
    return {name: max(rates) if best[name] else statistics.median(rates) for name, rates in found.items()}


def _interleaved(probes: Sequence[Probe], rounds: int, say: Progress) -> list[float]:
    """The least seconds of each."""
    seconds: list[list[float]] = [[] for _ in probes]
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for own, probe in zip(seconds, probes, strict=True):
            own.append(probe.run())
    return [min(own) for own in seconds]
