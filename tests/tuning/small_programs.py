"""Programs with few kernels, and what a database holds of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tvm
from programs import constant, program
from tvm.relax import op

from eqsat_layout.cost.database import Database
from eqsat_layout.planning.plan_space import PlanSpace
from eqsat_layout.targets.registry import target
from eqsat_layout.tuning.measure import op_kernel


def convolution(window: int = 3) -> tvm.IRModule:
    """With a bias; for 3x3 there is Winograd too."""

    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.nn.conv2d(x, constant(16, 16, window, window), padding=window // 2))
        return builder.emit(op.add(y, constant(1, 16, 1, 1)))

    return program(body, (1, 16, 12, 12))


def product() -> tvm.IRModule:
    """Few kernels."""
    return program(lambda builder, x: builder.emit(op.nn.relu(op.matmul(x, constant(32, 48)))), (5, 32))


def stored(directory: Path) -> list[tuple[str, ...]]:
    """The kernels in a database, in the order in which they were added."""
    lines = Database(directory).path.read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert {record["machine"] for record in records} <= {target().name}
    return [(record["computation"], *record["formats"]) for record in records]


def contractions(space: PlanSpace) -> dict[tuple[str, ...], str]:
    """Every contraction of a program and of its alternatives in every layout, with the name of the op."""
    kernels = [
        op_kernel(space.signatures[key], candidate.flow.operands, candidate.flow.results)
        for key, candidates in space.offers.layouts.items()
        for candidate in candidates
    ]
    return {(k.key.computation, *k.key.formats): k.name for k in kernels if k is not None}
