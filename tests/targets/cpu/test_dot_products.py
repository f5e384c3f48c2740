"""Dot products of bytes in vectors of any length: as instructions where these take them, written out elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from targets.cpu.byte_kernels import HERE, operands, ran
from tvm import te, tirx

from eqsat_layout.targets.cpu.build import build_scheduled
from eqsat_layout.targets.cpu.dot_products import BYTES_OF_WORD, byte_products
from eqsat_layout.targets.cpu.machine import machine_of
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.targets.cpu.target import normalize_target


def products(lanes: int) -> Any:
    """Words of bytes, unsigned by signed, added to what is there."""
    totals, unsigned, signed = (tirx.decl_buffer((lanes,), "int32", name) for name in ("total", "unsigned", "signed"))
    place = [tirx.Ramp(0, 1, lanes)]
    total, *factors = (tirx.BufferLoad(buffer, place) for buffer in (totals, unsigned, signed))
    store = tirx.BufferStore(totals, byte_products(total, *factors), place)
    return tirx.PrimFunc([unsigned, signed, totals], store).with_attr("global_symbol", "main")


@pytest.mark.skipif(not machine_of(normalize_target()).byte_products, reason="this CPU has no such instruction")
@pytest.mark.parametrize("lanes", [3, 8, 16, 24, 32])
def test_every_word_is_counted_in_its_place(lanes: int) -> None:
    rng = np.random.default_rng(0)
    data = rng.integers(0, 256, lanes * BYTES_OF_WORD).astype("uint8")
    weights = rng.integers(-128, 128, lanes * BYTES_OF_WORD).astype("int8")
    start = rng.integers(-100, 100, lanes).astype("int32")
    got = tvm.runtime.tensor(start)
    built = build_scheduled(tvm.IRModule({"main": products(lanes)}), normalize_target())
    built["main"](tvm.runtime.tensor(data.view("int32")), tvm.runtime.tensor(weights.view("int32")), got)
    wanted = start + (data.astype("int32") * weights).reshape(lanes, BYTES_OF_WORD).sum(axis=1)
    np.testing.assert_array_equal(got.numpy(), wanted)


@pytest.mark.skipif(not machine_of(normalize_target()).byte_products, reason="this CPU has no such instruction")
@pytest.mark.parametrize(("taps", "outputs"), [(2, 24), (2, 40)])
def test_columns_that_lie_apart_are_all_counted(taps: int, outputs: int) -> None:
    """LLVM 22 lost one of eight columns that were done in turn, each with shifts and masks."""
    places, channels = 7, 8
    data = te.placeholder((channels // 4, places + taps - 1, 4), "uint8", "data")
    weights = te.placeholder((outputs, taps, channels), "int8", "weights")
    r, c = te.reduce_axis((0, taps), "r"), te.reduce_axis((0, channels), "c")

    def element(x: Any, o: Any) -> Any:
        return te.sum(data[c // 4, x + r, c % 4].astype("int32") * weights[o, r, c].astype("int32"), axis=[r, c])

    func = te.create_prim_func([data, weights, te.compute((places, outputs), element, name="sums")])
    arrays = operands(func)
    one, other = (array.astype("int32") for array in arrays[:2])
    rows = np.moveaxis(one, 0, 1).reshape(-1, channels)
    wanted = sum(rows[tap : tap + places] @ other[:, tap].T for tap in range(taps))
    np.testing.assert_array_equal(ran(schedule_primfunc(func, HERE.machine), arrays), wanted)
