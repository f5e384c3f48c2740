"""Kernels that are not understood: loops whose iterations can't meet are threads, and so are elements that are stored
at places that are read, each of which goes through all iterations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from targets.cuda.running import Kernels
from tvm import tirx
from tvm.script import tirx as T

from eqsat_layout.errors import Refused
from eqsat_layout.soundness.programs.check import unscheduled_library
from eqsat_layout.targets.gpu.kernels import private_buffers
from eqsat_layout.targets.gpu.kernels.serial import as_it_stands


@T.prim_func(s_tir=True)
def backwards(x: T.Buffer((70,), "float32"), y: T.Buffer((70,), "float32")) -> None:
    with T.sblock("y"):
        for i in range(70):
            y[69 - i] = x[i]


@T.prim_func(s_tir=True)
def by_flat_index(x: T.Buffer((10, 7), "float32"), y: T.Buffer((10, 7), "float32")) -> None:
    with T.sblock("y"):
        for i in range(70):
            y[i // 7, i % 7] = x[i // 7, i % 7]


@T.prim_func(s_tir=True)
def running_sums_of_rows(x: T.Buffer((10, 7), "float32"), y: T.Buffer((10, 7), "float32")) -> None:
    with T.sblock("y"):
        for i in range(10):
            y[i, 0] = x[i, 0]
            for j in range(6):
                y[i, j + 1] = y[i, j] + x[i, j + 1]


@T.prim_func(s_tir=True)
def running_sums_of_columns(x: T.Buffer((10, 7), "float32"), y: T.Buffer((10, 7), "float32")) -> None:
    with T.sblock("y"):
        for j in range(7):
            y[0, j] = x[0, j]
        for i in range(9):
            for j in range(7):
                y[i + 1, j] = y[i, j] + x[i + 1, j]


@T.prim_func(s_tir=True)
def running_sum(x: T.Buffer((70,), "float32"), y: T.Buffer((70,), "float32")) -> None:
    with T.sblock("y"):
        for i in range(70):
            y[i] = x[i] + T.if_then_else(i == 0, T.float32(0), y[T.max(i - 1, 0)])


@T.prim_func(s_tir=True)
def one_accumulator(x: T.Buffer((10, 7), "float32"), y: T.Buffer((10, 7), "float32")) -> None:
    with T.sblock("y"):
        total = T.sblock_alloc_buffer((1,), "float32")
        for i in range(10):
            total[0] = T.float32(0)
            for j in range(7):
                total[0] = total[0] + x[i, j]
                y[i, j] = total[0]


@T.prim_func(s_tir=True)
def an_accumulator_of_each_row(x: T.Buffer((10, 7), "float32"), y: T.Buffer((10, 7), "float32")) -> None:
    for i in range(10):
        with T.sblock("row"):
            row = T.axis.spatial(10, i)
            total = T.sblock_alloc_buffer((1,), "float32")
            total[0] = T.float32(0)
            for j in range(7):
                total[0] = total[0] + x[row, j]
                y[row, j] = total[0]


@T.prim_func(s_tir=True)
def an_accumulator_for_all_columns(x: T.Buffer((5, 6, 7), "float32"), y: T.Buffer((5, 6, 7), "float32")) -> None:
    with T.sblock("y"):
        total = T.sblock_alloc_buffer((7,), "float32")
        for i in range(5):
            for k in range(7):
                total[k] = T.float32(0)
            for j, k in T.grid(6, 7):
                total[k] = total[k] + x[i, j, k]
                y[i, j, k] = total[k]


@T.prim_func(s_tir=True)
def what_the_row_before_left(x: T.Buffer((10, 7), "float32"), y: T.Buffer((10, 7), "float32")) -> None:
    with T.sblock("y"):
        total = T.sblock_alloc_buffer((2,), "float32")
        total[1] = T.float32(0)
        for i in range(10):
            total[0] = T.float32(0)
            for j in range(7):
                total[0] = total[0] + x[i, j]
                y[i, j] = total[0] + total[1]
            total[1] = total[0]


@T.prim_func(s_tir=True)
def to_places(x: T.Buffer((70,), "float32"), y: T.Buffer((70,), "float32")) -> None:
    with T.sblock("y"):
        for i in range(70):
            y[i] = T.float32(0)
        for i in range(70):
            y[T.Cast("int32", x[i])] = T.Cast("float32", i)


@T.prim_func(s_tir=True)
def to_bounded_places(x: T.Buffer((70,), "float32"), y: T.Buffer((70,), "float32")) -> None:
    """The bound is not the end: what is read is an element of another thread."""
    with T.sblock("y"):
        for i in range(70):
            y[i] = T.float32(0)
        for i in range(70):
            y[T.Cast("int32", x[i])] = y[T.min(T.Cast("int32", x[i]), 5)] + T.Cast("float32", i)


@T.prim_func(s_tir=True)
def rows_to_places(x: T.Buffer((10, 7), "float32"), y: T.Buffer((10, 7), "float32")) -> None:
    with T.sblock("y"):
        for i in range(70):
            y[i // 7, i % 7] = T.float32(0)
        for i in range(10):
            for j in range(7):
                y[T.Cast("int32", x[i, 0]), j] = y[T.Cast("int32", x[i, 0]), j] * T.float32(2) + x[i, j]


@T.prim_func(s_tir=True)
def two_to_a_place(x: T.Buffer((70,), "float32"), y: T.Buffer((70,), "float32")) -> None:
    with T.sblock("y"):
        for i in range(70):
            y[i] = T.float32(0)
        for i in range(70):
            y[i // 2] = y[i // 2] * T.float32(2) + x[i]


@T.prim_func(s_tir=True)
def updates_that_are_marked_parallel(x: T.Buffer((70,), "float32"), y: T.Buffer((70,), "float32")) -> None:
    """As TVM writes ``index_put``; some are of one place."""
    with T.sblock("y"):
        for i in T.parallel(70):
            y[i] = T.float32(0)
        for i in T.parallel(70):
            y[T.Cast("int32", x[i])] = y[T.Cast("int32", x[i])] + T.Cast("float32", i)


CASES: dict[str, tuple[Any, list[bool]]] = {
    "backwards": (backwards, [True]),
    "a flat index": (by_flat_index, [True]),
    "running sums of rows": (running_sums_of_rows, [True]),
    "running sums of columns": (running_sums_of_columns, [True, True]),
    "a running sum": (running_sum, [False]),
    "one accumulator": (one_accumulator, [True]),
    "an accumulator of each row": (an_accumulator_of_each_row, [True]),
    "an accumulator for all columns": (an_accumulator_for_all_columns, [True]),
    "what the row before left": (what_the_row_before_left, [False]),
    "places that are read": (to_places, [True, True]),
    "places up to a bound": (to_bounded_places, [True, False]),
    "rows whose places are read": (rows_to_places, [True, True]),
    "updates that are marked parallel": (updates_that_are_marked_parallel, [True, True]),
    "two iterations for a place": (two_to_a_place, [True, True]),
}
"""Functions, and whether each of their launches has several threads."""


@pytest.mark.parametrize("name", CASES)
def test_iterations_that_can_not_meet_are_threads(name: str) -> None:
    func, is_apart = CASES[name]
    made, has_one = as_it_stands(func)
    assert [extents != [1, 1] for extents in extents_of(made)] == is_apart
    assert has_one != all(is_apart)
    shape = tuple(int(extent) for extent in func.params[0].ty.shape)
    x = np.random.default_rng(0).integers(0, shape[0], shape).astype("float32")
    expected = tvm.runtime.tensor(np.zeros(shape, "float32"))
    unscheduled_library({"f": func})["f"](tvm.runtime.tensor(x), expected)
    kernels = Kernels(made)
    for order in (0, 1, 2):
        y = np.full(shape, np.nan, "float32")
        kernels.run(x, y, order=order)
        np.testing.assert_array_equal(y, expected.numpy())


@pytest.mark.parametrize(
    ("func", "small", "large"),
    [
        (an_accumulator_of_each_row, "T.sblock_alloc_buffer((1,)", "T.sblock_alloc_buffer((300,)"),
        (an_accumulator_for_all_columns, "7", "300"),
    ],
    ids=["allocated in a loop", "filled in a loop"],
)
def test_iterations_have_parts_of_a_buffer_that_no_thread_has_room_for(func: Any, small: str, large: str) -> None:
    """TVM said that no global memory can be allocated; on OpenCL nobody said anything until a driver built it."""
    func = tvm.script.from_source(func.script().replace(small, large))
    made, has_one = as_it_stands(func)
    assert all(extents != [1, 1] for extents in extents_of(made))
    assert not has_one
    shape = tuple(int(extent) for extent in func.params[0].ty.shape)
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    expected = tvm.runtime.tensor(np.zeros(shape, "float32"))
    unscheduled_library({"f": func})["f"](tvm.runtime.tensor(x), expected)
    y = np.full(shape, np.nan, "float32")
    Kernels(made).run(x, y, order=2)
    np.testing.assert_array_equal(y, expected.numpy())


def test_iterations_share_a_buffer_that_there_is_no_room_for_and_run_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of a loop that is marked parallel too: they overwrote each other's elements."""
    monkeypatch.setattr(private_buffers, "_ROOM", 1 << 11)
    text = an_accumulator_of_each_row.script().replace("T.sblock_alloc_buffer((1,)", "T.sblock_alloc_buffer((300,)")
    func = tvm.script.from_source(text.replace("in range(10)", "in T.parallel(10)"))
    made, _ = as_it_stands(func)
    x = np.arange(70, dtype="float32").reshape(10, 7)
    y = np.full_like(x, np.nan)
    Kernels(made).run(x, y, order=2)
    np.testing.assert_array_equal(y, x.cumsum(1))


def test_buffers_of_another_shape_in_each_iteration_are_refused() -> None:
    """The host allocated one whose shape hung on the loop's variable, which it does not know."""
    text = an_accumulator_of_each_row.script()
    func = tvm.script.from_source(text.replace("T.sblock_alloc_buffer((1,)", "T.sblock_alloc_buffer((row + 300,)"))
    with pytest.raises(Refused, match="the buffer total, allocated in a loop"):
        as_it_stands(func)


def extents_of(made: Any) -> list[list[int]]:
    """Of the blocks and threads of each launch."""
    statements = list(made.body.seq) if isinstance(made.body, tirx.SeqStmt) else [made.body]
    launches = [one for one in statements if not isinstance(one, tirx.AllocBuffer)]
    return [[int(one.value) for one in (launch, launch.body)] for launch in launches]
