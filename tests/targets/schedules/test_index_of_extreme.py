"""``argmax`` and ``argmin`` give the first of equal extremes, in vectors and with indices in half as many bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from effort import tries
from hypothesis import given, settings
from hypothesis import strategies as st
from targets.machines import AVX2
from tvm import relax, te, tirx

from eqsat_layout.graph.legalize import legalize
from eqsat_layout.targets.cpu.lowering import pipeline_name
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.targets.schedules.index_of_extreme import split_extremes
from eqsat_layout.targets.schedules.narrow_indices import narrow_indices
from eqsat_layout.tir.structural import nodes_of

OPS = {"argmax": relax.op.argmax, "argmin": relax.op.argmin}


def kernel(name: str, shape: tuple[int, ...], axis: int, dtype: str = "float32") -> Any:
    """As Relax's op is legalised."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(OPS[name](x, axis)))
    return legalize(builder.get())[name]


def ran(func: Any, x: Any, shape: tuple[int, ...]) -> Any:
    out = tvm.runtime.tensor(np.full(shape, 7777, str(func.params[1].ty.dtype)))
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    tirx.build(mod, target={"kind": "llvm"}, pipeline=pipeline_name())["main"](tvm.runtime.tensor(x), out)
    return out.numpy()


@settings(max_examples=tries(12))
@given(
    st.sampled_from(sorted(OPS)),
    st.sampled_from(["float32", "int32", "int8"]),
    st.tuples(st.integers(1, 5), st.integers(1, 40)),
    st.integers(0, 1),
    st.data(),
)
def test_indices_are_those_of_tvms_own_block(
    name: str, dtype: str, shape: tuple[int, int], axis: int, data: st.DataObject
) -> None:
    few = [-3, 0, 2, 2] if dtype != "float32" else [-np.inf, -1.5, 0.0, 2.5, np.inf]
    rows = st.lists(st.sampled_from(few), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1])
    x = np.array(data.draw(rows), dtype).reshape(shape)
    func = kernel(name, shape, axis, dtype)
    left = shape[:axis] + shape[axis + 1 :]
    np.testing.assert_array_equal(ran(schedule_primfunc(func, AVX2), x, left), ran(func, x, left))


@pytest.mark.parametrize(("name", "worst"), [("argmax", -np.inf), ("argmin", np.inf)])
def test_rows_where_nothing_is_better_than_the_first_value(name: str, worst: float) -> None:
    x = np.full((3, 24), worst, "float32")
    func = kernel(name, x.shape, 1)
    np.testing.assert_array_equal(ran(schedule_primfunc(func, AVX2), x, (3,)), ran(func, x, (3,)))


def test_only_rows_are_split() -> None:
    """Across rows a vector holds a value and an index for each of its lanes."""
    along, across = kernel("argmax", (8, 64), 1), kernel("argmax", (64, 8), 0)
    assert len(nodes_of(split_extremes(along).body, tvm.s_tir.SBlock)) == 5
    assert split_extremes(across).same_as(across)


def test_what_does_not_fit_stays_wide() -> None:
    def added(i: Any) -> Any:
        return x[i] + tirx.const(1, "int64")

    x = te.placeholder((64,), "int64", name="x")
    once = te.compute((64,), added, name="once")
    func = te.create_prim_func([x, te.compute((64,), lambda i: once[i] * once[i])], index_dtype_override="int64")
    assert narrow_indices(func).same_as(func)


def test_indices_are_kept_in_32_bits() -> None:
    made = narrow_indices(kernel("argmax", (64, 8), 0))
    (kept,) = [b for block in nodes_of(made.body, tvm.s_tir.SBlock) for b in block.alloc_buffers if "v0" in b.name]
    assert str(kept.dtype) == "int32"
    assert str(made.params[1].ty.dtype) == "int64"


@pytest.mark.parametrize("axes", [(0, 1), (1, 2), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("shape", [(6, 4, 16), (3, 5, 1), (1, 24, 2)])
def test_extremes_over_several_axes_are_in_vectors(axes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """Indices in 32 bits left a reduction that TVM's rfactor did not know, and it was done element by element."""
    x = te.placeholder(shape, name="x")
    func = te.create_prim_func([x, tvm.topi.argmax(x, axes)])
    array = np.random.default_rng(3).integers(0, 5, shape).astype("float32")
    left = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    scheduled = schedule_primfunc(func, AVX2)
    if shape == (6, 4, 16):
        assert "T.vectorized" in scheduled.script()
    np.testing.assert_array_equal(ran(scheduled, array, left), ran(func, array, left))
