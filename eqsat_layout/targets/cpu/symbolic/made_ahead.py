"""Convolutions whose windows have unknown sizes, behind what makes their padded data.

In: an unscheduled PrimFunc. Out: two, the second of which reads what the first one makes, and the way back from their
schedules. Parts of results need overlapping parts of the data, of sizes that nothing is known of: these are made once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eqsat_layout.errors import Refused
from eqsat_layout.targets.schedules.stages import new_schedule, stages_of
from eqsat_layout.tir.blocks import accesses_of, block_of, function_of_parts, function_over, statements_of


@dataclass(frozen=True)
class MadeAhead:
    """``whole``, which allocates ``between``: what ``first`` makes for ``rest``; both have its parameters and these."""

    whole: Any
    between: Sequence[Any]
    first: Any
    rest: Any

    def joined(self, first: Any, rest: Any) -> Any:
        """One function of both as they are scheduled."""
        return function_of_parts(self.whole, [(self.first, first), (self.rest, rest)], self.between)


def made_ahead(func: Any) -> MadeAhead:
    """Refused where there is nothing in front of such a convolution, or what is needs to be asked for by others."""
    sch = new_schedule(func)
    stages = stages_of(sch)
    number = next((n for n, stage in enumerate(stages) if stage.has_open_window), 0)
    if not number:
        raise Refused("nothing is made for a window of unknown size")
    whole = sch.mod["main"]
    statements = statements_of(whole)
    used = [
        [{buffer for buffer, _ in accesses_of(block_of(one))} for one in own]
        for own in (statements[:number], statements[number:])
    ]
    before, after = (set().union(*own) for own in used)
    allocated = list(whole.body.block.alloc_buffers)
    between = [buffer for buffer in allocated if buffer in before and buffer in after]
    params = [*whole.params, *between]
    first, rest = (
        function_over(whole, own, [one for one in allocated if one in mine and one not in between], params)
        for own, mine in ((statements[:number], before), (statements[number:], after))
    )
    return MadeAhead(whole, between, first, rest)
