"""What costs know of vectors that slide along the data of windows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from targets.machines import AVX2, AVX512
from tvm import te, topi

from eqsat_layout.cost.vectorise import SLIDING, heaviest
from eqsat_layout.maps import Format
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


def test_vectors_as_long_as_cache_lines_slide_at_a_cost() -> None:
    assert default_costs(AVX512).sliding == SLIDING < default_costs(AVX2).sliding
    assert default_costs(replace(AVX2, vector_bytes=64)).sliding == SLIDING
