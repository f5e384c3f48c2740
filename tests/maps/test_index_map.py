"""The algebra of index maps against brute force over all indices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import index_maps

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import IndexMap


def brute_force(index_map: IndexMap, array: np.ndarray) -> np.ndarray:
    """The definition: physical axis p is the number that its digits write."""
    result = np.empty(index_map.result_shape, array.dtype)
    for index in np.ndindex(*array.shape):
        physical = []
        for digits in index_map.dims:
            value = 0
            for digit in digits:
                value = value * digit.extent + index[digit.axis] // digit.stride % digit.extent
            physical.append(value)
        result[tuple(physical)] = array[index]
    return result


def numbered(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(int(np.prod(shape))).reshape(shape)


@given(index_maps())
def test_apply_is_the_definition(index_map: IndexMap) -> None:
    x = numbered(index_map.shape)
    np.testing.assert_array_equal(index_map.apply(x), brute_force(index_map, x))
    both = index_map.apply_to_each(np.stack([x, -x]))
    np.testing.assert_array_equal(both, np.stack([index_map.apply(x), index_map.apply(-x)]))


@given(index_maps())
def test_inverse_undoes_from_both_sides(index_map: IndexMap) -> None:
    inverse = index_map.inverse()
    x = numbered(index_map.shape)
    np.testing.assert_array_equal(inverse.apply(index_map.apply(x)), x)
    assert inverse.after(index_map) == IndexMap.identity(index_map.shape)
    assert index_map.after(inverse) == IndexMap.identity(index_map.result_shape)
    assert inverse.inverse() == index_map


@given(st.data())
def test_composition_is_applying_one_after_the_other(data: st.DataObject) -> None:
    first = data.draw(index_maps())
    second = data.draw(index_maps(first.result_shape))
    composed = second.after(first)
    if composed is not None:  # None: digits that don't divide
        x = numbered(first.shape)
        np.testing.assert_array_equal(composed.apply(x), second.apply(first.apply(x)))


@given(st.data())
def test_equal_maps_are_exactly_those_with_equal_effect(data: st.DataObject) -> None:
    first = data.draw(index_maps())
    second = data.draw(index_maps(first.shape))
    x = numbered(first.shape)
    same = first.result_shape == second.result_shape and np.array_equal(first.apply(x), second.apply(x))
    assert (first == second) == same
    assert (first.key == second.key) == same


@given(index_maps())
def test_keeping_order_means_the_same_bytes(index_map: IndexMap) -> None:
    x = numbered(index_map.shape)
    assert index_map.keeps_order == np.array_equal(index_map.apply(x).ravel(), x.ravel())


@given(index_maps())
def test_permuted_axes_is_numpy_transpose(index_map: IndexMap) -> None:
    axes = index_map.permuted_axes
    if axes is not None:
        x = numbered(index_map.shape)
        np.testing.assert_array_equal(index_map.apply(x), x.transpose(axes))


@given(st.permutations(range(4)))
def test_every_permutation_says_its_axes(axes: list[int]) -> None:
    assert IndexMap.permutation((2, 3, 4, 5), axes).permuted_axes == tuple(axes)


@given(st.data())
def test_reshape_is_numpy_reshape(data: st.DataObject) -> None:
    sizes = st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4)
    source, target = tuple(data.draw(sizes)), tuple(data.draw(sizes))
    if np.prod(source) != np.prod(target):
        assert IndexMap.reshape(source, target) is None
        return
    index_map = IndexMap.reshape(source, target)
    if index_map is not None:
        x = numbered(source)
        np.testing.assert_array_equal(index_map.apply(x), x.reshape(target))
        assert index_map.result_shape == target


def test_reshape_is_found_wherever_extents_divide() -> None:
    assert IndexMap.reshape((1, 64, 8, 8), (1, 4, 16, 8, 8)) is not None
    assert IndexMap.reshape((4, 6), (24,)) is not None
    assert IndexMap.reshape((24,), (2, 3, 4)) is not None
    assert IndexMap.reshape((2, 3), (3, 2)) is None


def test_symbolic_axes_are_whole_digits() -> None:
    merged = IndexMap.reshape(("n", 4, 16), ("n", 64))
    assert merged is not None
    assert merged.result_shape == ("n", 64)
    assert merged.inverse().after(merged).is_identity
    moved = IndexMap.permutation(("n", 3, "m"), (2, 0, 1))
    assert moved.result_shape == ("m", "n", 3)
    assert moved.inverse().after(moved).is_identity
    fused = IndexMap.reshape(("n", 4), ("4*n",)) or IndexMap.reshape(("n", 4), ("n*4",))
    assert fused is not None
    assert fused.keeps_order
    assert fused.inverse() is None  # the symbol can't be cut out again
    assert IndexMap.reshape(("n", 4), (2, "n*2")) is None


@pytest.mark.parametrize(
    "dims",
    [
        [[(0, 1, 4)]],  # the upper half of the axis is missing
        [[(0, 1, 8)], [(0, 1, 2)]],  # a digit twice
        [[(0, 2, 4)], [(0, 4, 2)]],  # overlap
        [[(1, 1, 8)]],  # no such axis
        [[(0, 1, 3)], [(0, 3, 3)]],  # does not divide
    ],
)
def test_what_is_no_bijection_is_refused(dims: list[list[tuple[int, int, int]]]) -> None:
    with pytest.raises(LayoutError):
        IndexMap.make((8,), dims)


def test_text_is_readable() -> None:
    index_map = IndexMap.make((2, 32, 8), [[(0, 1, 2)], [(1, 4, 8)], [(2, 1, 8)], [(1, 1, 4)]])
    assert str(index_map) == "(i, j, k) -> (i, j//4, k, j%4)"
    assert index_map.key == "2x32x8>a.b/4.c.b%4"


def test_composing_maps_of_other_shapes_is_an_error() -> None:
    with pytest.raises(LayoutError, match="compose"):
        IndexMap.identity((2, 3)).after(IndexMap.identity((3, 2)))
    with pytest.raises(LayoutError, match="permutation"):
        IndexMap.permutation((2, 3), (0, 0))


def test_zero_extents() -> None:
    index_map = IndexMap.permutation((0, 3), (1, 0))
    assert index_map.result_shape == (3, 0)
    assert index_map.apply(np.zeros((0, 3))).shape == (3, 0)


def test_an_identity_is_not_that_of_another_type_of_extents() -> None:
    """An extent of NumPy is equal to an integer: what was kept of one was given for the other, and had no size."""
    IndexMap.identity((np.int64(7), True, np.int64(41)))  # type: ignore[arg-type]
    kept = IndexMap.identity((7, 1, 41))
    assert [*map(type, kept.shape)] == [int] * 3
    assert kept.result_shape == (7, 1, 41)


@given(index_maps())
def test_axes_that_are_split_in_place_move_nothing(index_map: IndexMap) -> None:
    if index_map.splits_in_place:
        assert index_map.keeps_order
        assert len(index_map.dims) >= len(index_map.shape)


@pytest.mark.parametrize(
    ("shape", "dims", "is_in_place"),
    [
        ((1, 32, 7), [[], [(1, 8, 4)], [(1, 1, 8)], [(2, 1, 7)]], True),
        ((1, 32, 7), [[], [(1, 1, 32)], [(2, 1, 7)]], True),
        ((1, 32, 7), [[], [(1, 1, 8)], [(1, 8, 4)], [(2, 1, 7)]], False),
        ((1, 32, 7), [[], [(1, 8, 4)], [(2, 1, 7)], [(1, 1, 8)]], False),
        ((1, 32, 1), [[], [(1, 8, 4)], [], [(1, 1, 8)]], False),  # other axes, if of one element, are between
        ((32, 7), [[(0, 1, 32), (1, 1, 7)]], False),
        (("n", 32), [[(0, 1, "n")], [(1, 8, 4)], [(1, 1, 8)]], True),
    ],
)
def test_row_major_but_for_axes_that_are_split(shape, dims, is_in_place) -> None:
    assert IndexMap.make(shape, dims).splits_in_place == is_in_place
