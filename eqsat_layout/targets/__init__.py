"""Targets: what a machine can do, schedules for it, and the build of a Relax module."""

from eqsat_layout.targets.base import Machine, axis_groups, machine_of, normalize_target
from eqsat_layout.targets.costs import channel_blocks, default_costs
from eqsat_layout.targets.lower import lower
from eqsat_layout.targets.prepare import prepare

__all__ = [
    "Machine",
    "axis_groups",
    "channel_blocks",
    "default_costs",
    "lower",
    "machine_of",
    "normalize_target",
    "prepare",
]
