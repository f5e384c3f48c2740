"""What costs know of vectors that slide along the data of windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from targets.machines import AVX2, AVX512, HALVES
from tvm import te, topi

from eqsat_layout.cost.vectorise import SLIDING, heaviest
from eqsat_layout.maps import Format, IndexMap
from eqsat_layout.targets.cpu.costs import default_costs
from eqsat_layout.tir.signature import analyse


def share(stride: int, groups: int, *, in_phases: bool) -> float:
    """Of peak, channels first, where sliding costs a tenth."""
    data, weights = te.placeholder((1, 16, 64, 64)), te.placeholder((16, 16 // groups, 3, 3))
    sums: Any = topi.nn.group_conv2d_nchw(data, weights, stride, 1, 1, groups, "float32")
    computation = analyse(te.create_prim_func([data, weights, sums], index_dtype_override="int64"))
    assert computation is not None
    formats = [Format.row_major(computation.buffers[n].shape) for n in (*computation.operands, *computation.results)]
    heavy = heaviest(computation, formats[:2], formats[2:])
    assert heavy is not None
    return heavy.efficiency(8, sliding=0.9, in_phases=in_phases)


@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_vectors_are_read_for_one_product_each(stride: int) -> None:
    """They slid at the cost of those that many outputs share: 9x9 windows of 14 columns were left channels first."""
    assert share(stride, 16, in_phases=True) <= SLIDING < share(stride, 4, in_phases=True)


def test_strides_cost_little_where_kernels_copy_phases() -> None:
    assert share(2, 4, in_phases=False) < SLIDING < share(2, 4, in_phases=True)


def test_few_channels_of_a_group_are_worth_less_than_their_rows() -> None:
    """Of 6 channels last, each element is broadcast for one short vector: groups took 2.1 times as long (Zen 4)."""
    data, weights = te.placeholder((1, 8, 6, 30, 30)), te.placeholder((8, 6, 6, 3, 3))
    c, y, x = (te.reduce_axis((0, extent)) for extent in (6, 3, 3))

    def element(n: Any, g: Any, o: Any, h: Any, w: Any) -> Any:
        return te.sum(data[n, g, c, h + y, w + x] * weights[g, o, c, y, x], axis=[c, y, x])

    sums = te.compute((1, 8, 6, 28, 28), element)
    computation = analyse(te.create_prim_func([data, weights, sums], index_dtype_override="int64"))
    assert computation is not None

    def efficiency(*orders: Sequence[int]) -> float:
        shapes = (computation.buffers[n].shape for n in (*computation.operands, *computation.results))
        formats = [Format.make(IndexMap.permutation(shape, order)) for shape, order in zip(shapes, orders, strict=True)]
        heavy = heaviest(computation, formats[:2], formats[2:])
        assert heavy is not None
        return heavy.efficiency(8, sliding=default_costs(HALVES).sliding)

    rows = efficiency(range(5), range(5), range(5))
    last = efficiency((0, 1, 3, 4, 2), (0, 3, 4, 2, 1), (0, 1, 3, 4, 2))
    assert 0.5 < last < rows < 0.8


def test_vectors_as_long_as_cache_lines_slide_at_a_cost() -> None:
    assert default_costs(AVX512).sliding == SLIDING < default_costs(AVX2).sliding
    assert default_costs(replace(AVX2, vector_bytes=64)).sliding == SLIDING
