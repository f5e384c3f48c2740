"""From calls to kernels on a CPU: which calls become one, and their schedules.

In: a legalised Relax module and the machine. Out: the module with one PrimFunc per kernel, then scheduled. All that
shapes the kernels is imported from here, so that this module stands for their version.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import tvm

from eqsat_layout.notes import Notes
from eqsat_layout.passes.denormals import without_denormals
from eqsat_layout.passes.fuse import fuse
from eqsat_layout.passes.matrix_literals import with_literals
from eqsat_layout.passes.rounding import ROUNDED
from eqsat_layout.passes.scalar_literals import with_floats, with_integers
from eqsat_layout.passes.unit_views import read_through_views
from eqsat_layout.passes.wide_floats import in_single_precision
from eqsat_layout.targets.cpu.build import Build
from eqsat_layout.targets.cpu.chains.join_calls import join_chains
from eqsat_layout.targets.cpu.chains.maxima_of_bytes import maxima_of_bytes
from eqsat_layout.targets.cpu.chains.read_often import keep_what_is_read_often
from eqsat_layout.targets.cpu.chains.widened_late import widened_late
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.places.concats_in_place import concat_in_place
from eqsat_layout.targets.cpu.schedule import schedule_module
from eqsat_layout.targets.schedules.kept_quotients import keep_quotients
from eqsat_layout.targets.schedules.math_functions import LARGEST_POWER
from eqsat_layout.tir.structural import with_primfuncs

__all__ = ["Build", "join_calls", "schedule_module"]


def join_calls(mod: tvm.IRModule, machine: CpuMachine, notes: Notes, build: Build | None = None) -> tvm.IRModule:
    """TVM's groups first, then nests of several of them whose working set stays in the L2 cache.

    ``build``, if any, makes those groups that stay as they are while the others are looked at. Kernels write their
    parts of a concat in place.
    """
    if not machine.is_exact:
        mod = without_denormals(mod)

    def annotated(mod: tvm.IRModule) -> tvm.IRModule:
        return keep_what_is_read_often(widened_late(mod, machine.l2_working_set))

    groups = fuse(with_integers(mod), notes, annotated=annotated, rounded=ROUNDED)
    grouped = with_literals(with_floats(in_single_precision(groups), 0 if machine.is_exact else LARGEST_POWER))
    grouped = read_through_views(with_primfuncs(grouped, lambda _, func: maxima_of_bytes(func)))
    if not machine.is_exact:
        grouped = keep_quotients(grouped)
    with nullcontext(_mute) if build is None else build.ahead(grouped, notes) as kept:
        joined = join_chains(grouped, machine, notes, kept)
    return concat_in_place(joined)


def _mute(_: Any) -> None:
    pass
