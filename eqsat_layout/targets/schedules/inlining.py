"""Stages inlined into their readers.

In: a schedule, and which stages go where. Out: a schedule with fewer stages; what TVM refuses stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import Any, Final

from tvm import tirx

from eqsat_layout.targets.schedules import lookups
from eqsat_layout.targets.schedules.attempts import tried
from eqsat_layout.targets.schedules.epilogues import epilogue_of, is_parameter
from eqsat_layout.targets.schedules.stages import ROOT, Stage, stage_of
from eqsat_layout.tir.structural import nodes_of

_LARGEST_BODY: Final = 64
"""Loads and calls of a block beyond which nothing more is inlined: registers spill."""
_MOST_DIVISIONS: Final = 64


def inline_producers(sch: Any, may_inline: Callable[[Stage, Sequence[Stage]], bool]) -> Any:
    """Elementwise stages in the place of their readers' loads, where ``may_inline(stage, readers)``."""
    for block in lookups.get_child_blocks(sch, lookups.get_sblock(sch, ROOT)):
        stage = stage_of(sch, block)
        if not stage.simple or stage.is_reduction or is_parameter(sch, stage):
            continue
        if has_long_indices(lookups.get(sch, block).body):
            continue
        readers = [stage_of(sch, reader) for reader in lookups.get_consumers(sch, block)]
        if readers and may_inline(stage, readers) and not _is_made_once(sch, stage, readers):
            sch = tried(sch, methodcaller("compute_inline", block)) or sch
    return sch


def stays_small(stage: Stage, reader: Stage) -> bool:
    """The reader with the stage in the place of its loads. What reads a value twice doubles its expression."""
    reads = [load for load in reader.loads if load.buffer.same_as(stage.write.buffer)]
    return reader.size + len(reads) * stage.size <= _LARGEST_BODY


def _is_made_once(sch: Any, stage: Stage, readers: Sequence[Stage]) -> bool:
    """What several stages read, one of them for rows of it, runs on the accumulators of the reduction that it reads."""
    if len(readers) < 2 or not any(reader.is_reduction for reader in readers):
        return False
    producers = [stage_of(sch, block) for block in lookups.get_producers(sch, stage.block)]
    epilogues = [epilogue_of(sch, producer) for producer in producers]
    return any(epilogue is not None and epilogue.name == stage.name for epilogue in epilogues)


def has_long_indices(statement: Any) -> bool:
    """Whether a stage is not inlined for the divisions in its indices.

    Reshapes between transposes multiply them, one in the other: after ten the analyzer works for minutes at one index,
    and the code is as long.
    """
    return len(nodes_of(statement, tirx.FloorDiv, tirx.FloorMod)) > _MOST_DIVISIONS
