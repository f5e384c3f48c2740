"""Stages in one kernel, where the model says that this is faster than a kernel for each."""

from __future__ import annotations

from targets.machines import AVX512
from tvm import te, topi

from eqsat_layout.targets.cpu.model.chain import chain_of
from eqsat_layout.targets.cpu.model.chain_model import ChainModel
from eqsat_layout.targets.cpu.single.simplify import simplified
from eqsat_layout.targets.schedules.stages import new_schedule, stages_of


def test_an_epilogue_stores_while_its_reduction_computes() -> None:
    """Tiles were thought to be faster than that: 3x1, 16 to 200 channels of 4x75x75, took 2.3 times as long."""
    data, weights, bias = (te.placeholder(shape, name="p") for shape in ((4, 16, 75, 75), (200, 16, 3, 1), (200, 1, 1)))
    convolution = topi.nn.conv2d_nchw(data, weights, 1, (1, 0, 1, 0), 1)
    func = te.create_prim_func([data, weights, bias, topi.add(convolution, bias)], index_dtype_override="int64")
    chain, model = chain_of(stages_of(simplified(new_schedule(func), AVX512))), ChainModel(AVX512)
    assert chain.in_registers
    assert model.faster(chain, model.apart(chain)) is None
