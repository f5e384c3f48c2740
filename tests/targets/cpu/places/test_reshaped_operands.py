"""An operand that is read as another shape is one of that shape, in the kernel's schedule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.build import build_scheduled
from eqsat_layout.targets.cpu.machine import PRESETS
from eqsat_layout.targets.cpu.places.box import Box, in_boxes
from eqsat_layout.targets.cpu.places.reshaped_operands import reshaped_operands
from eqsat_layout.targets.cpu.schedule import joined_primfunc
from eqsat_layout.targets.cpu.target import normalize_target
from eqsat_layout.tir.structural import nodes_of

CHANNELS, SIZE, GROUPS = 6, 9, 2


LENGTH = CHANNELS // GROUPS * SIZE * SIZE


def deviations(*, is_flipped: bool = False) -> Any:
    """From the sums of groups of channels; ``is_flipped``: in another order of the operand's rows than the sums."""
    data = te.placeholder((1, CHANNELS, SIZE, SIZE), name="data")

    def element(g: Any, at: Any, column: Any) -> Any:
        return data[0, g * (CHANNELS // GROUPS) + at // (SIZE * SIZE), at % (SIZE * SIZE) // SIZE, column]

    k = te.reduce_axis((0, LENGTH), "k")
    sums = te.compute((1, GROUPS), lambda _, g: te.sum(element(g, k, k % SIZE), k), name="sums")

    def deviation(_: Any, g: Any, at: Any) -> Any:
        return element(g, at, SIZE - 1 - at % SIZE if is_flipped else at % SIZE) - sums[0, g]

    result = te.compute((1, GROUPS, LENGTH), deviation, name="result")
    return te.create_prim_func([data, result], index_dtype_override="int64")


def quotients(func: Any) -> list[Any]:
    loads = [load for load in nodes_of(func.body, tvm.ir.TensorLoad) if load.source in func.params]
    return [
        found for load in loads for index in load.indices for found in nodes_of(index, tirx.FloorDiv, tirx.FloorMod)
    ]


def test_groups_of_channels_are_rows() -> None:
    """A group norm of 56 x 56 took seven times as long as one of 64 x 64: vectors were taken apart by quotients."""
    func = deviations()
    assert quotients(func)
    made = reshaped_operands(func)
    assert not quotients(made.func)
    assert list(map(int, made.func.params[0].ty.shape)) == [GROUPS, LENGTH]
    joined = joined_primfunc(func, PRESETS["avx2"], passes=9, nanoseconds=1e9)
    data = np.random.default_rng(0).standard_normal((1, CHANNELS, SIZE, SIZE)).astype("float32")
    rows = data.reshape(1, GROUPS, -1)
    result = tvm.runtime.tensor(np.full_like(rows, np.nan))
    built = build_scheduled(tvm.IRModule({"main": joined.with_attr("global_symbol", "main")}), normalize_target())
    built["main"](tvm.runtime.tensor(data), result)
    np.testing.assert_allclose(result.numpy(), rows - rows.sum(2, keepdims=True), atol=1e-4)


def test_rows_that_run_on_are_in_no_box() -> None:
    """Such a kernel reaches beyond the first row of its operand, which in a larger tensor is something else."""
    joined = joined_primfunc(deviations(), PRESETS["avx2"], passes=9, nanoseconds=1e9)
    shape = (1, CHANNELS, SIZE, SIZE)
    with pytest.raises(Refused, match="run on"):
        in_boxes(joined, {0: Box(shape, (1, CHANNELS, SIZE, 2 * SIZE), (0, 1, 2, 3), (0, 0, 0, SIZE))})


def test_operands_in_two_shapes_stay() -> None:
    with pytest.raises(Refused, match="no operand"):
        reshaped_operands(deviations(is_flipped=True))
