"""The algebra of index maps against brute force: every map of every small shape, and every pair that composes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from eqsat_layout.maps import Digit, IndexMap

SHAPES = [
    *((a,) for a in (0, 1, 2, 3, 4, 6, 8, 12, 16)),
    *((0, 3), (2, 0), (0, 0), (4, 6), (2, 8)),
    *itertools.product((1, 2, 3, 4), repeat=2),
    *((1, 2, 2), (2, 2, 2), (2, 3, 2), (2, 1, 3), (2, 4, 3), (4, 2, 4)),
]


def factorisations(extent: int) -> Iterator[list[int]]:
    """The ways to write an extent as a product of factors above 1, in order; one factor for 0 and 1."""
    if extent < 2:
        yield [extent]
        return
    yield [extent]
    for first in range(2, extent):
        if extent % first == 0:
            yield from ([first, *rest] for rest in factorisations(extent // first))


def digits_of(axis: int, factors: list[int]) -> list[Digit]:
    """The digits of an axis, most significant first."""
    strides = [int(np.prod(factors[i + 1 :], initial=1)) for i in range(len(factors))]
    return [Digit(axis, stride, factor) for stride, factor in zip(strides, factors, strict=True)]


def all_maps(shape: tuple[int, ...]) -> list[IndexMap]:
    """Every split of the axes, every order of the digits, every way to fuse neighbours."""
    found: dict[IndexMap, None] = {}
    for factors in itertools.product(*(list(factorisations(e)) for e in shape)):
        digits = [d for axis, parts in enumerate(factors) for d in digits_of(axis, parts)]
        for order in itertools.permutations(digits):
            for cuts in itertools.product((False, True), repeat=max(len(order) - 1, 0)):
                rows = [[order[0]]] if order else []
                for digit, cut in zip(order[1:], cuts, strict=True):
                    if cut:
                        rows.append([digit])
                    else:
                        rows[-1].append(digit)
                found[IndexMap.make(shape, rows)] = None
    return list(found)


MAPS = {shape: all_maps(shape) for shape in SHAPES}


def numbered(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(int(np.prod(shape))).reshape(shape)


def by_definition(index_map: IndexMap, shape: tuple[int, ...]) -> np.ndarray:
    """The definition: every index by itself, with Python's own arithmetic."""
    data = numbered(shape)
    result = np.full([int(e) for e in index_map.result_shape], -1)
    for index in np.ndindex(shape):
        place = []
        for row in index_map.dims:
            value = 0
            for axis, stride, extent in row:
                value = value * int(extent) + index[axis] // int(stride) % int(extent)
            place.append(value)
        result[tuple(place)] = data[index]
    return result


def test_there_are_many() -> None:
    assert sum(map(len, MAPS.values())) > 1500


def test_every_map_does_what_it_says() -> None:
    for shape, maps in MAPS.items():
        for index_map in maps:
            np.testing.assert_array_equal(index_map.apply(numbered(shape)), by_definition(index_map, shape))


def test_every_inverse_undoes_and_is_undone() -> None:
    for shape, maps in MAPS.items():
        for index_map in maps:
            inverse = index_map.inverse()
            assert inverse is not None, index_map
            data = numbered(shape)
            np.testing.assert_array_equal(inverse.apply(index_map.apply(data)), data)
            assert inverse.inverse() == index_map or 0 in shape


def test_maps_are_equal_just_if_they_do_the_same() -> None:
    """One canonical form: no two maps that are told apart agree on everything; nor do keys of different maps agree."""
    for shape, maps in MAPS.items():
        if 0 in shape:
            continue
        effects = {(m.result_shape, m.apply(numbered(shape)).tobytes()) for m in maps}
        assert len(effects) == len(maps), shape
        assert len({m.key for m in maps}) == len(maps), shape
        for m in maps:
            changes = m.result_shape != shape or not np.array_equal(m.apply(numbered(shape)), numbered(shape))
            assert m.is_identity == (not changes), m


def test_every_composition_is_applying_one_after_the_other() -> None:
    """Where there is none, the digits of the one cut through those of the other: it is refused, never wrong."""
    pairs = composed = 0
    for shape in SHAPES:
        for first in MAPS[shape]:
            result = tuple(int(e) for e in first.result_shape)
            for second in MAPS.get(result, [])[:60]:
                pairs += 1
                both = second.after(first)
                if both is None:
                    continue
                composed += 1
                data = numbered(shape)
                np.testing.assert_array_equal(both.apply(data), second.apply(first.apply(data)))
    assert pairs > 5000
    assert composed > pairs // 2


def test_an_extent_of_0_is_not_lost_in_a_composition() -> None:
    """Found by this file: a digit of extent 0 was dropped, and (3, 0) became (3, 1)."""
    there, back = IndexMap.permutation((0, 3), [1, 0]), IndexMap.permutation((3, 0), [1, 0])
    both = back.after(there)
    assert both is not None
    assert both.is_identity
    assert both.result_shape == (0, 3)
