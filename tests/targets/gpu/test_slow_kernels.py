"""Plans say which kernels a device has one thread for, before anything is built."""

from __future__ import annotations

from typing import Any

import pytest
from programs import program
from targets.in_order import in_order
from tvm import relax
from tvm.relax import op

import eqsat_layout


def body(builder: Any, x: Any) -> Any:
    y = relax.call_tir(builder.add_func(in_order, "in_order"), [x], relax.TensorType((64,), "float32"))
    return builder.emit(op.sort(builder.emit(y)))


@pytest.mark.parametrize(("kind", "thread"), [("opencl", "work item"), ("cuda", "thread")])
def test_plans_say_what_runs_in_one_thread(kind: str, thread: str) -> None:
    """Only a build said so."""
    plan = eqsat_layout.plan(program(body, (64,)), {"kind": kind})
    said = f"kernel in_order runs in one {thread}: block o runs in an order"
    assert plan.notes == (said,)
    explanation = plan.explain()
    assert explanation.slow == (said,)
    assert said in str(explanation)
    assert said in plan.html()
