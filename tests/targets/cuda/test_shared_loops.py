"""Statements with an order: work items of a group share the loops inside that have none, in any order of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from targets.cuda.running import Kernels
from tvm import tirx
from tvm.script import tirx as T

from eqsat_layout.soundness.programs.check import unscheduled_library
from eqsat_layout.targets.gpu.kernels.serial import as_it_stands


@T.prim_func(s_tir=True)
def recurrence(x: T.Buffer((5, 70), "float32"), y: T.Buffer((5, 70), "float32")) -> None:
    """Each step reads all of the one before."""
    with T.sblock("y"):
        state = T.sblock_alloc_buffer((70,), "float32")
        for i in range(70):
            state[i] = T.float32(0)
        for step in range(5):
            for i in range(70):
                y[step, i] = x[step, i] - state[69 - i]
            for i in range(70):
                state[i] = y[step, i]


@T.prim_func(s_tir=True)
def suppression(x: T.Buffer((5, 70), "float32"), y: T.Buffer((5, 70), "float32")) -> None:
    """What is left suppresses what is behind it and near."""
    with T.sblock("y"):
        for row in T.parallel(5):
            for i in range(70):
                y[row, i] = x[row, i]
            for i in range(70):
                if y[row, i] > T.float32(0):
                    near: T.let[T.float32] = y[row, i] + T.float32(2)
                    for j in range(70):
                        if j > i and y[row, j] <= near:
                            y[row, j] = T.float32(-1)
                    y[row, i] = near
                else:
                    y[row, i] = y[row, i] - T.float32(5)


@T.prim_func(s_tir=True)
def kept(x: T.Buffer((5, 70), "float32"), y: T.Buffer((5, 70), "float32")) -> None:
    """A variable of the statement's own says where the next one goes."""
    with T.sblock("y"):
        for row in T.parallel(5):
            count = T.alloc_local((1,), "int32")
            count[0] = 0
            for i in range(70):
                y[row, i] = T.float32(-1)
            for i in range(70):
                if x[row, i] > T.float32(1):
                    y[row, count[0]] = x[row, i]
                    count[0] = count[0] + 1


@T.prim_func(s_tir=True)
def diagonal(x: T.Buffer((5, 70), "float32"), y: T.Buffer((5, 70), "float32")) -> None:
    """The inner loop has an order, too."""
    with T.sblock("y"):
        for i, j in T.grid(5, 70):
            y[i, j] = x[i, j] + T.if_then_else(
                i * j > 0, y[T.max(i - 1, 0), 69 - j] + y[i, T.max(j - 1, 0)], T.float32(0)
            )


@T.prim_func(s_tir=True)
def behind(x: T.Buffer((5, 70), "float32"), y: T.Buffer((5, 70), "float32")) -> None:
    """The condition does not say that the element that is read is another."""
    with T.sblock("y"):
        for row in T.parallel(5):
            for i in range(70):
                y[row, i] = x[row, i]
            for i in range(70):
                for j in range(70):
                    if j >= i:
                        y[row, j] = y[row, i] + T.float32(1)


@T.prim_func(s_tir=True)
def chosen(x: T.Buffer((5, 70), "float32"), y: T.Buffer((5, 70), "float32")) -> None:
    """Those that are kept lie together, in front; where they go is counted in memory."""
    with T.sblock("y"):
        count = T.sblock_alloc_buffer((5,), "int32")
        for row in T.parallel(5):
            count[row] = 0
            for i in range(70):
                y[row, i] = T.float32(-1)
            for i in range(70):
                if x[row, i] > T.float32(1):
                    y[row, count[row]] = x[row, i] * T.float32(2)
                    count[row] = count[row] + 1
            y[row, 69] = T.Cast("float32", count[row])


@T.prim_func(s_tir=True)
def chosen_of_one(x: T.Buffer((5, 70), "float32"), y: T.Buffer((5, 70), "float32")) -> None:
    """One row only: the count has parts."""
    with T.sblock("y"):
        count = T.sblock_alloc_buffer((1,), "int32")
        for i, j in T.grid(5, 70):
            y[i, j] = T.float32(-1)
        count[0] = 2
        for i in range(60):
            if x[1, i + 3] > T.float32(1):
                y[3, count[0]] = x[1, i + 3] * T.float32(2)
                count[0] = count[0] + 1
        y[4, 0] = T.Cast("float32", count[0])


@T.prim_func(s_tir=True)
def two_sums(x: T.Buffer((5, 70), "float32"), y: T.Buffer((5, 70), "float32")) -> None:
    """Of rows and, where a row is not negative, of columns, in one pass over both."""
    with T.sblock("y"):
        columns = T.sblock_alloc_buffer((70,), "float32")
        rows = T.sblock_alloc_buffer((5,), "float32")
        for j in range(70):
            columns[j] = T.float32(1)
        for i in range(5):
            rows[i] = T.float32(0)
            for j in range(70):
                if x[i, j] > T.float32(0):
                    rows[i] = rows[i] + x[i, j]
                    columns[j] = columns[j] + x[i, j] * T.float32(2)
        for i, j in T.grid(5, 70):
            y[i, j] = rows[i] + columns[j]


