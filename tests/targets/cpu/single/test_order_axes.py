"""Reductions along memory are reordered, and what is reordered keeps its numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from targets.machines import AVX512, built
from tvm import te, tirx

from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.targets.cpu.single.order_axes import order_axes
from eqsat_layout.targets.schedules.stages import new_schedule, stages_of
from eqsat_layout.tir.structural import nodes_of

EXACT = CpuMachine(64, 32, is_exact=True)


def sums_of_groups(places: int, groups: int, size: int, *, squares: bool = False) -> Any:
    """Of each group of channels, over its channels and all places: what group norm does, channels last."""
    data = te.placeholder((places, groups * size), name="data")
    member, place = te.reduce_axis((0, size), "member"), te.reduce_axis((0, places), "place")

    def element(group: Any) -> Any:
        value = data[place, group * size + member]
        return te.sum(value * value if squares else value, axis=[member, place])

    return te.create_prim_func([data, te.compute((groups,), element, name="sums")], index_dtype_override="int64")


@pytest.mark.parametrize("squares", [False, True])
@pytest.mark.parametrize(("places", "groups", "size"), [(50, 8, 16), (33, 3, 32), (7, 5, 6)])
def test_sums_of_groups_keep_their_numbers(places: int, groups: int, size: int, squares: bool) -> None:
    func = schedule_primfunc(sums_of_groups(places, groups, size, squares=squares), AVX512)
    library = built(tvm.IRModule({"k": func.with_attr("global_symbol", "k")}))
    data = np.random.default_rng(0).standard_normal((places, groups * size), dtype="float32")
    result = tvm.runtime.tensor(np.zeros(groups, "float32"))
    library["k"](tvm.runtime.tensor(data), result)
    wanted = (data**2 if squares else data).reshape(places, groups, size).sum(axis=(0, 2))
    np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-4, atol=1e-4)


def test_sums_of_groups_run_along_memory() -> None:
    """Places were the inner loop: every element was a line of memory of its own, and no vector was read."""
    (stage,) = stages_of(order_axes(new_schedule(sums_of_groups(50, 8, 16)), AVX512))
    assert [axis.extent for axis in stage.reduced] == [50, 16]
    assert "T.vectorized" in schedule_primfunc(sums_of_groups(50, 8, 16), AVX512).script()


def test_exact_sums_keep_their_order() -> None:
    sch = new_schedule(sums_of_groups(50, 8, 16))
    assert order_axes(sch, EXACT) is sch


def test_results_for_lanes_keep_their_order() -> None:
    """A product of matrices has vectors of results."""
    a, b = te.placeholder((16, 8), name="a"), te.placeholder((8, 32), name="b")
    k = te.reduce_axis((0, 8), "k")
    product = te.compute((16, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")
    sch = new_schedule(te.create_prim_func([a, b, product], index_dtype_override="int64"))
    assert order_axes(sch, AVX512) is sch


def test_a_product_of_a_row_runs_along_memory_though_its_window_is_one_element() -> None:
    """A convolution of an image of one pixel, without its places: one sum after the other, element by element."""
    data, weights = te.placeholder((1, 1, 1, 96), name="data"), te.placeholder((40, 96, 1, 1), name="weights")
    c, y, x = (te.reduce_axis((0, extent), name) for name, extent in (("c", 96), ("y", 1), ("x", 1)))
    sums = te.compute((1, 40), lambda n, o: te.sum(data[0, 0, n, c] * weights[o, c, n, 0], axis=[c, y, x]), "sums")
    func = te.create_prim_func([data, weights, sums], index_dtype_override="int64")
    scheduled = schedule_primfunc(func, AVX512)
    assert {int(loop.extent) for loop in nodes_of(scheduled.body, tirx.For) if loop.kind == tirx.ForKind.VECTORIZED}
