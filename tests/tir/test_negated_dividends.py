"""Quotients and remainders of what counts down: the same numbers, also after TVM has simplified them."""

from __future__ import annotations

from typing import Any

import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import tirx

from eqsat_layout.tir.negated_dividends import counting_up
from eqsat_layout.tir.structural import nodes_of, substitute

V, W = tirx.Var("v", "int64"), tirx.Var("w", "int64")
EXTENTS = {V: 12, W: 3}
PLACES = [(v, w) for v in range(EXTENTS[V]) for w in range(EXTENTS[W])]


def values(expression: Any) -> list[int]:
    """At all places."""
    analyzer = tvm.sym.Analyzer()
    at = ({V: tirx.IntImm("int64", v), W: tirx.IntImm("int64", w)} for v, w in PLACES)
    return [int(analyzer.simplify(substitute(expression, one))) for one in at]


def offset(dividend: Any, size: int) -> Any:
    """That a reshape into three axes reads at."""
    parts = (
        tirx.floordiv(dividend, size * 2) * (size * 2),
        tirx.floordiv(tirx.floormod(dividend, size * 2), size) * size,
        tirx.floormod(dividend, size),
    )
    return parts[0] + parts[1] + parts[2]


@given(
    st.integers(-20, 40),
    st.sampled_from([-2, -1, 0, 1]),
    st.sampled_from([-6, -1, 0, 3]),
    st.sampled_from([2, 3, 4]),
    st.sampled_from(["offset", "quotient", "remainder"]),
)
def test_they_are_what_they_were_and_tvm_simplifies_them_rightly(c: int, v: int, w: int, size: int, kind: str) -> None:
    dividend = V * v + W * w + c
    made = {"offset": offset, "quotient": tirx.floordiv, "remainder": tirx.floormod}[kind](dividend, size)
    up = counting_up(made)
    expected = values(made)
    assert values(up) == expected
    ranges = {var: tvm.ir.Range(0, extent) for var, extent in EXTENTS.items()}
    (simple,) = tvm.sym.iter_affine_map.iter_map_simplify([up], ranges)
    assert values(simple) == expected


def test_what_counts_up_stays_as_it_is() -> None:
    for dividend in (V * 2 + 3, V - W, 5 - V + W * 4):
        made = offset(dividend, 4)
        assert counting_up(made).same_as(made)
    assert not nodes_of(counting_up(tirx.floordiv(tirx.IntImm("int64", 7) - V, W + 1)), tirx.Sub)[1:]


def test_tvm_still_needs_it() -> None:
    """TVM takes what counts down for something else: where this fails, the pass can go."""
    made = offset(11 - V, 2)
    (simple,) = tvm.sym.iter_affine_map.iter_map_simplify([made], {V: tvm.ir.Range(0, EXTENTS[V])})
    assert values(simple) != values(made)
