"""Stages in one kernel, where the model says that this is faster than a kernel for each."""

from __future__ import annotations

from typing import Any

import pytest
from targets.machines import AVX2, AVX512
from tvm import te, topi

from eqsat_layout.targets.cpu.model.chain import chain_of
from eqsat_layout.targets.cpu.model.chain_model import ChainModel
from eqsat_layout.targets.cpu.single.simplify import simplified_schedule
from eqsat_layout.targets.schedules.stages import new_schedule, stages_of


def test_an_epilogue_stores_while_its_reduction_computes() -> None:
    """Tiles were thought to be faster than that: 3x1, 16 to 200 channels of 4x75x75, took 2.3 times as long."""
    data, weights, bias = (te.placeholder(shape, name="p") for shape in ((4, 16, 75, 75), (200, 16, 3, 1), (200, 1, 1)))
    convolution = topi.nn.conv2d_nchw(data, weights, 1, (1, 0, 1, 0), 1)
    func = te.create_prim_func([data, weights, bias, topi.add(convolution, bias)], index_dtype_override="int64")
    chain, model = chain_of(stages_of(simplified_schedule(new_schedule(func), AVX512))), ChainModel(AVX512)
    assert chain.in_registers
    assert model.faster(chain, model.apart(chain)) is None


@pytest.mark.parametrize("size", [128, 256])
def test_what_tiles_of_a_chain_read_shares_few_sets_too(size: int) -> None:
    """Of two pointwise convolutions in one kernel, the first read its data as if all of it were in L1: 2.6 times as
    long as two kernels that copy it."""
    data, first, second = (te.placeholder(shape, name="p") for shape in ((64, size, size), (64, 64), (24, 64)))

    def pointwise(given: Any, weights: Any) -> Any:
        c = te.reduce_axis((0, 64), "c")
        outputs = weights.shape[0]
        return te.compute((outputs, size, size), lambda o, y, x: te.sum(given[c, y, x] * weights[o, c], c), "sums")

    both = pointwise(topi.nn.relu(pointwise(data, first)), second)
    func = te.create_prim_func([data, first, second, both], index_dtype_override="int64")
    chain, model = chain_of(stages_of(simplified_schedule(new_schedule(func), AVX2))), ChainModel(AVX2)
    assert model.faster(chain, model.apart(chain)) is None
