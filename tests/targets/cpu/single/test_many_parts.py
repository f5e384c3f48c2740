"""Concats of many parts that pad or transpose are in vectors."""

from __future__ import annotations

import numpy as np
import tvm
from programs import program
from tvm import relax, s_tir, tirx
from tvm.relax import op as R

import eqsat_layout
from eqsat_layout.graph.legalize import legalize
from eqsat_layout.notes import Notes
from eqsat_layout.passes.fuse import fuse
from eqsat_layout.targets.cpu.machine import machine_of
from eqsat_layout.targets.cpu.schedule import schedule_module
from eqsat_layout.tir.structural import nodes_of

WINDOW, SIZE, CHANNELS = 3, 32, 4


def shifted(b, x):
    """The nine neighbours of every pixel, as involution multiplies them by weights; ``x`` has its channels last."""
    first = b.emit(R.permute_dims(x, [0, 3, 1, 2]))
    padded = b.emit(R.nn.pad(first, [0, 0, 0, 0, 1, 1, 1, 1]))
    places = [(i, j) for i in range(WINDOW) for j in range(WINDOW)]
    parts = [b.emit(R.strided_slice(padded, [2, 3], [i, j], [i + SIZE, j + SIZE])) for i, j in places]
    return b.emit(R.stack(parts, 2))


def test_neighbours_of_pixels() -> None:
    """25 of them took six nanoseconds each, with 25 conditions (involution)."""
    mod = program(shifted, (1, SIZE, SIZE, CHANNELS))
    machine = machine_of(tvm.target.Target({"kind": "llvm", "num-cores": 1}))
    fused = fuse(legalize(mod), Notes(strict=True))
    scheduled = schedule_module(fused, machine, Notes(strict=True))
    vectors = [
        loop
        for func in scheduled.functions.values()
        if isinstance(func, tirx.PrimFunc)
        for loop in nodes_of(func.body, tirx.For)
        if loop.kind == tirx.ForKind.VECTORIZED
        and any("stack" in str(block.name_hint) for block in nodes_of(loop.body, s_tir.SBlock))
    ]
    assert vectors
    x = np.random.default_rng(0).standard_normal((1, SIZE, SIZE, CHANNELS)).astype("float32")
    padded = np.pad(x.transpose(0, 3, 1, 2), [(0, 0), (0, 0), (1, 1), (1, 1)])
    expected = [padded[:, :, i : i + SIZE, j : j + SIZE] for i in range(WINDOW) for j in range(WINDOW)]
    run = relax.VirtualMachine(eqsat_layout.compile(mod), tvm.cpu())["main"]
    np.testing.assert_array_equal(run(tvm.runtime.tensor(x)).numpy(), np.stack(expected, 2))
