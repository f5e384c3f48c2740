"""Computations over symbols as if these were known."""

from __future__ import annotations

import pytest
from tvm import te, tirx

from eqsat_layout.errors import LayoutError
from eqsat_layout.tir.computation import SYMBOL_SIZE
from eqsat_layout.tir.signature import analyse
from eqsat_layout.tir.sized import sized

N = tirx.Var("n", "int64")


def doubled(extent):
    x = te.placeholder((extent, 3), name="x")
    result = te.compute((extent, 3), lambda i, j: x[i, j] * 2.0)
    return analyse(te.create_prim_func([x, result], index_dtype_override="int64"))


@pytest.mark.parametrize(("extent", "size"), [(N, SYMBOL_SIZE), (N * 2 + 1, 2 * SYMBOL_SIZE + 1), (5, 5)])
def test_every_extent_is_a_number(extent, size):
    known = sized(doubled(extent))
    assert {buffer.shape for buffer in known.buffers} == {(size, 3)}
    assert known == doubled(size)


def test_what_would_be_no_size_is_refused():
    with pytest.raises(LayoutError, match="is no size"):
        sized(doubled(N - 100))
