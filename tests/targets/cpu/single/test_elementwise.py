"""Elementwise stages read vectors, and not single elements."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
from effort import tries
from hypothesis import given, settings
from hypothesis import strategies as st
from targets.machines import AVX2, AVX512, HALVES, built
from tvm import relax, s_tir, te, tirx, topi

from eqsat_layout.notes import Notes
from eqsat_layout.targets.cpu.lowering import pipeline_name
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.schedule import schedule_module, schedule_primfunc
from eqsat_layout.targets.cpu.single.families import elementwise
from eqsat_layout.targets.cpu.single.families.elementwise import in_overlapping_vectors
from eqsat_layout.targets.schedules.rebuild import schedule_over
from eqsat_layout.targets.schedules.stages import new_schedule
from eqsat_layout.tir.blocks import block_of, statements_of
from eqsat_layout.tir.structural import nodes_of


def normalised(channels: int, group: int) -> Any:
    """Channels last less the mean of their group."""
    data = te.placeholder((40, channels), name="data")
    means = te.placeholder((channels // group,), name="means")
    result = te.compute((40, channels), lambda y, c: data[y, c] - means[tirx.floordiv(c, group)], name="normalised")
    return te.create_prim_func([data, means, result], index_dtype_override="int64")


def vectors(func: Any) -> set[int]:
    """The extents of vector loops."""
    return {int(loop.extent) for loop in nodes_of(func.body, tirx.For) if loop.kind == tirx.ForKind.VECTORIZED}


@pytest.mark.parametrize(("channels", "group", "lanes"), [(128, 16, 16), (128, 32, 32), (48, 16, 16)])
def test_a_vector_lies_in_one_group(channels: int, group: int, lanes: int) -> None:
    """64 channels of four groups had their means gathered one by one."""
    assert vectors(schedule_primfunc(normalised(channels, group), AVX512)) == {lanes}


def test_means_of_groups_of_half_a_register_are_shuffled() -> None:
    assert "T.Shuffle([means[" in schedule_primfunc(normalised(64, 8), AVX512).script()


@pytest.mark.parametrize("shape", [(2, 384, 19, 19), (2, 384, 20, 20), (4, 64, 56, 56), (2, 384, 16, 16), (3, 5, 32)])
def test_addresses_are_numbers_of_elements(shape: tuple[int, ...]) -> None:
    """Several images of odd planes: each lane divided its number by the extents, four times the time of an ELU."""
    data = te.placeholder(shape, name="data")
    result = te.compute(shape, lambda *at: te.max(data(*at), 0.0), name="result")
    func = schedule_primfunc(te.create_prim_func([data, result], index_dtype_override="int64"), AVX512)
    target = tvm.target.Target({"kind": "llvm", "mcpu": "znver4"})
    func = func.with_attr("global_symbol", "main")
    assembly = tvm.tirx.build(func, target, pipeline=pipeline_name()).inspect_source("asm")
    assert not re.search("vpmul", assembly)


def test_a_reduction_of_one_step_is_elementwise() -> None:
    """Depthwise windows of one element were sums in registers, one element each where no vector divides a plane."""
    data, weights = te.placeholder((48, 19, 19), name="data"), te.placeholder((48, 1, 1), name="weights")
    y, x = te.reduce_axis((0, 1), name="y"), te.reduce_axis((0, 1), name="x")
    sums = te.compute(
        (48, 19, 19), lambda c, i, j: te.sum(data[c, i + y, j + x] * weights[c, y, x], [y, x]), name="sums"
    )
    result = te.compute((48, 19, 19), lambda *at: te.max(sums(*at), 0.0), name="result")
    func = schedule_primfunc(te.create_prim_func([data, weights, result], index_dtype_override="int64"), AVX512)
    blocks = [str(block.name_hint) for block in nodes_of(func.body, s_tir.SBlock)]
    assert blocks == ["result", "root"]
    given = [np.random.default_rng(0).standard_normal(n).astype("float32") for n in ((48, 19, 19), (48, 1, 1))]
    kernel = tvm.tirx.build(func.with_attr("global_symbol", "main"), target="llvm")
    found = tvm.runtime.tensor(np.zeros((48, 19, 19), "float32"))
    kernel["main"](*map(tvm.runtime.tensor, given), found)
    np.testing.assert_array_equal(found.numpy(), np.maximum(given[0] * given[1], 0))


@given(
    shape=st.tuples(st.integers(1, 2), st.integers(1, 5), st.integers(1, 21), st.integers(1, 70)),
    kept=st.integers(0, 3),
    is_costly=st.booleans(),
    machine=st.sampled_from([AVX512, AVX2]),
)
@settings(max_examples=tries(30))
def test_planes_of_any_size(run: Any, shape: Any, kept: int, is_costly: bool, machine: Any) -> None:
    """Beside a number for all of the last axes but ``kept``."""
    data, means = te.placeholder(shape, name="data"), te.placeholder(shape[:kept], name="means")

    def element(*at: Any) -> Any:
        off = data(*at) - means(*at[:kept])
        return te.exp(off) if is_costly else off

    func = te.create_prim_func([data, means, te.compute(shape, element, name="made")], index_dtype_override="int64")
    mod = tvm.IRModule({"kernel": schedule_primfunc(func, machine)})
    builder = relax.BlockBuilder()
    params = [relax.Var(name, relax.TensorType(own, "float32")) for name, own in (("x", shape), ("y", shape[:kept]))]
    kernel = builder.add_func(mod["kernel"].without_attr("global_symbol"), "kernel")
    with builder.function("main", params):
        out = relax.TensorType(shape, "float32")
        builder.emit_func_output(builder.emit(relax.call_tir(kernel, relax.Tuple(params), out)))
    given_x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    given_y = np.random.default_rng(1).standard_normal(shape[:kept]).astype("float32")
    expected = given_x - given_y.reshape(*shape[:kept], *(1,) * (4 - kept))
    found = run(built(builder.get()), given_x, given_y)
    np.testing.assert_allclose(found, np.exp(expected) if is_costly else expected, rtol=2e-6)


@pytest.mark.parametrize(
    ("plane", "machine", "lanes"),
    [
        *[((size, size), HALVES, 8) for size in (7, 14, 10)],  # a register is two passes there
        ((12, 12), HALVES, 16),
        *[((size, size), AVX512, 16) for size in (7, 14, 10)],
        *[((size, size), AVX2, 8) for size in (7, 14, 10, 12)],
    ],
)
def test_planes_that_no_vector_divides_are_in_vectors_that_overlap(
    plane: tuple[int, int], machine: CpuMachine, lanes: int
) -> None:
    """LLVM wrote out 49 places and took vectors of channels, element by element: four times as long.

    Half vectors compute fewer elements twice, but take as long each: a SiLU of 512 x 7 x 7 1.6 times (Zen 3).
    """
    data, gates = te.placeholder((160, *plane), name="data"), te.placeholder((160,), name="gates")
    made = te.compute((160, *plane), lambda c, y, x: data[c, y, x] * gates[c], name="made")
    func = schedule_primfunc(te.create_prim_func([data, gates, made], index_dtype_override="int64"), machine)
    assert vectors(func) == {lanes}


def test_one_schedule_is_made_for_all_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """One was made for each of them: a third of the time of a function of sixty stages."""
    data, gates = te.placeholder((16, 49), name="data"), te.placeholder((16, 1), name="gates")
    last = data
    for _ in range(6):
        last = topi.multiply(last, gates)
    sch = new_schedule(te.create_prim_func([data, gates, last], index_dtype_override="int64"))
    made: list[Any] = []

    def counted(*given: Any) -> Any:
        made.append(schedule_over(*given))
        return made[-1]

    monkeypatch.setattr(elementwise, "schedule_over", counted)
    assert in_overlapping_vectors(sch, AVX512, is_dense=True) is made[0]
    assert len(made) == 1
    extents = [[int(axis.dom.extent) for axis in block_of(one).iter_vars] for one in statements_of(made[0].mod["main"])]
    assert extents == [[16, 4, 16]] * 6


def test_groups_of_odd_planes_are_runs() -> None:
    """Group norm gives rows of 8 planes of 57 x 57 each: a SiLU of them divided by their size, lane by lane."""
    data, gates = te.placeholder((8, 25992), name="data"), te.placeholder((64,), name="gates")

    def element(c: Any, y: Any, x: Any) -> Any:
        return te.exp(data[c // 8, (c * 3249 + y * 57 + x) % 25992]) * gates[c]

    made = te.compute((64, 57, 57), element, name="made")
    func = schedule_primfunc(te.create_prim_func([data, gates, made], index_dtype_override="int64"), AVX2)
    assert vectors(func) == {8}
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype("float32") for shape in ((8, 25992), (64,), (64, 57, 57))]
    expected = np.exp(arrays[0]).reshape(64, 57, 57) * arrays[1][:, None, None]
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    built(tvm.IRModule({"k": func.with_attr("global_symbol", "k")}))["k"](*tensors)
    np.testing.assert_allclose(tensors[-1].numpy(), expected, rtol=1e-5)


def test_planes_between_two_stages_are_whole() -> None:
    """Vectors run from the first row on into the others: TVM gave that row memory, and no other."""
    data = te.placeholder((3, 7, 7), name="data")
    costly = te.compute((3, 7, 7), lambda *at: te.exp(data(*at)), name="costly")
    twice = te.compute((3, 7, 7), lambda *at: costly(*at) * costly(*at), name="twice")
    more = te.compute((3, 7, 7), lambda *at: costly(*at) + 1.0, name="more")
    func = te.create_prim_func([data, twice, more], index_dtype_override="int64")
    mod = tvm.IRModule({"main": schedule_primfunc(func, AVX2)})
    for change in (s_tir.transform.ConvertBlocksToOpaque(), s_tir.transform.CompactBufferAllocation()):
        mod = change(mod)
    (own,) = [buffer for block in nodes_of(mod["main"].body, s_tir.SBlock) for buffer in block.alloc_buffers]
    assert [int(extent) for extent in own.ty.shape] == [3, 7, 7]


def test_rows_of_blocks_are_no_run() -> None:
    """Rows of three of a transposed tensor follow one another in pairs, and pairs lie elsewhere: all were taken for one
    row, which read in front of the operand and behind it."""
    data = te.placeholder((2, 6, 17), name="data")
    result = te.compute((68, 3), lambda y, x: data[y % 4 // 2, y % 2 * 3 + x, y // 4], name="result")
    func = schedule_primfunc(te.create_prim_func([data, result], index_dtype_override="int64"), AVX2)
    given = np.random.default_rng(0).standard_normal((2, 6, 17)).astype("float32")
    found = tvm.runtime.tensor(np.zeros((68, 3), "float32"))
    built(tvm.IRModule({"k": func.with_attr("global_symbol", "k")}))["k"](tvm.runtime.tensor(given), found)
    np.testing.assert_array_equal(found.numpy(), given.transpose(2, 0, 1).reshape(68, 3))


def padded(height: int, width: int, channels: int) -> Any:
    """An image with a border of one, channels last."""
    data = te.placeholder((height, width, channels), name="data")

    def at(y: Any, x: Any, c: Any) -> Any:
        inside = tirx.all(y >= 1, y < height + 1, x >= 1, x < width + 1)
        return tirx.if_then_else(inside, data[y - 1, x - 1, c], tirx.const(0, "float32"))

    result = te.compute((height + 2, width + 2, channels), at, name="padded")
    return te.create_prim_func([data, result], index_dtype_override="int64")


def test_a_pad_of_three_colours_is_a_fill_and_a_copy() -> None:
    """It was done element by element, with conditions: no vector is three elements long."""
    func = schedule_primfunc(padded(32, 32, 3), AVX512)
    assert vectors(func) == {32}
    assert not [call for call in nodes_of(func.body, tvm.ir.Call) if "if_then_else" in str(call.op)]


def test_what_follows_a_reduction_keeps_its_vectors() -> None:
    """Means along an axis across memory: their division was cut for itself, and sums were done one by one (gMixer)."""
    data = te.placeholder((384, 196), name="data")
    one, two = (te.reduce_axis((0, 384), name=name) for name in ("one", "two"))
    sums = te.compute((196,), lambda x: te.sum(data[one, x], one), name="sums")
    means = te.compute((196,), lambda x: sums[x] * (1.0 / 384), name="means")
    squares = te.compute((196,), lambda x: te.sum((data[two, x] - means[x]) * (data[two, x] - means[x]), two))
    centred = te.compute((384, 196), lambda y, x: (data[y, x] - means[x]) * te.rsqrt(squares[x]), name="centred")
    notes = Notes()
    func = te.create_prim_func([data, centred], index_dtype_override="int64")
    (done,) = schedule_module(tvm.IRModule({"main": func}), AVX512, notes).functions.values()
    assert not list(notes)
    assert vectors(done) == {14, 16}
