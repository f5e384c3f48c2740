"""Single kernels that decide plans: a card times them, and what it found fills the database that plans are made by.

In: a module, a target. Out: an item and a program by kernel, as :func:`eqsat_layout.tuning.tune.tune` would measure
them where the card is; and from the JSON that came back, the database's records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import tvm

from bench.cuda.bundles.data import Recipe
from bench.cuda.bundles.items import KERNEL, Item
from eqsat_layout.cost.database import Database, Snapshot, now
from eqsat_layout.cost.measurements import KernelKey, Measured
from eqsat_layout.errors import EqsatError
from eqsat_layout.planning.options import Options
from eqsat_layout.planning.plan_space import PlanSpace
from eqsat_layout.targets.cuda.host.executable import CudaProgram
from eqsat_layout.targets.cuda.target import CudaTarget
from eqsat_layout.targets.gpu.host.plan import HostFunction
from eqsat_layout.targets.lowering import lower
from eqsat_layout.tuning.jobs import Job, contractions, plan_jobs
from eqsat_layout.tuning.measure import KernelProgram, Timing

_SIMULATED: Final = "simulator"
"""Where a rehearsal's kernels ran: its seconds are those of that machine."""


def kernels(
    mod: tvm.IRModule,
    target: CudaTarget,
    options: Options,
    count: int,
    repeats: int,
    seen: set[Any],
    say: Callable[[str], None],
) -> Iterator[tuple[Item, CudaProgram]]:
    """Those of the best plan, then contractions in other layouts: ``count`` of each that are not ``seen``, what takes
    longest first. What can't be built is said."""
    space, costs = PlanSpace(mod, target, options), target.modelled(Snapshot())
    jobs = [*plan_jobs(space.best(costs), space, costs)[:count], *contractions(space, costs)[:count]]
    for job in jobs:
        key = (target.name, job.kernel.key)
        if key not in seen:
            seen.add(key)
            try:
                yield _item(f"kernel_{len(seen)}", job, target, repeats)
            except EqsatError as error:
                say(f"{job.label}: {error}")


def _item(name: str, job: Job, target: CudaTarget, repeats: int) -> tuple[Item, CudaProgram]:
    written = job.kernel.program()
    program = lower(written.module(), target)

    def repeated(function: HostFunction) -> HostFunction:
        return replace(function, launches=tuple(function.launches) * repeats)

    functions = tuple(function.changed(repeated) for function in program.plan.functions)
    said = {
        "kernel": job.label,
        "machine": target.name,
        "version": target.version,
        "computation": job.kernel.key.computation,
        "formats": list(job.kernel.key.formats),
        "repeats": repeats,
    }
    item = Item(name, KERNEL, [], _recipes(written), said=said)
    return item, replace(program, plan=replace(program.plan, functions=functions))


def _recipes(written: KernelProgram) -> list[Recipe]:
    return [_recipe(array, seed) for seed, array in enumerate(written.operands, 1)]


def _recipe(array: Any, seed: int) -> Recipe:
    """Positive numbers; zeros for what may be places."""
    is_place = np.issubdtype(array.dtype, np.integer) or array.dtype == np.bool_
    mean, deviation = (0.0, 0.0) if is_place else (1.0, 0.25)
    return Recipe(array.shape, str(array.dtype), seed, mean=mean, deviation=deviation)


def records_of(result: Mapping[str, Any]) -> list[Measured]:
    """What a bundle's JSON says of kernels. :class:`EqsatError` where another card ran them than they are for."""
    rows = [row for row in result["steps"].get("kernels", ()) if "seconds" in row]
    place = f" {_SIMULATED}" if result["simulated"] else ""
    for row in rows:
        if not place and result["model"] not in row["device"].lower().replace(" ", ""):
            raise EqsatError(f"the bundle is for a card {result['model']!r}, and was measured on a {row['device']!r}")
    return [_record(row, place) for row in rows]


def _record(row: Mapping[str, Any], place: str) -> Measured:
    timing = Timing.of(row["all"])
    key = KernelKey(row["computation"], tuple(row["formats"]))
    machine = row["machine"] + place
    return Measured(machine, key, timing.seconds, timing.spread, timing.runs, row["version"], now())


def fill(result: Mapping[str, Any], database: Database, version: str) -> str:
    """Adds the records to the database, from which the next plan for that card takes them; says how many there are."""
    records = records_of(result)
    database.add(*records)
    machines = ", ".join(sorted({record.machine for record in records})) or "no machine"
    said = f"{len(records)} kernels of {machines}: {database.path}"
    other = sum(record.version != version for record in records)
    return f"{said}; {other} of them are of another version of the package, which plans don't use" if other else said
