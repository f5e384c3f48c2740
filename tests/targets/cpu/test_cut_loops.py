"""Loops are cut where a condition on their variable changes, and give the same numbers."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
import tvm
from effort import tries
from hypothesis import given, settings
from hypothesis import strategies as st
from targets.machines import AVX2
from tvm import s_tir, te, tirx

from eqsat_layout.targets.cpu.cut_loops import cut_at_conditions
from eqsat_layout.targets.cpu.lowering import pipeline_name
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.tir.structural import nodes_of

ROWS, COLUMNS = 5, 40
COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge)


def of_columns(condition: Any) -> Any:
    """Elements of x where the condition of row and column holds, 7 elsewhere."""
    x = te.placeholder((ROWS, COLUMNS), "float32", name="x")
    body = te.compute(x.shape, lambda i, j: tirx.if_then_else(condition(i, j), x[i, j], tirx.const(7, "float32")))
    return te.create_prim_func([x, body], index_dtype_override="int64")


def loops_of(func: Any) -> list[tuple[Any, bool]]:
    """Loops around stores, after the pass, and whether a condition is left in each."""
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    for change in (
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.StmtSimplify(),
        s_tir.transform.LowerOpaqueBlock(),
        tirx.transform.FlattenBuffer(),
        tirx.transform.NarrowDataType(32),
        cut_at_conditions(),
        tirx.transform.StmtSimplify(),
    ):
        mod = change(mod)
    found = [loop for loop in nodes_of(mod["main"].body, tirx.For) if isinstance(loop.body, tirx.BufferStore)]
    return [(loop, bool(nodes_of(loop.body, *(tirx.LT, tirx.LE, tirx.GT, tirx.GE)))) for loop in found]


def ran(func: Any, pipeline: str, given_numbers: Any) -> Any:
    out = tvm.runtime.tensor(np.full((ROWS, COLUMNS), -1, "float32"))
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    tirx.build(mod, target={"kind": "llvm"}, pipeline=pipeline)["main"](tvm.runtime.tensor(given_numbers), out)
    return out.numpy()


@pytest.mark.parametrize(
    ("condition", "parts"),
    [
        (lambda i, j: j < 31, 2),
        (lambda i, j: tirx.all(j >= 3, j < 38), 3),
        (lambda i, j: tirx.any(30 - j > 0, j > 35), 3),
        (lambda i, j: i <= j, 2),
        (lambda i, j: j + i < 20, 2),
        (lambda i, j: tirx.all(2 * j >= 7, 2 * j < 61), 3),
        (lambda i, j: i < 2, 1),
        (lambda i, j: j < 40, 1),
    ],
)
def test_parts_have_no_conditions_on_their_variable(condition: Any, parts: int) -> None:
    found = loops_of(of_columns(condition))
    assert len(found) == parts
    assert not any(has_condition for loop, has_condition in found if parts > 1)


def test_a_condition_inside_of_another_is_met_after_it() -> None:
    """Mirrored borders: the second comparison is of what the first one chooses."""

    def mirrored(i: Any, j: Any) -> Any:
        place = tirx.Select(j >= 3, j - 3, 3 - j)
        return tirx.Select(place <= 33, place, 66 - place) > 5

    assert not any(has_condition for _, has_condition in loops_of(of_columns(mirrored)))


@pytest.mark.parametrize("condition", [lambda i, j: j % 3 < 2, lambda i, j: tirx.any(i < j, j < 2 * i)])
def test_a_loop_whose_changes_have_no_known_order_stays_whole(condition: Any) -> None:
    assert len(loops_of(of_columns(condition))) == 1


@st.composite
def conditions(draw: st.DrawFn) -> Any:
    """Comparisons of rows, columns and numbers, joined and inside of one another."""
    compare = draw(st.sampled_from(COMPARISONS))
    sign, row, number = (
        draw(st.sampled_from((1, -1, 2, -3))),
        draw(st.sampled_from((0, 0, 1, -2))),
        draw(st.integers(-45, 45)),
    )
    flipped = draw(st.booleans())

    def first(i: Any, j: Any) -> Any:
        sides = sign * j, row * i + number
        return compare(*(sides[::-1] if flipped else sides))

    kind = draw(st.sampled_from(("one", "one", "all", "any", "not", "inside")))
    if kind == "one":
        return first
    second = draw(conditions())
    return {
        "all": lambda i, j: tirx.all(first(i, j), second(i, j)),
        "any": lambda i, j: tirx.any(first(i, j), second(i, j)),
        "not": lambda i, j: tirx.Not(first(i, j)),
        "inside": lambda i, j: second(i, tirx.Select(first(i, j), j - 3, 30 - j)),
    }[kind]


@given(conditions())
@settings(max_examples=tries(40))
def test_the_numbers_stay_the_same(condition: Any) -> None:
    func, numbers = of_columns(condition), np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype("float32")
    np.testing.assert_array_equal(ran(func, pipeline_name(), numbers), ran(func, "default", numbers))
    scheduled = schedule_primfunc(func, AVX2)
    np.testing.assert_array_equal(ran(scheduled, pipeline_name(), numbers), ran(func, "default", numbers))


def test_parts_of_a_concat_of_odd_sizes_are_copied_without_conditions() -> None:
    """31 and 65 columns were taken element by element, each under its conditions."""
    x, y = (te.placeholder((64, size), "float32", name=name) for name, size in (("x", 31), ("y", 65)))
    both = te.compute((64, 96), lambda i, j: tirx.if_then_else(j >= 31, y[i, j - 31], x[i, j]))
    found = loops_of(schedule_primfunc(te.create_prim_func([x, y, both], index_dtype_override="int64"), AVX2))
    assert sorted(int(loop.extent) for loop, _ in found) == [31, 65]
