"""A convolution of a padded image: tile by tile, the border is never a tensor of its own in memory."""

from __future__ import annotations

import pytest
from targets.machines import HALVES
from tvm import te

from eqsat_layout.targets.cpu.model.chain import Chain, chain_of
from eqsat_layout.targets.cpu.model.chain_model import ChainModel
from eqsat_layout.targets.schedules.stages import new_schedule, stages_of


def padded_convolution(images: int, size: int, *, relu_first: bool = False) -> Chain:
    """A window of 3x3 with steps of two over blocks of 16 channels, 32 in and out."""
    data = te.placeholder((images, 2, size, size, 16), name="data")
    weights = te.placeholder((2, 2, 3, 3, 16, 16), name="weights")

    def element(n, c, h, w, i):
        is_inside = te.all(h >= 1, h <= size, w >= 1, w <= size)
        return te.if_then_else(is_inside, data[n, c, h - 1, w - 1, i], 0.0)

    padded = te.compute((images, 2, size + 2, size + 2, 16), element, name="pad")
    if relu_first:
        padded = te.compute(padded.shape, lambda *i: te.max(padded(*i), 0.0) + te.exp(padded(*i)), name="functions")
    c, r, q, i = (te.reduce_axis((0, extent), name) for extent, name in ((2, "c"), (3, "r"), (3, "q"), (16, "i")))

    def convolved(n, o, h, w, j):
        taps = padded[n, c, 2 * h + r, 2 * w + q, i] * weights[o, c, r, q, i, j]
        return te.sum(taps, axis=[c, r, q, i])

    y = te.compute((images, 2, size // 2, size // 2, 16), convolved, name="convolution")
    z = te.compute(y.shape, lambda *i: te.max(y(*i), 0.0), name="relu")
    func = te.create_prim_func([data, weights, z], index_dtype_override="int64")
    return chain_of(stages_of(new_schedule(func)))


def test_a_large_border_is_made_for_each_tile():
    """MobileNetV4 of eight images: 6.7 ms where all of the padded image was written first, 5.4 since."""
    chain, model = padded_convolution(8, 112), ChainModel(HALVES)
    assert chain.is_padded_reduction
    assert model.faster(chain, model.apart(chain)) is not None


@pytest.mark.parametrize("images", [1, 8])
def test_functions_of_a_border_are_no_pad(images: int):
    assert not padded_convolution(images, 32, relu_first=True).is_padded_reduction
