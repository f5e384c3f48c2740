"""Products whose results end in axes of one element are done in vectors."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from eqsat_layout.targets.cpu.machine import machine_of
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.targets.cpu.single.unit_axes import unit_axes_first
from eqsat_layout.targets.schedules.stages import new_schedule
from eqsat_layout.tir.structural import nodes_of

IMAGES, INPUTS, OUTPUTS = 3, 24, 32


def squeezed(has_epilogue: bool, rows: int = 1) -> tirx.PrimFunc:
    """A convolution of ``rows`` pixels, channels first and weights in blocks, as a squeeze-and-excite module has it."""
    x = te.placeholder((IMAGES, INPUTS, rows, 1), name="x")
    w = te.placeholder((OUTPUTS // 16, INPUTS, 1, 1, 16), name="w")
    c, ry, rx = (te.reduce_axis((0, extent), name) for name, extent in (("c", INPUTS), ("ry", 1), ("rx", 1)))
    y = te.compute(
        (IMAGES, OUTPUTS, rows, 1),
        lambda n, o, i, j: te.sum(x[n, c, i + ry, j + rx] * w[o // 16, c, ry, rx, o % 16], [c, ry, rx]),
        "y",
    )
    z = te.compute(y.shape, lambda *i: te.max(y[i], tirx.const(0, "float32")), "z") if has_epilogue else y
    func = te.create_prim_func([x, w, z], index_dtype_override="int64")
    return func.with_attr("global_symbol", "main")


@pytest.mark.parametrize("has_epilogue", [True, False])
def test_channels_are_in_vectors(has_epilogue: bool) -> None:
    """MobileNetV3 with eight images took 96 us instead of 8 for one of these."""
    machine = machine_of(tvm.target.Target({"kind": "llvm", "num-cores": 1}))
    func = squeezed(has_epilogue)
    done = schedule_primfunc(func, machine)
    lanes = [int(loop.extent) for loop in nodes_of(done.body, tirx.For) if loop.kind == tirx.ForKind.VECTORIZED]
    assert lanes
    assert all(lane == min(machine.lanes(4), 16) for lane in lanes)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype("float32") for s in ((IMAGES, INPUTS, 1, 1), (2, INPUTS, 1, 1, 16)))
    expected = np.einsum("nchw,oc->no", x, w.transpose(0, 4, 1, 2, 3).reshape(OUTPUTS, INPUTS))
    got = tvm.runtime.tensor(np.zeros((IMAGES, OUTPUTS, 1, 1), "float32"))
    tvm.compile(tvm.IRModule({"main": done}), "llvm")["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(w), got)
    np.testing.assert_allclose(
        got.numpy()[..., 0, 0], np.maximum(expected, 0) if has_epilogue else expected, rtol=1e-4, atol=1e-4
    )


def test_others_stay() -> None:
    """A result of one element, and one whose last axis has more."""
    x = te.placeholder((1, INPUTS), name="x")
    c = te.reduce_axis((0, INPUTS), "c")
    one = te.create_prim_func([x, te.compute((1,), lambda i: te.sum(x[i, c], [c]), "y")], index_dtype_override="int64")
    y = te.placeholder((INPUTS, 5), name="y")
    rows = te.compute((1, 5), lambda _, j: te.sum(y[c, j], [c]), "z")
    for func in (one, te.create_prim_func([y, rows], index_dtype_override="int64")):
        sch = new_schedule(func)
        assert unit_axes_first(sch) is sch
