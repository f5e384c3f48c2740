"""Selects are branches only where a value may not be computed."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from tvm import tirx

from eqsat_layout.targets.cpu.unsafe_selects import branch_on_unsafe_selects, select_in_lanes
from eqsat_layout.tir.structural import nodes_of


def selects_and_branches(value: Any, size: int = 64) -> tuple[int, int]:
    """How many of each are left of ``value(x, i)``, for 60 values of i; x has ``size`` elements."""
    x = tirx.decl_buffer((size,), "float32", name="x")
    y = tirx.decl_buffer((64,), "float32", name="y")
    i = tirx.Var("i", "int32")
    stored = value(x, i)
    at = i if str(stored.ty.dtype) == "float32" else tirx.Ramp(i, 1, 4)
    loop = tirx.For(i, 0, 60, tirx.ForKind.SERIAL, tirx.BufferStore(y, stored, [at]))
    mod = branch_on_unsafe_selects()(tvm.IRModule({"main": tirx.PrimFunc([x, y], loop)}))
    calls = [call for call in nodes_of(mod["main"].body, tvm.ir.Call) if call.op.name == "prim.if_then_else"]
    return len(nodes_of(mod["main"].body, tirx.Select)), len(calls)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (lambda x, i: tirx.Select(x[i] > 0, x[i], x[i] * 2), (1, 0)),  # was a branch on data
        (lambda x, i: tirx.Select(i > 3, x[i - 4], x[i]), (0, 1)),
        (lambda x, i: tirx.Select(i < 3, x[i + 4], x[i]), (1, 0)),
        (lambda x, i: tirx.Select(i < 3, x[i + 5], x[i]), (0, 1)),
        (lambda x, i: tirx.Select(tirx.Broadcast(i > 3, 4), x[tirx.Ramp(i - 4, 1, 4)], x[tirx.Ramp(i, 1, 4)]), (0, 1)),
        (lambda x, i: tirx.Select(i < 3, x[tirx.Cast("int32", x[i])], x[i]), (0, 1)),
        (lambda x, i: tirx.Select(x[i] > 0, tirx.exp(x[i]), tirx.const(0, "float32")), (1, 0)),
        (lambda x, i: tirx.Select(x[i] > 0, tirx.call_extern("float32", "f", x[i]), x[i]), (0, 1)),
    ],
)
def test_what_is_a_branch(value: Any, found: tuple[int, int]) -> None:
    """`where(x > 0, y, 2 * x)` with y of one column, all of it branches, took 26 times as long."""
    assert selects_and_branches(value) == found


@pytest.mark.parametrize(
    ("value", "selects"),
    [
        (lambda x, i: tirx.if_then_else(i < 30, tirx.exp(x[i]), tirx.const(0, "float32")), 1),
        (lambda x, i: tirx.if_then_else(i < 30, x[i + 34], x[i]), 0),  # beyond the end for the others
        (lambda x, i: tirx.if_then_else(x[0] > 0, x[i], x[0]), 0),  # the same for all lanes
        (lambda x, i: tirx.if_then_else(i < 30, tirx.call_extern("float32", "f", x[i]), x[i]), 0),
    ],
)
def test_lanes_that_differ_are_selected(value: Any, selects: int) -> None:
    """Channels of a padded block, of which all but the last few are a sigmoid, were computed one by one."""
    x = tirx.decl_buffer((64,), "float32", name="x")
    y = tirx.decl_buffer((60,), "float32", name="y")
    i = tirx.Var("i", "int32")
    for kind, expected in ((tirx.ForKind.VECTORIZED, selects), (tirx.ForKind.SERIAL, 0)):
        loop = tirx.For(i, 0, 60, kind, tirx.BufferStore(y, value(x, i), [i]))
        mod = select_in_lanes()(tvm.IRModule({"main": tirx.PrimFunc([x, y], loop)}))
        assert len(nodes_of(mod["main"].body, tirx.Select)) == expected


@pytest.mark.parametrize(
    ("condition", "is_taken_apart"),
    [
        (lambda i, lane: tirx.const(48, "int32") <= i * 16 + lane, False),  # was: all of it element by element
        (lambda i, lane: i * 16 + lane < 48, False),
        (lambda i, lane: tirx.all(tirx.const(32, "int32") <= i * 16 + lane, i * 16 + lane < 64), False),
        (lambda i, lane: tirx.const(40, "int32") <= i * 16 + lane, True),
    ],
)
def test_parts_of_a_concat_that_vectors_do_not_cross_are_in_vectors(condition: Any, is_taken_apart: bool) -> None:
    """Concats along channels, the last axis, with arithmetic behind them took ten times as long."""
    x, y = (tirx.decl_buffer((size,), "float32", name="x") for size in (16, 96))
    i, lane = (tirx.Var(name, "int32") for name in ("i", "lane"))
    value = tirx.if_then_else(condition(i, lane), x[i * 16 + lane - 80], tirx.const(1, "float32"))
    inner = tirx.For(lane, 0, 16, tirx.ForKind.VECTORIZED, tirx.BufferStore(y, value, [i * 16 + lane]))
    mod = select_in_lanes()(
        tvm.IRModule({"main": tirx.PrimFunc([x, y], tirx.For(i, 0, 6, tirx.ForKind.SERIAL, inner))})
    )
    done = tirx.transform.VectorizeLoop()(mod)["main"]
    assert bool(nodes_of(done.body, tirx.Ramp)) != is_taken_apart
