"""Reductions over nothing, on PoCL: memory that nobody wrote came back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from targets.empty_reductions import check_empty_reduction, each_body
from targets.opencl.running import compiled, results


@each_body
def test_a_kernel_of_one_work_item_begins_over_nothing(body: str) -> None:
    def run(mod: Any, inputs: Sequence[Any]) -> list[Any]:
        return results(compiled(mod), inputs)

    check_empty_reduction(run, body)
