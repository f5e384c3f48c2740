"""TVM index maps become digit maps exactly, or not at all."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import index_maps
from tir.helpers import evaluate
from tvm import tirx

from eqsat_layout.maps import IndexMap
from eqsat_layout.tir.index_map import from_tvm, to_tvm


def image(index_map: Any, index: tuple[int, ...]) -> tuple[int, ...]:
    values = dict(zip(index_map.initial_indices, index, strict=True))
    return tuple(evaluate(e, values) for e in index_map.final_indices)


def positions(index_map: IndexMap, index: tuple[int, ...]) -> tuple[int, ...]:
    result = []
    for digits in index_map.dims:
        number = 0
        for axis, stride, extent in digits:
            number = number * int(extent) + index[axis] // stride % int(extent)
        result.append(number)
    return tuple(result)


def points(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    return list(itertools.product(*map(range, shape)))


@given(index_maps())
def test_maps_survive_the_round_trip(index_map: IndexMap) -> None:
    assert from_tvm(to_tvm(index_map), index_map.shape) == index_map


@given(index_maps(shape=(2, 12)), st.data())
def test_the_tvm_map_does_the_same(index_map: IndexMap, data: st.DataObject) -> None:
    index = data.draw(st.sampled_from(points((2, 12))))
    assert image(to_tvm(index_map), index) == positions(index_map, index)


@st.composite
def expressions(draw: st.DrawFn, variables: list[Any], depth: int) -> Any:
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(variables))
    inner = draw(expressions(variables, depth - 1))
    number = draw(st.sampled_from([1, 2, 3, 4, 6, 8]))
    match draw(st.sampled_from(["add", "addc", "mul", "div", "mod", "sub"])):
        case "add":
            return inner + draw(expressions(variables, depth - 1))
        case "addc":
            return inner + number
        case "mul":
            return inner * number
        case "div":
            return tirx.floordiv(inner, number)
        case "mod":
            return tirx.floormod(inner, number)
        case _:
            return number - inner


@given(st.data())
def test_what_is_accepted_is_right_on_every_index(data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from([(8,), (2, 4), (6, 4), (3, 1, 4)]))
    variables = [tirx.Var(f"i{a}", "int64") for a in range(len(shape))]
    exprs = data.draw(st.lists(expressions(variables, 3), min_size=1, max_size=3))
    tvm_map = tirx.IndexMap(variables, exprs, None)
    found = from_tvm(tvm_map, shape)
    images = [image(tvm_map, p) for p in points(shape)]
    if found is not None:
        assert images == [positions(found, p) for p in points(shape)]
        assert len(set(images)) == len(images)


@pytest.mark.parametrize(
    ("shape", "function"),
    [
        ((8,), lambda i: [(i + 3) % 8]),
        ((8,), lambda i: [7 - i]),
        ((8,), lambda i: [i ^ 1]),
        ((8,), lambda i: [i // 2, i // 2]),
        ((8,), lambda i: [i // 2]),
        ((30,), lambda c: [c // 4, c % 4]),
        ((30,), lambda c: [(c + 2) // 4, (c + 2) % 4]),
        ((8, 4), lambda i, j: [i * 8 + j]),
        ((8, 4), lambda i, j: [i]),
        ((8,), lambda i: [i * 2]),
    ],
)
def test_what_is_no_permutation_of_digits_is_refused(shape: tuple[int, ...], function: Any) -> None:
    assert from_tvm(tirx.IndexMap.from_func(function), shape) is None


def test_a_map_of_another_rank_is_refused() -> None:
    assert from_tvm(tirx.IndexMap.from_func(lambda i, j: [i, j]), (8,)) is None


def test_symbolic_axes_stay_whole() -> None:
    nhwc = IndexMap.permutation(("n", 32, "h", 8), (0, 2, 3, 1))
    assert from_tvm(to_tvm(nhwc), nhwc.shape) == nhwc
    fused = IndexMap.make(("n", 4), [[(0, 1, "n"), (1, 1, 4)]])
    assert from_tvm(to_tvm(fused), fused.shape) == fused
    assert from_tvm(tirx.IndexMap.from_func(lambda i: [i // 4, i % 4]), ("n",)) is None


def test_constants_are_int64() -> None:
    index_map = to_tvm(IndexMap.make((1, 32), [[], [(1, 4, 8)], [(1, 1, 4)]]))
    assert [str(e.ty.dtype) for e in index_map.final_indices] == ["int64"] * 3
    assert str(index_map.final_indices[1].b.ty.dtype) == "int64"


def test_int32_indices_are_taken_too() -> None:
    index_map = tirx.IndexMap.from_func(lambda c: [c // 4, c % 4], index_dtype="int32")
    assert str(from_tvm(index_map, (32,))) == "(i) -> (i//4, i%4)"
