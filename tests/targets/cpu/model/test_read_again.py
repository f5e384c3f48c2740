"""Data that the last-level cache does not hold are read from memory for every tile that needs them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from targets.machines import AVX2, AVX512
from tvm import te, topi

from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.chain import chain_of
from eqsat_layout.targets.cpu.model.chain_model import ChainModel
from eqsat_layout.targets.cpu.model.read_again import read_again
from eqsat_layout.targets.schedules.stages import new_schedule, stages_of


def over_frames(size: int, *, padded: bool = True) -> Any:
    """A window of seven frames in steps of two, over 64 channels in blocks of 16."""
    frames = 16 if padded else 22
    data = te.placeholder((4, frames, size, size, 16), name="data")
    weights = te.placeholder((4, 4, 7, 16, 16), name="weights")
    own = topi.nn.pad(data, [0, 3, 0, 0, 0], [0, 3, 0, 0, 0]) if padded else data
    b, t, i = (te.reduce_axis((0, extent), name) for extent, name in ((4, "b"), (7, "t"), (16, "i")))
    sums = te.compute(
        (4, 8, size, size, 16),
        lambda r, f, y, x, o: te.sum(own[b, 2 * f + t, y, x, i] * weights[r, b, t, i, o], [b, t, i]),
        "sums",
    )
    return te.create_prim_func([data, weights, sums], index_dtype_override="int64")


@pytest.mark.parametrize("machine", [AVX2, AVX512])
def test_frames_far_apart_are_convolved_in_tiles(machine: CpuMachine) -> None:
    """S3D, 7x1x1 over 64 channels of 16x112x112: three times as long as its products, half of the network's time."""
    chain, model = chain_of(stages_of(new_schedule(over_frames(112)))), ChainModel(replace(machine, cores=1))
    apart = model.apart(chain)
    tiles = model.faster(chain, apart)
    assert tiles is not None
    assert tiles.nanoseconds < 0.7 * apart


def test_what_the_cache_holds_is_read_once() -> None:
    (stage,) = stages_of(new_schedule(over_frames(28, padded=False)))
    assert [read_again(stage, load, AVX2) for load in stage.loads] == [0.0, 0.0]


def test_each_frame_is_read_for_half_of_a_window_and_every_tile_of_results() -> None:
    (stage,) = stages_of(new_schedule(over_frames(112, padded=False)))
    data, weights = stage.loads
    again = read_again(stage, data, AVX2)
    assert again > 3 * 2.5 * data.buffer_bytes
    assert read_again(stage, weights, AVX2) == 0.0
