"""Sums of digits have the value of the expression that they were read from."""

from __future__ import annotations

from typing import Any

import tvm
from hypothesis import given
from hypothesis import strategies as st
from tir.helpers import evaluate
from tvm import tirx

from eqsat_layout.maps import Extent
from eqsat_layout.tir.affine import Affine, AffineReader, Term, digit_of, high_bound, is_injective

A, B = tirx.Var("a", "int64"), tirx.Var("b", "int64")


def reader(*extents: Extent) -> AffineReader:
    sizes = {"n": tirx.Var("n", "int64")}
    ranges = [tvm.ir.Range(0, sizes.get(str(e), e)) for e in extents]
    return AffineReader([A, B][: len(extents)], extents, ranges)


def value(affine: Affine, point: tuple[int, ...]) -> int:
    return affine.constant + sum(w * (point[i] // s % int(e)) for w, i, s, e in affine.terms)


def grid(*extents: int) -> list[tuple[int, ...]]:
    return [(a, b) for a in range(extents[0]) for b in range(extents[1])]


def test_nested_reshape_indices_are_read() -> None:
    found = reader(64, 32).read((B // 32 + A) % 64 // 8)
    assert found == Affine((Term(1, 0, 8, 8),))
    assert reader(4, 8).read((A * 8 + B) % 32) == Affine((Term(8, 0, 1, 4), Term(1, 1, 1, 8)))


def test_adjacent_digits_are_joined() -> None:
    assert reader(32).read(A // 8 * 8 + A % 8) == Affine((Term(1, 0, 1, 32),))
    assert reader(32).read(A // 8 * 8 + A % 8 - A) == Affine(())


def test_what_carries_is_not_read() -> None:
    assert reader(8).read((A + 3) % 8) is None
    assert reader(30).read(A // 4) is None
    assert reader(8, 8).read(A * B) is None


def test_a_symbolic_variable_is_cut_by_numbers_in_its_extent_only() -> None:
    n = tirx.Var("n", "int64")
    assert reader("n").read(A % n) == Affine((Term(1, 0, 1, "n"),))
    assert reader("n").read(A // 4) is None
    wide = AffineReader([A], ("n*64",), [tvm.ir.Range(0, n * 64)])
    assert wide.read(A // 16 % (n * 4)) == Affine((Term(1, 0, 16, "n*4"),))
    assert wide.read(A % 16) == Affine((Term(1, 0, 1, 16),))


@st.composite
def expressions(draw: st.DrawFn, depth: int) -> Any:
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from([A, B]))
    inner = draw(expressions(depth - 1))
    number = draw(st.sampled_from([1, 2, 3, 4, 6, 8]))
    other = draw(expressions(depth - 1))
    kinds = [inner + other, inner - other, inner + number, inner - number, inner * number]
    divisions = [f(inner, number) for f in (tirx.floordiv, tirx.floormod, tirx.truncdiv, tirx.truncmod)]
    return draw(st.sampled_from([*kinds, *divisions]))


@given(expressions(3), st.sampled_from([(4, 6), (8, 1), (6, 8)]), st.data())
def test_the_value_is_kept(expr: Any, extents: tuple[int, int], data: st.DataObject) -> None:
    found = reader(*extents).read(expr)
    if found is not None:
        point = data.draw(st.sampled_from(grid(*extents)))
        assert value(found, point) == evaluate(expr, {A: point[0], B: point[1]})


SUMS = st.builds(
    lambda terms, constant: Affine(tuple(sorted(set(terms), key=lambda t: -t.weight)), constant),
    st.lists(
        st.sampled_from(
            [Term(w, i, s, e) for w in (-1, 1, 2, 3, 4, 8) for i, s, e in ((0, 1, 4), (0, 2, 2), (1, 1, 6))]
        ),
        max_size=3,
    ),
    st.integers(-9, 9),
)


@given(SUMS, st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]))
def test_digits_of_sums_are_exact(total: Affine, stride: int, extent: int) -> None:
    found = digit_of(total, stride, extent, 10**6)
    if found is not None:
        assert all(value(found, p) == value(total, p) // stride % extent for p in grid(4, 6))


@given(SUMS, st.integers(-20, 40))
def test_high_bounds_are_exact(total: Affine, bound: int) -> None:
    found = high_bound(total, bound)
    if found is not None:
        assert all((bound <= value(total, p)) == (found[1] <= value(found[0], p)) for p in grid(4, 6))


def test_injective_sums_are_told_apart() -> None:
    assert is_injective(Affine((Term(4, 0, 1, 8), Term(1, 1, 1, 4))))
    assert not is_injective(Affine((Term(4, 0, 1, 8), Term(1, 1, 1, 5))))
    assert not is_injective(Affine((Term(1, 0, 1, 8), Term(1, 1, 1, 4))))
    assert is_injective(Affine((Term(-1, 0, 1, 8),), 7))
