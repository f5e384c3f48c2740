"""Stages tile by tile: the loops of those that are not reduced."""

from __future__ import annotations

from typing import Any

from targets.machines import AVX2
from tvm import s_tir, te, tirx

from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.tir.structural import nodes_of


def repeated_product(steps: int, rows: int, columns: int, times: int) -> Any:
    """Each row of a product stands so many times in the result."""
    data = te.placeholder((steps, rows), name="data")
    weights = te.placeholder((steps, columns), name="weights")
    k = te.reduce_axis((0, steps), "k")
    sums = te.compute((rows, columns), lambda i, j: te.sum(data[k, i] * weights[k, j], axis=k), "sums")
    last = te.compute((rows, times, columns), lambda i, g, j: sums[i, j], "last")
    return te.create_prim_func([data, weights, last], index_dtype_override="int64")


def test_rows_that_are_repeated_are_copied_in_vectors() -> None:
    """The loop over what a copy reads again was the innermost one: elements were stored one by one, a row apart."""
    done = schedule_primfunc(repeated_product(64, 4096, 64, 8), AVX2)
    (loop,) = (
        loop
        for loop in nodes_of(done.body, tirx.For)
        if isinstance(loop.body, s_tir.SBlockRealize) and loop.body.block.name_hint == "last"
    )
    assert loop.kind == tirx.ForKind.VECTORIZED
    assert nodes_of(loop.body.iter_values[-1], tirx.Var)[-1].same_as(loop.loop_var)
