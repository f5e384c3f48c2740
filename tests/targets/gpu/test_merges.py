"""Long sorts on PoCL and on the simulator, beside NumPy's stable ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from programs import program
from targets.cuda.simulating import compiled as compiled_for_cuda
from targets.opencl.running import compiled, context
from tvm import relax
from tvm.relax import op

from eqsat_layout.soundness.cuda.driver import simulated
from eqsat_layout.targets.gpu import merges

LARGE = np.float32(3e38)


def topk(builder: Any, x: Any) -> Any:
    first = builder.emit(op.topk(x, 5, axis=1))
    return tuple(builder.emit(relax.TupleGetItem(first, number)) for number in range(2))


@pytest.mark.parametrize(("kind", "shape"), [("opencl", (3, 53, 2)), ("cuda", (2, 17))])
def test_merges_are_stable(kind: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """With elements that are equal, a NaN and an infinity; the last piece of rows is shorter than the others."""
    monkeypatch.setattr(merges, "PIECE", 8)
    monkeypatch.setattr(merges, "LONG", 16)
    x = np.random.default_rng(0).integers(0, 9, shape).astype("float32")
    x.reshape(-1)[3], x.reshape(-1)[9] = np.nan, np.inf
    mod = program(topk, shape)
    run = compiled(mod).on(context()) if kind == "opencl" else simulated(compiled_for_cuda(mod), 2)
    keys = np.where(np.isnan(x), LARGE, np.where(np.isinf(x), LARGE / 2, x))
    first = np.take(np.argsort(-keys, 1, kind="stable"), range(5), 1)
    expected = (np.take_along_axis(x, first, 1), first)
    for ours, theirs in zip(run(x), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_long_rows_are_merged() -> None:
    """All 25 million pairs of a row were compared."""
    made = compiled(program(lambda builder, x: builder.emit(op.sort(x, 0)), (5000,)))
    names = [launch.op.rstrip("0123456789") for function in made.plan.functions for launch in function.launches]
    assert names == ["sort_pieces", "sort_pieces", *["merge"] * 5, "sort"]
    x = np.random.default_rng(0).standard_normal(5000).astype("float32")
    np.testing.assert_array_equal(made.on(context())(x), np.sort(x))
