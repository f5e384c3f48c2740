"""Stages inlined into their readers.

In: a schedule, and which stages go where. Out: a schedule with fewer stages; what TVM refuses stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import Any

from eqsat_layout.targets.schedules import lookups
from eqsat_layout.targets.schedules.attempts import tried
from eqsat_layout.targets.schedules.epilogues import is_parameter
from eqsat_layout.targets.schedules.stages import ROOT, Stage, stage_of


def inline_producers(sch: Any, may_inline: Callable[[Stage, Sequence[Stage]], bool]) -> Any:
    """Elementwise stages in the place of their readers' loads, where ``may_inline(stage, readers)``."""
    for block in lookups.get_child_blocks(sch, lookups.get_sblock(sch, ROOT)):
        stage = stage_of(sch, block)
        if not stage.simple or stage.is_reduction or is_parameter(sch, stage):
            continue
        readers = [stage_of(sch, reader) for reader in lookups.get_consumers(sch, block)]
        if readers and may_inline(stage, readers):
            sch = tried(sch, methodcaller("compute_inline", block)) or sch
    return sch
