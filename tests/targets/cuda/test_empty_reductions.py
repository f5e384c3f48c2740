"""Reductions over nothing, on the simulator: memory that nobody wrote came back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from targets.cuda.simulating import compiled
from targets.empty_reductions import check_empty_reduction, each_body

from eqsat_layout.soundness.cuda.driver import simulated
from eqsat_layout.validation.inputs import flat


@each_body
def test_a_kernel_of_one_work_item_begins_over_nothing(body: str) -> None:
    def run(mod: Any, inputs: Sequence[Any]) -> list[Any]:
        return list(flat(simulated(compiled(mod), 2)(*inputs)))

    check_empty_reduction(run, body)
