"""Results that are a part of the columns of a product: scheduled as whole rows, and nothing is stored beyond them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from effort import tries
from hypothesis import given, settings
from hypothesis import strategies as st
from targets.machines import built
from tvm import te, tirx
from tvm.script import tirx as T

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.places.whole_rows import whole_rows
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.targets.cpu.target import make_target
from eqsat_layout.targets.schedules.stages import new_schedule, stages_of

HERE = make_target(None, True)
_BLOCK = 16
_SENTINEL = 12345.0


def product(
    rows: Any, steps: int, columns: int, *, has_residual: bool = False, costly: bool = False, block: int = _BLOCK
) -> Any:
    """``columns`` of the product of data and weights in blocks of columns, a bias, and what else is asked for."""
    blocks = -(-columns // block)
    data = te.placeholder((rows, steps), name="data")
    weights = te.placeholder((blocks, steps, block), name="weights")
    bias = te.placeholder((columns,), name="bias")
    more = [te.placeholder((rows, columns), name="residual")] if has_residual else []
    k = te.reduce_axis((0, steps), name="k")
    sums = te.compute(
        (rows, blocks * block),
        lambda i, j: te.sum(data[i, k] * weights[j // block, k, j % block], axis=k),
        name="sums",
    )
    part = te.compute((rows, columns), lambda i, j: sums[i, j], name="part")
    out = te.compute((rows, columns), lambda i, j: part[i, j] + bias[j], name="with_bias")
    if has_residual:
        before = out
        out = te.compute((rows, columns), lambda i, j: before[i, j] + more[0][i, j], name="with_residual")
    if costly:
        last = out
        out = te.compute((rows, columns), lambda i, j: te.exp(last[i, j]), name="costly")
    return te.create_prim_func([data, weights, bias, *more, out], index_dtype_override="int64")


def expected(arrays: list[np.ndarray], *, costly: bool) -> np.ndarray:
    data, weights, bias, *more = arrays
    out = data.astype("float64") @ np.concatenate(list(weights), axis=1)[:, : len(bias)] + bias + sum(more)
    return np.exp(out) if costly else out


def checked(scheduled: Any, arrays: list[np.ndarray], *, costly: bool = False) -> None:
    """Results are right, and what lies behind them is as it was."""
    rows, columns = arrays[0].shape[0], len(arrays[2])
    whole = tvm.runtime.empty((rows * columns + 2 * _BLOCK,), "float32")
    whole.copyfrom(np.full(whole.shape, _SENTINEL, "float32"))
    memory = np.from_dlpack(whole)
    out = memory[: rows * columns].reshape(rows, columns)
    kernel = built(tvm.IRModule({"k": scheduled.with_attr("global_symbol", "k")}))["k"]
    kernel(*map(tvm.runtime.tensor, arrays), tvm.runtime.from_dlpack(out))
    np.testing.assert_allclose(out, expected(arrays, costly=costly), rtol=2e-4, atol=2e-4)
    assert (memory[rows * columns :] == _SENTINEL).all()


def drawn(shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, dtype="float32") / 4 for shape in shapes]


@settings(max_examples=tries(12), deadline=None)
@given(
    rows=st.sampled_from([1, 2, 13, 31, 64, 197]),
    steps=st.sampled_from([8, 33, 64]),
    columns=st.integers(3, 130).filter(lambda number: number % 8),
    block=st.sampled_from([8, 16]),
    has_residual=st.booleans(),
    costly=st.booleans(),
    unit=st.booleans(),
)
def test_results_are_right_and_end_where_they_should(
    rows: int, steps: int, columns: int, block: int, has_residual: bool, costly: bool, unit: bool
) -> None:
    func = product(rows, steps, columns, has_residual=has_residual, costly=costly, block=block)
    machine = replace(HERE.machine, matrix_unit=HERE.machine.matrix_unit and unit, cores=1)
    shapes = [tuple(int(extent) for extent in param.ty.shape) for param in func.params]
    checked(schedule_primfunc(func, machine), drawn(shapes[:-1]), costly=costly)


def test_an_odd_number_of_columns_keeps_the_epilogue_on_the_accumulators() -> None:
    """197 rows of 65 results were done row by row, at .7 of a peer's speed; of 1000 at .4 of today's."""
    whole = whole_rows(product(197, 64, 65), HERE.machine)
    (sums, *after) = stages_of(new_schedule(whole.func))
    assert [axis.extent for axis in sums.spatial] == [197, 80]
    assert all([axis.extent for axis in stage.axes] == [197, 80] for stage in after)
    scheduled = schedule_primfunc(product(197, 64, 65), replace(HERE.machine, matrix_unit=False, cores=1))
    assert [str(buffer.scope()) for buffer in scheduled.body.block.alloc_buffers] == ["local"]


def test_rows_of_symbolic_number_too() -> None:
    rows = tirx.Var("n", "int64")
    scheduled = schedule_primfunc(product(rows, 32, 21), replace(HERE.machine, cores=1))
    for count in (1, 7, 64):
        checked(scheduled, drawn([(count, 32), (2, 32, 16), (21,)]))


def test_vectors_that_go_on_in_the_next_row_are_refused() -> None:
    """One that ends within a row may have left another one before: it stored beyond the result."""
    whole = whole_rows(product(8, 32, 33), HERE.machine)
    sch = new_schedule(whole.func)
    for stage in stages_of(sch)[1:-1]:
        sch.compute_inline(stage.block)
    _, lanes = sch.split(sch.fuse(*sch.get_loops(stages_of(sch)[-1].block)), [None, 64])
    sch.vectorize(lanes)
    with pytest.raises(Refused, match="next row"):
        whole.restored(sch.mod["main"])


@pytest.mark.parametrize("columns", [9, 25, 57])
def test_nothing_is_stored_behind_results_of_bfloat16(columns: int) -> None:
    """A loop over the last vector, with a condition, stored four bytes for the last two (LLVM 22)."""
    blocks, rows, steps = -(-columns // _BLOCK), 8, 32
    data = te.placeholder((rows, steps), name="data")
    weights = te.placeholder((blocks, steps, _BLOCK), name="weights")
    k = te.reduce_axis((0, steps), name="k")
    sums = te.compute(
        (rows, blocks * _BLOCK),
        lambda i, j: te.sum(data[i, k] * weights[j // _BLOCK, k, j % _BLOCK], axis=k),
        name="sums",
    )
    part = te.compute((rows, columns), lambda i, j: te.tanh(sums[i, j]).astype("bfloat16"), name="part")
    func = te.create_prim_func([data, weights, part], index_dtype_override="int64").with_attr("global_symbol", "k")
    scheduled = schedule_primfunc(func, replace(HERE.machine, matrix_unit=False, cores=1))
    kernel = built(tvm.IRModule({"k": scheduled}))["k"]
    memory = tvm.runtime.empty((rows * columns + _BLOCK,), "bfloat16")
    words = np.from_dlpack(memory._create_view(memory.shape, "uint16"))
    words[:] = 0x1234
    kernel(
        *map(tvm.runtime.tensor, drawn([(rows, steps), (blocks, steps, _BLOCK)])), memory._create_view((rows, columns))
    )
    assert (words[rows * columns :] == 0x1234).all()
    assert (words[: rows * columns] != 0x1234).any()


@pytest.mark.parametrize(("columns", "full"), [(5, 33), (20, 44)])
def test_rows_of_parts_of_vectors_stay(columns: int, full: int) -> None:
    """A kernel of one's own of 16 rows of 33 sums, of which 5 are kept, ended the process."""
    func = part_of_sums(16, columns, full)
    with pytest.raises(Refused, match="parts of vectors"):
        whole_rows(func, HERE.machine)
    data = np.random.default_rng(0).standard_normal((16, full, 8), dtype="float32")
    memory = tvm.runtime.empty((16 * columns + _BLOCK,), "float32")
    memory.copyfrom(np.full(memory.shape, _SENTINEL, "float32"))
    out = np.from_dlpack(memory)[: 16 * columns].reshape(16, columns)
    kernel = built(tvm.IRModule({"k": schedule_primfunc(func, HERE.machine)}))["k"]
    kernel(tvm.runtime.tensor(data), tvm.runtime.from_dlpack(out))
    np.testing.assert_allclose(out, data.sum(axis=-1)[:, :columns], rtol=1e-5, atol=1e-5)
    assert (np.from_dlpack(memory)[16 * columns :] == _SENTINEL).all()


