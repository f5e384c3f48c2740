"""Reductions along rows of any length, in whole vectors: the last one overlaps the one before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from targets.machines import AVX2
from tvm import te, tirx

from eqsat_layout.targets.cpu.lowering import pipeline_name
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.targets.cpu.single.whole_vectors import in_whole_vectors
from eqsat_layout.targets.schedules.stages import new_schedule
from eqsat_layout.tir.structural import nodes_of

ROWS = 6
KINDS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sum": (te.sum, np.sum),
    "largest": (te.max, np.max),
    "least": (te.min, np.min),
}


def reduced(kind: str, extent: int, scale: float = 1.0) -> Any:
    """Rows of ``extent`` elements reduced, and an epilogue."""
    x = te.placeholder((ROWS, extent), "float32", name="x")
    k = te.reduce_axis((0, extent))
    found = te.compute((ROWS,), lambda i: KINDS[kind][0](x[i, k], axis=k))
    result = te.compute((ROWS,), lambda i: found[i] * tirx.const(scale, "float32"))
    return te.create_prim_func([x, result], index_dtype_override="int64")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("extent", [33, 49, 197, 255])
def test_every_element_counts_once(kind: str, extent: int) -> None:
    numbers = np.random.default_rng(0).integers(-9, 9, (ROWS, extent)).astype("float32")
    done = schedule_primfunc(reduced(kind, extent, 0.5), AVX2)
    mod = tvm.IRModule({"main": done.with_attr("global_symbol", "main")})
    out = tvm.runtime.tensor(np.zeros(ROWS, "float32"))
    tirx.build(mod, target={"kind": "llvm"}, pipeline=pipeline_name())["main"](tvm.runtime.tensor(numbers), out)
    np.testing.assert_array_equal(out.numpy(), KINDS[kind][1](numbers, 1) * 0.5)


@pytest.mark.parametrize("extent", [197, 577])
def test_rows_of_prime_length_are_summed_in_vectors(extent: int) -> None:
    """They were added up one by one, in 3 to 5 times as long."""
    done = schedule_primfunc(reduced("sum", extent), AVX2)
    lanes = [loop for loop in nodes_of(done.body, tirx.For) if loop.kind == tirx.ForKind.VECTORIZED]
    assert any(int(loop.extent) == 8 for loop in lanes)


def test_any_number_of_rows() -> None:
    """Tensors between the stages have the number of rows among their extents, which was taken for a known one."""
    rows, step = tirx.Var("rows", "int64"), te.reduce_axis((0, 17))
    data = te.placeholder((rows, 17), name="data")
    costly = te.compute((rows, 17), lambda y, x: te.exp(data[y, x]), name="costly")
    sums = te.compute((rows,), lambda y: te.sum(costly[y, step], step), name="sums")
    func = te.create_prim_func([data, sums], index_dtype_override="int64")
    cut = in_whole_vectors(new_schedule(func), 8, 17)
    (between,) = cut.mod["main"].body.block.alloc_buffers
    assert [isinstance(extent, tirx.IntImm) and int(extent) for extent in between.ty.shape] == [False, 3, 8]
