"""Extents go to text and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tir.helpers import evaluate
from tvm import tirx

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import extent_product
from eqsat_layout.tir.extents import expr_of, extent_of, extent_over
from eqsat_layout.tir.symbol_names import symbol_name

SYMBOLS = {name: tirx.Var(name, "int64") for name in ("m", "n")}
N, M = SYMBOLS["n"], SYMBOLS["m"]


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (tirx.IntImm("int64", 7), 7),
        (N, "n"),
        (N * 4, "n*4"),
        (4 * N, "n*4"),
        (M * N, "m*n"),
        (N * M * 4, "m*n*4"),
        (N * 4 + 4, "(n + 1)*4"),
        (N - N, 0),
        (N * 4 - N, "n*3"),
        ((N + 1) // 2, "(n + 1) // 2"),
        (N % 4, "n % 4"),
        (tirx.max(N, 4), "max(4, n)"),
        (tirx.if_then_else(N < 3, N * 2 - 3, N - 3) * 2, "((n*2 + -3 if n < 3 else n + -3))*2"),
        (tirx.Select(N < M, N, N), "n"),
    ],
)
def test_equal_extents_have_one_text(expr: object, text: object) -> None:
    assert extent_of(expr) == text


@pytest.mark.parametrize("name", ["?", "n*2", "min(2, n)", "100", "if", "min", "a.b", "", "\N{MICRO SIGN}"])
def test_names_that_are_no_identifiers_have_texts_that_are_read_again(name: str) -> None:
    odd = tirx.Var(name, "int64")
    assert extent_of(odd) not in (name, "n*2", "min(2, n)")
    text = extent_of(tirx.min(odd, 2) + N)
    assert isinstance(text, str)
    again = expr_of(text, {**SYMBOLS, symbol_name(odd): odd})
    assert extent_of(again) == text
    assert {variable.name for variable in tirx.analysis.undefined_vars(again)} == {name, "n"}


def test_text_agrees_with_products_of_the_map_algebra() -> None:
    assert extent_of(N * 4) == extent_product(["n", 4])
    assert extent_of((N + 1) * M * 4) == extent_product(["n + 1", "m", 4])


@st.composite
def sizes(draw: st.DrawFn, depth: int = 3) -> object:
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from([N, M, tirx.IntImm("int64", 2), tirx.IntImm("int64", 3)]))
    a, b = draw(sizes(depth - 1)), draw(sizes(depth - 1))
    kind = draw(st.sampled_from(["+", "*", "//", "%", "max", "min", "if"]))
    if kind == "if":
        return tirx.if_then_else(tirx.LT(a, b), a, b + 1)
    if kind in ("//", "%"):
        divisor = draw(st.integers(2, 5))
        return tirx.floordiv(a, divisor) if kind == "//" else tirx.floormod(a, divisor)
    return {"+": lambda: a + b, "*": lambda: a * b, "max": lambda: tirx.max(a, b), "min": lambda: tirx.min(a, b)}[
        kind
    ]()


@given(sizes(), st.integers(1, 9), st.integers(1, 9))
def test_text_keeps_the_value(expr: object, n: int, m: int) -> None:
    text = extent_of(expr)
    back = expr_of(text, SYMBOLS)
    assert evaluate(back, {N: n, M: m}) == evaluate(expr, {N: n, M: m})
    assert extent_of(back) == text


def test_multiples_of_the_divisor_have_one_text() -> None:
    """TVM takes them out of a division when an expression is built again, so the text must not depend on it."""
    square = (N + M) * (N + M)
    assert extent_of(tirx.floordiv(square, 2)) == extent_of(N * M + tirx.floordiv(N * N + M * M, 2))
    assert extent_of(tirx.floormod(N * 4 + M, 4)) == extent_of(tirx.floormod(M, 4))
    assert extent_of(tirx.FloorDiv(N * 4 + 2, tirx.IntImm("int64", 4))) == "n"


def test_numbers_above_the_divisor_have_one_text() -> None:
    """Of (n + 3)**2 % 2 TVM left a 9 or a 1, by how the expression was built."""
    two = tirx.IntImm("int64", 2)
    assert extent_of(tirx.FloorMod((N + 3) * (N + 3), two)) == extent_of(tirx.FloorMod(N * N + 1, two))
    assert extent_of(tirx.FloorDiv(N * 5 + 9, tirx.IntImm("int64", 4))) == extent_of(
        2 + tirx.FloorDiv(N * 5 + 1, tirx.IntImm("int64", 4))
    )


def test_nested_maxima_have_one_text() -> None:
    """TVM itself drops what is repeated when an expression is built again, so the text must not depend on it."""
    nested = tirx.Max(tirx.Max(N * 2, tirx.Max(N, M)), N)
    assert extent_of(nested) == extent_of(tirx.Max(M, tirx.Max(N * 2, N)))
    assert extent_of(expr_of(extent_of(nested), SYMBOLS)) == extent_of(nested)
    assert extent_of(tirx.Max(N, N)) == "n"


def test_unknown_names_and_nonsense_are_refused() -> None:
    with pytest.raises(LayoutError, match="'k'"):
        expr_of("k*4", SYMBOLS)
    with pytest.raises(LayoutError, match="extent"):
        expr_of("n +", SYMBOLS)
    with pytest.raises(LayoutError, match="no arithmetic"):
        extent_of(tirx.shift_right(N, M))


def test_only_the_number_in_a_product_divides() -> None:
    assert extent_over(64, 16) == 4
    assert extent_over(64, 24) is None
    assert extent_over("n*64", 16) == "n*4"
    assert extent_over("n*64", 64) == "n"
    assert extent_over("(n + 1)*4", 4) == "n + 1"
    assert extent_over("(n + 1)*m*4", 4) == "(n + 1)*m"
    assert extent_over("n", 2) is None