def part_of_sums(rows: int, columns: int, full: int) -> Any:
    data, k = te.placeholder((rows, full, 8), name="data"), te.reduce_axis((0, 8), name="k")
    sums = te.compute((rows, full), lambda i, j: te.sum(data[i, j, k], axis=k), name="sums")
    part = te.compute((rows, columns), lambda i, j: sums[i, j] + tirx.const(0.0), name="part")
    return te.create_prim_func([data, part], index_dtype_override="int64").with_attr("global_symbol", "k")


@pytest.mark.parametrize("columns", [16, 64])
def test_whole_rows_stay(columns: int) -> None:
    with pytest.raises(Refused, match="whole"):
        whole_rows(product(8, 16, columns), HERE.machine)


def test_what_depends_on_the_place_in_a_row_is_left_alone() -> None:
    """Positions that are added, and results in another order, have no rows that could be longer."""

    def made(value: Any) -> Any:
        data, weights = te.placeholder((8, 16), name="data"), te.placeholder((2, 16, _BLOCK), name="weights")
        k = te.reduce_axis((0, 16), name="k")
        sums = te.compute((8, 32), lambda i, j: te.sum(data[i, k] * weights[j // 16, k, j % 16], axis=k), name="sums")
        return te.create_prim_func([data, weights, te.compute((8, 21), lambda i, j: value(sums, i, j), name="out")])

    for value in (
        lambda sums, i, j: sums[i, j] + j.astype("float32"),
        lambda sums, i, j: sums[i, 20 - j],
        lambda sums, i, j: sums[i, j] + sums[i, j + 1],
    ):
        with pytest.raises(Refused):
            whole_rows(made(value), HERE.machine)


def test_rows_that_are_not_to_be_stored_stay() -> None:
    """A condition around a kernel's last block was lost: rows of what is written in place were overwritten."""

    @T.prim_func(s_tir=True)
    def some(
        x: T.Buffer((8, 16), "float32"), w: T.Buffer((16, 32), "float32"), out: T.Buffer((8, 21), "float32")
    ) -> None:
        sums = T.sblock_alloc_buffer((8, 32), "float32")
        for i, j, r in T.grid(8, 32, 16):
            with T.sblock("sums"):
                vi, vj, vr = T.axis.remap("SSR", [i, j, r])
                with T.init():
                    sums[vi, vj] = T.float32(0)
                sums[vi, vj] = sums[vi, vj] + x[vi, vr] * w[vr, vj]
        for i, j in T.grid(8, 21):
            with T.sblock("out"):
                T.where(i < 5)
                vi, vj = T.axis.remap("SS", [i, j])
                out[vi, vj] = sums[vi, vj]

    with pytest.raises(Refused, match="a part of the result"):
        whole_rows(some, HERE.machine)
