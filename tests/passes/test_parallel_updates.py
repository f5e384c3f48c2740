"""Updates that may meet are done in order."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T

from eqsat_layout.passes.parallel_updates import order_updates
from eqsat_layout.tir.structural import nodes_of


@T.prim_func
def at_read_places(p: T.Buffer((9,), "int64"), x: T.Buffer((9,), "float32"), y: T.Buffer((9,), "float32")) -> None:
    for i in T.parallel(9):
        y[p[i] % T.int64(9)] = y[p[i] % T.int64(9)] + x[i]


@T.prim_func
def by_a_name(p: T.Buffer((9,), "int64"), x: T.Buffer((9,), "float32"), y: T.Buffer((9,), "float32")) -> None:
    for i in T.parallel(9):
        place = p[i]
        y[place] = T.max(y[place], x[i])


@T.prim_func
def in_an_inner_loop(p: T.Buffer((9,), "int64"), x: T.Buffer((9,), "float32"), y: T.Buffer((9,), "float32")) -> None:
    for i in T.parallel(3):
        for j in T.serial(3):
            y[p[i * 3 + j]] += x[i * 3 + j]


@T.prim_func
def at_its_own_place(p: T.Buffer((9,), "int64"), x: T.Buffer((9,), "float32"), y: T.Buffer((9,), "float32")) -> None:
    for i in T.parallel(9):
        y[i] = y[i] + x[p[i]]


@T.prim_func
def without_a_sum(p: T.Buffer((9,), "int64"), x: T.Buffer((9,), "float32"), y: T.Buffer((9,), "float32")) -> None:
    for i in T.parallel(9):
        y[p[i]] = x[i]


@pytest.mark.parametrize(
    ("func", "stays"),
    [
        (at_read_places, False),
        (by_a_name, False),
        (in_an_inner_loop, False),
        (at_its_own_place, True),
        (without_a_sum, True),
    ],
)
def test_loops_that_stay_parallel(func: Any, stays: bool) -> None:
    """``index_put`` of equal indices lost what one of two threads added."""
    changed = order_updates()(tvm.IRModule({"main": func}))["main"]
    outer = nodes_of(changed.body, tirx.For)[-1]
    assert (outer.kind == tirx.ForKind.PARALLEL) == stays
