"""Targets: what a machine can do, schedules for it, and the build of a Relax module."""

from eqsat_layout.passes.prepare import prepare
from eqsat_layout.targets.cpu.costs import channel_blocks, default_costs
from eqsat_layout.targets.cpu.lower import lower
from eqsat_layout.targets.cpu.machine import CpuMachine, machine_of
from eqsat_layout.targets.cpu.target import axis_groups, normalize_target

__all__ = [
    "CpuMachine",
    "axis_groups",
    "channel_blocks",
    "default_costs",
    "lower",
    "machine_of",
    "normalize_target",
    "prepare",
]
