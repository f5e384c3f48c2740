"""Loops over several cycles of a remainder give the same numbers, and LLVM sees no remainder in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from effort import tries
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tvm import te, tirx

from eqsat_layout.targets.cpu.lowering import pipeline_name
from eqsat_layout.targets.cpu.remainder_loops import split_remainder_loops
from eqsat_layout.targets.registry import target
from eqsat_layout.tir.structural import nodes_of

ROWS, TABLE = 32, 16


def turned(columns: int, size: int, phase: int) -> Any:
    """x times a row of c again and again, with the other sign in the first half of each."""
    x = te.placeholder((ROWS, columns), "float32", name="x")
    c = te.placeholder((TABLE, size), "float32", name="c")

    def element(i: Any, j: Any) -> Any:
        place = (j + phase) % size
        return tirx.if_then_else(size // 2 <= place, x[i, j], x[i, j] * -1.0) * c[i % TABLE, place]

    return te.create_prim_func([x, c, te.compute(x.shape, element)], index_dtype_override="int64")


@given(st.integers(16, 130), st.sampled_from([2, 3, 4, 8, 12, 16, 32, 64]), st.integers(0, 9))
@example(32, 8, 0)
@example(33, 8, 3)
@settings(deadline=None, max_examples=tries(12))
def test_a_remainder_in_a_condition_and_in_a_place_is_right(columns: int, size: int, phase: int) -> None:
    """LLVM 22 read the elements behind a row: Llama's rotary embedding was wrong in all heads but the first."""
    func = turned(columns, size, phase).with_attr("global_symbol", "main")
    built = tirx.build(tvm.IRModule({"main": func}), target=target(None).tvm, pipeline=pipeline_name())
    rng = np.random.default_rng(0)
    x, c = (rng.standard_normal(shape).astype("float32") for shape in ((ROWS, columns), (TABLE, size)))
    out = tvm.runtime.tensor(np.zeros_like(x))
    built["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(c), out)
    place = (np.arange(columns) + phase) % size
    rows = c[np.arange(ROWS) % TABLE][:, place]
    np.testing.assert_array_equal(out.numpy(), np.where(place >= size // 2, x, -x) * rows)


def test_loops_without_such_a_condition_stay_as_they_are() -> None:
    x = te.placeholder((40,), "float32", name="x")
    c = te.placeholder((8,), "float32", name="c")
    func = te.create_prim_func([x, c, te.compute(x.shape, lambda j: x[j] * c[j % 8])])
    mod = tvm.IRModule({"main": tvm.s_tir.transform.LowerOpaqueBlock()(_opaque(func))["main"]})
    assert len(nodes_of(split_remainder_loops()(mod)["main"].body, tirx.For)) == 1


def _opaque(func: Any) -> Any:
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    return tvm.s_tir.transform.ConvertBlocksToOpaque()(mod)