@T.prim_func(s_tir=True)
def two_scatters(x: T.Buffer((5, 70), "float32"), y: T.Buffer((5, 70), "float32")) -> None:
    """Of what a row says and of where it stood."""
    with T.sblock("y"):
        last = T.sblock_alloc_buffer((70,), "float32")
        for i, j in T.grid(5, 70):
            y[i, j] = T.float32(0)
        for j in range(70):
            last[j] = T.float32(-1)
        for j in range(70):
            if x[0, j] > T.float32(0):
                y[1, T.Cast("int32", x[1, j] + T.float32(1))] = x[2, j]
                last[T.Cast("int32", x[3, j] + T.float32(1))] = T.Cast("float32", j)
        for j in range(70):
            y[3, j] = last[j]


@T.prim_func(s_tir=True)
def one_reads_the_other(x: T.Buffer((5, 70), "float32"), y: T.Buffer((5, 70), "float32")) -> None:
    """The sums of columns are read while they grow: both stay in one loop."""
    with T.sblock("y"):
        rows = T.sblock_alloc_buffer((5,), "float32")
        for i, j in T.grid(5, 70):
            y[i, j] = T.float32(0)
        for i in range(5):
            rows[i] = x[i, 0]
        for i in range(5):
            for j in range(70):
                rows[i] = rows[i] + y[0, j]
                y[0, j] = y[0, j] + x[i, j]
        for i in range(5):
            y[1, i] = rows[i]


@T.prim_func(s_tir=True)
def left(x: T.Buffer((5, 70), "float32"), y: T.Buffer((5, 70), "float32")) -> None:
    """Both sums end at the first large element of a row."""
    with T.sblock("y"):
        columns = T.sblock_alloc_buffer((70,), "float32")
        rows = T.sblock_alloc_buffer((5,), "float32")
        for j in range(70):
            columns[j] = T.float32(0)
        for i in range(5):
            rows[i] = T.float32(0)
            for j in range(70):
                if x[i, j] > T.float32(7):
                    T.evaluate(T.break_loop())
                rows[i] = rows[i] + x[i, j]
                columns[j] = columns[j] + x[i, j]
        for i, j in T.grid(5, 70):
            y[i, j] = rows[i] + columns[j]


@T.prim_func(s_tir=True)
def left_alone(x: T.Buffer((5, 70), "float32"), y: T.Buffer((5, 70), "float32")) -> None:
    """Elements in front of the first large one."""
    with T.sblock("y"):
        for i, j in T.grid(5, 70):
            y[i, j] = T.float32(0)
        for i in range(5):
            for j in range(70):
                if x[i, j] > T.float32(7):
                    T.evaluate(T.break_loop())
                y[i, j] = x[i, j]


@T.prim_func(s_tir=True)
def part_with_a_name(x: T.Buffer((5, 70), "float32"), y: T.Buffer((5, 70), "float32")) -> None:
    """ "Buffer part is used before its definition"."""
    with T.sblock("y"):
        sums = T.sblock_alloc_buffer((70,), "float32")
        for j in range(70):
            sums[j] = T.float32(1)
        with T.sblock("z"):
            part = T.match_buffer(sums[0:70], (70,), "float32")
            for i in range(5):
                for j in range(70):
                    part[69 - j] = part[69 - j] * T.float32(2) + x[i, j]
        for i, j in T.grid(5, 70):
            y[i, j] = sums[j]


CASES: dict[str, tuple[Any, list[bool]]] = {
    "a recurrence": (recurrence, [False, True]),
    "suppression": (suppression, [False, True]),
    "what is kept": (kept, [True]),
    "an inner loop with an order": (diagonal, [False]),
    "an element that is written": (behind, [False, False]),
    "places that are counted": (chosen, [False] * 5),
    "places of one row": (chosen_of_one, [False] * 5),
    "two sums in one loop": (two_sums, [False] * 4),
    "two scatters in one loop": (two_scatters, [False] * 5),
    "a loop that is left early": (left, [False] * 3),
    "elements in front of where it is left": (left_alone, [False] * 2),
    "a part of a buffer with a name": (part_with_a_name, [False] * 3),
    "sums that are read while they grow": (one_reads_the_other, [False] * 4),
}
"""Functions, and whether the threads of a block work together, launch by launch."""


def run(func: Any, x: Any) -> Any:
    """As the CPU does it."""
    expected = tvm.runtime.tensor(np.zeros(x.shape, "float32"))
    unscheduled_library({"f": func})["f"](tvm.runtime.tensor(x), expected)
    return expected.numpy()


@pytest.mark.parametrize("name", CASES)
def test_threads_share_loops_without_an_order(name: str) -> None:
    func, are_shared = CASES[name]
    x = np.random.default_rng(0).integers(-1, 9, (5, 70)).astype("float32")
    made, _ = as_it_stands(func)
    launches = [one for one in getattr(made.body, "seq", [made.body]) if isinstance(one, tirx.AttrStmt)]
    assert ["storage_sync" in str(launch) for launch in launches] == are_shared
    kernels = Kernels(made)
    for order in (0, 1, 2):
        y = np.full(x.shape, np.nan, "float32")
        kernels.run(x, y, order=order)
        np.testing.assert_array_equal(y, run(func, x))


def test_sums_of_one_loop_that_are_not_read_there_have_loops_of_their_own() -> None:
    assert not as_it_stands(two_sums)[1]
    assert not as_it_stands(two_scatters)[1]
    assert as_it_stands(one_reads_the_other)[1]


def test_places_that_are_counted_are_found_by_all_threads_at_once() -> None:
    assert not as_it_stands(chosen_of_one)[1]
    made, has_one = as_it_stands(chosen)
    threads = [
        int(one.value.value) * int(one.body.value.value) for one in made.body.seq if isinstance(one, tirx.AttrStmt)
    ]
    assert max(threads) >= 5 * 70
    assert not has_one
