"""Dot products of bytes in vectors of any length: as instructions where these take them, written out elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import tirx

from eqsat_layout.targets.cpu.build import build_scheduled
from eqsat_layout.targets.cpu.dot_products import BYTES_OF_WORD, byte_products
from eqsat_layout.targets.cpu.machine import machine_of
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
