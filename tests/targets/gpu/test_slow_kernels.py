"""Plans say which kernels a device has one thread for, before anything is built."""

from __future__ import annotations

from typing import Any

import pytest
from programs import program
from tvm import relax
from tvm.relax import op
from tvm.script import tirx as T

import eqsat_layout


@T.prim_func(private=True, s_tir=True)
def in_order(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")) -> None:
    for i in range(64):
        with T.sblock("o"):
            j = T.axis.opaque(64, i)
            T.reads(x[0:64], y[0:64])
            T.writes(y[0:64])
            y[j * 5 % 64] = x[63 - j] + T.if_then_else(j > 0, y[0] * T.float32(0.5), T.float32(0.0))


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
