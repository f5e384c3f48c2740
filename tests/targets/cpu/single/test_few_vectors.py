"""Channels that are shuffled, in blocks: whole vectors are read, and numbers stay what they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from eqsat_layout.targets.cpu.build import build_scheduled
from eqsat_layout.targets.cpu.machine import PRESETS
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.targets.cpu.target import normalize_target
from eqsat_layout.tir.structural import nodes_of

ROWS = 5


def shuffle(channels: int, groups: int, block: int) -> Any:
    """Channel ``groups * i + j`` of the result is number ``i`` of group ``j``, plus a bias that it brings along."""
    blocks = channels // block
    data = te.placeholder((blocks, ROWS, block), name="data")
    bias = te.placeholder((blocks, block), name="bias")

    def element(o: Any, row: Any, i: Any) -> Any:
        at = o * block + i
        source = at % groups * (channels // groups) + at // groups
        return data[source // block, row, source % block] + bias[source // block, source % block]

    result = te.compute((blocks, ROWS, block), element, name="result")
    return te.create_prim_func([data, bias, result], index_dtype_override="int64")


@pytest.mark.parametrize(
    ("channels", "groups", "block", "preset"),
    [(96, 3, 16, "avx512"), (64, 4, 16, "avx512"), (48, 2, 8, "avx2"), (96, 3, 32, "avx512"), (72, 3, 24, "avx512")],
)
def test_shuffled_channels_are_read_in_whole_vectors(channels: int, groups: int, block: int, preset: str) -> None:
    """They were read one by one, and took two to four times as long (ShuffleNet). Of 24 the second vector of 16 begins
    at 8."""
    scheduled = schedule_primfunc(shuffle(channels, groups, block), PRESETS[preset])
    loads = nodes_of(scheduled.body, tvm.ir.TensorLoad)
    assert loads
    assert all(isinstance(load.indices[-1], tirx.Ramp) for load in loads)
    rng = np.random.default_rng(0)
    blocks = channels // block
    data, bias = (rng.uniform(-1, 1, size).astype("float32") for size in ((blocks, ROWS, block), (blocks, block)))
    got = tvm.runtime.tensor(np.zeros((blocks, ROWS, block), "float32"))
    built = build_scheduled(tvm.IRModule({"main": scheduled.with_attr("global_symbol", "main")}), normalize_target())
    built["main"](tvm.runtime.tensor(data), tvm.runtime.tensor(bias), got)
    rows = (data + bias[:, None]).transpose(1, 0, 2).reshape(ROWS, groups, channels // groups)
    wanted = rows.swapaxes(1, 2).reshape(ROWS, blocks, block).transpose(1, 0, 2)
    np.testing.assert_array_equal(got.numpy(), wanted)
