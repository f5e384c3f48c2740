"""Bytes that pass through memory are those of the cache lines that are read, whatever the operand's size."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import te, tirx

from eqsat_layout.cost.model import Roofline
from eqsat_layout.cost.touched_memory import touched_share
from eqsat_layout.cost.vectorise import Heaviest, heaviest
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.maps import UNDEF, Format, IndexMap
from eqsat_layout.tir.computation import Computation
from eqsat_layout.tir.signature import analyse

SHAPE = (8, 32, 64)


def copy(*index: Any, shape: tuple[int, ...] = SHAPE, pad: int = 0) -> Computation:
    """Element ``index`` of an operand of ``SHAPE``, behind ``pad`` zeros on every side of its last axis."""
    x = te.placeholder(SHAPE, name="x")
    source = x
    if pad:
        source = te.compute(
            (*SHAPE[:2], SHAPE[2] + 2 * pad),
            lambda i, j, k: tirx.if_then_else(
                tirx.all(k >= pad, k < SHAPE[2] + pad), x[i, j, k - pad], tirx.const(0.0, "float32")
            ),
        )
    (at,) = index
    result = te.compute(shape, lambda *axes: source[at(*axes)])
    found = analyse(te.create_prim_func([x, result], index_dtype_override="int64"))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("index", "shape", "share"),
    [
        pytest.param(lambda i, j, k: (i, j, k), SHAPE, 1.0, id="all"),
        pytest.param(lambda i, j, k: (i, 4 * j, k), (8, 8, 64), 0.25, id="every fourth row"),
        pytest.param(lambda i, j, k: (i, j, 2 * k), (8, 32, 32), 1.0, id="every second element"),
        pytest.param(lambda i, j, k: (i, 2 * j, 32 * k), (8, 16, 2), 0.25, id="an element of every second line"),
        pytest.param(lambda i, j, k: (i, j, 0 * k), (8, 32, 64), 1 / 4, id="one element for all"),
    ],
)
def test_strides_step_over_lines(index: Any, shape: tuple[int, ...], share: float) -> None:
    """A slice of every fourth row was taken to read all of its operand, 4 times what it reads."""
    found = copy(index, shape=shape)
    assert touched_share(found, found.operands[0], Format.row_major(SHAPE), line=16) == pytest.approx(share)


def test_a_crop_reads_no_padding() -> None:
    """Only elements are read, and what shares lines with them."""
    costs = Roofline(rewrite_bandwidth=1.0, launch=0.0)
    rows = Format.make(IndexMap.identity((8, 32, 64)), padding=((0, 0), (0, 24), (0, 0)), fill=UNDEF)
    lanes = Format.make(IndexMap.identity((8, 32, 64)), padding=((0, 0), (0, 0), (0, 60)), fill=UNDEF)
    few, narrow = TensorType((8, 8, 64), "float32"), TensorType((8, 32, 4), "float32")
    assert costs.convert(few, rows, Format.row_major(few.shape)) == 4 * (8 * 8 * 64) * 2
    assert costs.convert(narrow, lanes, Format.row_major(narrow.shape)) == 4 * (8 * 32 * 16 + 8 * 32 * 4)


def test_short_runs_are_copied_element_by_element() -> None:
    """The pad that became part of a gather was judged, and the gather taken for a copy in vectors."""
    formats = [Format.row_major(SHAPE)], [Format.row_major((8, 30, 32, 7))]
    windows = copy(lambda i, x, j, r: (i, j, 2 * x + r), shape=(8, 30, 32, 7), pad=2)
    gather = heaviest(windows, *formats)
    assert gather is not None
    assert gather.run == 7
    whole = copy(lambda i, j, k: (i, j, k))
    streamed = heaviest(whole, [Format.row_major(SHAPE)], [Format.row_major(SHAPE)])
    assert streamed is not None
    assert streamed.run == 8 * 32 * 64


def gathered(rows: int, length: int) -> Computation:
    """Rows of a table, by numbers that are known at run time only."""
    table, numbers = te.placeholder((64, length), name="table"), te.placeholder((rows,), dtype="int64", name="numbers")
    result = te.compute((rows, length), lambda i, j: table[numbers[i], j])
    found = analyse(te.create_prim_func([table, numbers, result], index_dtype_override="int64"))
    assert found is not None
    return found


@pytest.mark.parametrize(("length", "run"), [(64, 64), (4, 4)])
def test_rows_of_a_table_are_copied_in_one_piece(length: int, run: int) -> None:
    """A lookup of whole rows was costed as a copy of single elements, ten times what it takes."""
    found = gathered(128, length)
    formats = [Format.row_major(found.buffers[number].shape) for number in (*found.operands, *found.results)]
    heavy = heaviest(found, formats[:-1], formats[-1:])
    assert heavy is not None
    assert heavy.run == run


def test_sums_of_rows_are_in_vectors() -> None:
    """Sums along memory were costed as if their elements were read one by one."""
    x = te.placeholder((64, 256), name="x")
    k = te.reduce_axis((0, 256), "k")
    result = te.compute((64,), lambda i: te.sum(x[i, k], axis=k))
    found = analyse(te.create_prim_func([x, result], index_dtype_override="int64"))
    assert found is not None
    heavy = heaviest(found, [Format.row_major((64, 256))], [Format.row_major((64,))])
    assert heavy is not None
    assert heavy.efficiency(16) == pytest.approx(0.3)


def of_the_last_axis(result: te.Tensor, x: te.Tensor) -> Heaviest:
    """Of a computation of one operand, both as they are written."""
    found = analyse(te.create_prim_func([x, result], index_dtype_override="int64"))
    assert found is not None
    heavy = heaviest(found, *([Format.row_major([int(e) for e in t.shape])] for t in (x, result)))
    assert heavy is not None
    return heavy


def test_indices_that_are_no_digits_are_evaluated() -> None:
    """Sums over rows (col2im) were a gather each, written channels first as well as last: 3.6 times too cheap there."""
    x = te.placeholder((64, 4096), name="x")
    halved = te.compute((64, 64), lambda i, j: x[i, j - j % -2 - (j + 3) // 5] + 1.0)
    assert of_the_last_axis(halved, x).lookups(16) == 1 / 16, "vectors are picked out of two"
    far = te.compute((64, 64), lambda i, j: x[i, (j - j % -2) * 60] + x[i, (j - j % -2) * 60 + 1])
    assert of_the_last_axis(far, x).lookups(16) == 2
    along = te.compute((64, 64), lambda i, j: x[i, (i - i % -2) * 60 + j] + 1.0)
    assert (of_the_last_axis(along, x).lookups(16), of_the_last_axis(along, x).efficiency(16)) == (0, 1.0)
    short = te.compute((64, 12, 3), lambda i, j, k: x[i, (j - j % -2) * 60 + k] + 1.0)
    assert of_the_last_axis(short, x).lookups(16) == 1
    guarded = te.compute((64, 64), lambda i, j: tirx.if_then_else(j > 0, x[i, i // j], 0.0) + 1.0)
    assert of_the_last_axis(guarded, x).lookups(16) == 1 / 16, "and nothing is said of a division by zero"


def test_a_number_beside_lookups_is_one_element() -> None:
    """It has no indices: the cost of an index that is checked (`take`) stopped with an empty maximum."""
    x, bound = te.placeholder((64,), name="x"), te.placeholder((), name="bound")
    result = te.compute((4,), lambda i: te.min(x[i - i % -2], bound[()]))
    found = analyse(te.create_prim_func([x, bound, result], index_dtype_override="int64"))
    assert found is not None
    heavy = heaviest(found, [Format.row_major((64,)), Format.row_major(())], [Format.row_major((4,))])
    assert heavy is not None
    assert heavy.lookups(16) > 0


def test_what_is_looked_up_along_a_row_takes_a_lookup_each() -> None:
    """Resizes along rows were costed at a thirtieth of the peak for all that they compute: 60 to 600 times too much."""
    x, places = te.placeholder((64, 64), name="x"), te.placeholder((64,), dtype="int64", name="places")
    result = te.compute((64, 64), lambda i, j: x[i, places[j]] * 0.5 + x[i, places[j] + 1] * 0.5)
    found = analyse(te.create_prim_func([x, places, result], index_dtype_override="int64"))
    assert found is not None
    heavy = heaviest(found, [Format.row_major((64, 64)), Format.row_major((64,))], [Format.row_major((64, 64))])
    assert heavy is not None
    assert heavy.lookups(16) == 1
    assert heavy.efficiency(16) == 1.0
    across = [Format.make(IndexMap.permutation((64, 64), (1, 0))), Format.row_major((64,))]
    turned = heaviest(found, across, [Format.make(IndexMap.permutation((64, 64), (1, 0)))])
    assert turned is not None
    assert turned.lookups(16) == 2 / 64, "one for each run"
