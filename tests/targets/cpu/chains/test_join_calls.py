"""Kernels joined into one keep numbers, and only those are joined of which nothing else reads what is between."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import tvm_ffi
from effort import tries
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from targets.machines import AVX2, AVX512, NEON, built
from tvm import relax, te, tirx

from eqsat_layout.graph.legalize import legalize
from eqsat_layout.notes import Notes
from eqsat_layout.passes.fuse import fuse
from eqsat_layout.targets.cpu.chains.fused_tiles import schedule_fused_tiles
from eqsat_layout.targets.cpu.chains.join_calls import join_chains
from eqsat_layout.targets.cpu.model.chain import chain_of
from eqsat_layout.targets.cpu.model.chain_model import ChainModel
from eqsat_layout.targets.cpu.schedule import joined_primfunc, schedule_module
from eqsat_layout.targets.cpu.single.simplify import simplified_schedule
from eqsat_layout.targets.schedules.stages import divisors, new_schedule, stages_of


def forth(data, matrix, *, padding=1):
    """Six results of every four rows and the two after them."""
    count, height, width, lanes = (int(e) for e in data.shape)
    zero = tirx.const(0, data.dtype)

    def element(c, y, x, i):
        inside = tirx.all(y >= padding, y < height + padding)
        return tirx.if_then_else(inside, data[c, y - padding, x, i], zero)

    padded = te.compute((count, height + 2 * padding, width, lanes), element, name="pad") if padding else data
    r = te.reduce_axis((0, 6), "r")
    shape = (6, count, (height + 2 * padding - 2) // 4, width, lanes)
    return te.compute(
        shape, lambda a, c, y, x, i: te.sum(padded[c, y * 4 + r, x, i] * matrix[a, r], axis=r), name="rows"
    )


def back(rows, matrix):
    """Four rows of every six results."""
    _, count, height, width, lanes = (int(e) for e in rows.shape)
    a = te.reduce_axis((0, 6), "a")
    shape = (count, height * 4, width, lanes)
    return te.compute(
        shape, lambda c, y, x, i: te.sum(rows[a, c, y // 4, x, i] * matrix[y % 4, a], axis=a), name="back"
    )


def relu(x):
    return te.compute(x.shape, lambda *i: te.max(x(*i), tirx.const(0, "float32")), name="relu")


def module_of(make_body, *shapes):
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            output = builder.emit_output(make_body(builder.emit_te, *params))
        builder.emit_func_output(output)
    return fuse(builder.get(), Notes())


def calls_of(mod):
    return [
        b.value.args[0].name_hint for block in mod["main"].body.blocks for b in block.bindings if "call_tir" in str(b)
    ]


@pytest.fixture
def joined_of_two(run, unscheduled, arrays):
    """Two calls joined into one for AVX2, scheduled; the numbers are those of the two."""

    def join(make_body, *shapes):
        mod = module_of(make_body, *shapes)
        assert len(calls_of(mod)) == 2
        joined = join_chains(mod, AVX2)
        assert len(calls_of(joined)) == 1
        scheduled = schedule_module(joined, AVX2)
        inputs = arrays(*shapes)
        got = run(built(scheduled), *inputs)
        np.testing.assert_allclose(got, unscheduled(mod, *inputs), atol=1e-4)
        return scheduled

    return join


LARGE = (4, 128, 64, 16), (6, 6), (4, 6)


def there_and_back(emit, x, b, a):
    return emit(relu, emit(back, emit(forth, x, b), a))


@pytest.mark.parametrize("machine", [AVX512, AVX2, NEON], ids=["avx512", "avx2", "neon"])
def test_calls_become_one(run, unscheduled, arrays, machine):
    mod = module_of(there_and_back, *LARGE)
    assert len(calls_of(mod)) > 1
    joined = join_chains(mod, machine)
    assert len(calls_of(joined)) == 1
    assert "T.parallel" in joined.script()
    inputs = arrays(*LARGE)
    got = run(built(schedule_module(joined, machine)), *inputs)
    np.testing.assert_allclose(got, unscheduled(mod, *inputs), atol=1e-4)


@pytest.mark.parametrize("machine", [AVX512, AVX2, NEON], ids=["avx512", "avx2", "neon"])
def test_a_concat_is_part_of_the_pad_that_reads_it(run, unscheduled, arrays, machine):
    """U-Net: the operands of the first convolution after a skip were written to memory as one tensor first."""

    def skipped(x, y, bias):
        def element(c, h, w, i):
            return tirx.if_then_else(c < 1, x[c, h, w, i] + bias[i], y[c - 1, h, w, i])

        return te.compute((4, *x.shape[1:]), element, name="concat")

    def body(emit, x, y, bias, b, a):
        return emit(back, emit(forth, emit(skipped, x, y, bias), b), a)

    shapes = (1, 128, 64, 16), (3, 128, 64, 16), (16,), (6, 6), (4, 6)
    mod = module_of(body, *shapes)
    assert len(calls_of(mod)) == 3
    joined = join_chains(mod, machine)
    assert len(calls_of(joined)) == 1
    inputs = arrays(*shapes)
    got = run(built(schedule_module(joined, machine)), *inputs)
    np.testing.assert_allclose(got, unscheduled(mod, *inputs), atol=1e-4)


def test_equal_chains_are_joined_once(arrays, run, unscheduled):
    def twice(emit, x, b, a):
        return there_and_back(emit, there_and_back(emit, x, b, a), b, a)

    mod = module_of(twice, *LARGE)
    joined = join_chains(mod, AVX2)
    names = calls_of(joined)
    assert len(names) == 2
    assert len(set(names)) == 1
    inputs = arrays(*LARGE)
    got = run(built(schedule_module(joined, AVX2)), *inputs)
    np.testing.assert_allclose(got, unscheduled(mod, *inputs), atol=1e-2)


def test_what_is_read_twice_stays(arrays, run, unscheduled):
    def body(emit, x, b, a):
        rows = emit(forth, x, b)
        other = emit(lambda t: te.compute(t.shape[1:], lambda *i: t(0, *i), name="first"), rows)
        result = emit(back, rows, a)
        return emit(
            lambda r, o: te.compute(r.shape, lambda c, y, x, i: r[c, y, x, i] + o[c, y // 4, x, i]), result, other
        )

    mod = module_of(body, *LARGE)
    joined = join_chains(mod, AVX2)
    assert any(name.startswith("forth") for name in calls_of(joined))
    inputs = arrays(*LARGE)
    got = run(built(schedule_module(joined, AVX2)), *inputs)
    np.testing.assert_allclose(got, unscheduled(mod, *inputs), atol=1e-4)


def test_an_epilogue_that_tvm_leaves_alone_is_joined(joined_of_two):
    joined_of_two(lambda emit, rows, a: emit(relu, emit(back, rows, a)), (6, 4, 32, 64, 16), (4, 6))


def _product_of_rows(x, w):
    k = te.reduce_axis((0, 96), "k")
    return te.compute((98, 1024), lambda i, j: te.sum(x[i, k] * w[j // 16, k, j % 16], axis=k), name="product")


OTHER_AXES = {
    "one more": ((1, 98, 1024), lambda _, i: i),
    "rows in two": ((2, 49, 1024), lambda b, i: b * 49 + i),
    "one in between": ((98, 1, 1024), lambda i, _: i),
}


@pytest.mark.parametrize("axes", OTHER_AXES)
def test_an_epilogue_under_other_axes_takes_those_of_its_reduction(joined_of_two, axes):
    """Its reduction would lose tiles that run over 98 rows: twice the time (ViT, apart until its axes were aligned)."""
    shape, row = OTHER_AXES[axes]

    def above(y, b):
        def element(*indices):
            *rows, j = indices
            return te.max(y[row(*rows), j] + b[j], tirx.const(0, "float32"))

        return te.compute(shape, element, name="above")

    shapes = (98, 96), (64, 96, 16), (1024,)
    scheduled = joined_of_two(lambda emit, x, w, b: emit(above, emit(_product_of_rows, x, w), b), *shapes)
    assert "T.min(" in scheduled.script()


def test_an_epilogue_over_pixels_takes_the_axes_of_rows_and_columns(joined_of_two):
    """One axis of the reduction has one element, which the epilogue reads at 0 and not at an axis of its own."""

    def convolution(x, w):
        k = te.reduce_axis((0, 96), "k")

        def element(n, h, w_, o):
            return te.sum(x[n, h, w_, k] * w[o // 16, k, o % 16], axis=k)

        return te.compute((1, 7, 15, 1024), element, name="convolution")

    def flat(y, b):
        def element(n, i, j):
            return te.max(y[0, i // 15, i % 15, j] + b[n, j], tirx.const(0, "float32"))

        return te.compute((1, 105, 1024), element, name="flat")

    shapes = (1, 7, 15, 96), (64, 96, 16), (1, 1024)
    joined_of_two(lambda emit, x, w, b: emit(flat, emit(convolution, x, w), b), *shapes)


def test_an_epilogue_that_transposes_stays():
    def turned(y):
        return te.compute((1024, 98), lambda j, i: te.max(y[i, j], tirx.const(0, "float32")), name="turned")

    mod = module_of(lambda emit, x, w: emit(turned, emit(_product_of_rows, x, w)), (98, 96), (64, 96, 16))
    assert len(calls_of(mod)) == 2
    assert join_chains(mod, AVX2) is mod


def guarded_softmax(emit, x, mask):
    """Attention weights as torch.export gives them: rows of which all is masked are zeros."""
    scores = emit(relax.op.add(x, mask))
    masked = emit(relax.op.equal(scores, relax.const(-math.inf)))
    some = emit(relax.op.astype(emit(relax.op.logical_not(masked)), "int8"))
    found = emit(relax.op.astype(emit(relax.op.max(some, axis=[-1], keepdims=True)), "bool"))
    return emit(relax.op.where(found, emit(relax.op.nn.softmax(scores)), relax.const(0.0)))


@pytest.mark.parametrize("width", [64, 197])
@pytest.mark.parametrize("machine", [AVX512, AVX2, NEON], ids=["avx512", "avx2", "neon"])
def test_calls_that_work_in_rows_become_one_kernel(make_module, run, arrays, machine, width):
    """Also where two of them read one: 54 ms of ViT of eight images were 17."""
    shapes = (24, 50, width), (1, 50, width)
    mod = fuse(legalize(make_module(guarded_softmax, *shapes)), Notes())
    assert len(calls_of(mod)) > 2
    joined = join_chains(mod, machine)
    assert len(calls_of(joined)) == 1
    assert joined.script().count("T.parallel") == 1
    x, mask = arrays(*shapes)
    mask = np.where(mask > 1, -math.inf, mask).astype("float32")
    mask[:, 7] = -math.inf
    got = run(built(schedule_module(joined, machine)), x, mask)
    power = np.exp(np.delete(x + mask, 7, axis=1))
    np.testing.assert_allclose(np.delete(got, 7, axis=1), power / power.sum(-1, keepdims=True), rtol=1e-4, atol=1e-30)
    assert not got[:, 7].any()


def test_rows_that_something_else_reads_are_kept(make_module, run, arrays, unscheduled):
    def body(emit, x):
        scores = emit(relax.op.multiply(x, x))
        turned = emit(relax.op.permute_dims(scores, [0, 2, 1]))
        return emit(relax.op.matmul(emit(relax.op.nn.softmax(scores)), turned))

    shape = (24, 64, 64)
    mod = fuse(legalize(make_module(body, shape)), Notes())
    joined = join_chains(mod, AVX2)
    assert len(calls_of(joined)) > 1
    (x,) = arrays(shape)
    got = run(built(schedule_module(joined, AVX2)), x)
    np.testing.assert_allclose(got, unscheduled(mod, x), rtol=1e-4)


def test_a_result_stays():
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(LARGE)]
    with builder.function("main", params):
        with builder.dataflow():
            rows = builder.emit_output(builder.call_te(forth, *params[:2]))
            output = builder.emit_output(builder.call_te(back, rows, params[2]))
        builder.emit_func_output(relax.Tuple([rows, output]))
    mod = fuse(builder.get(), Notes())
    assert join_chains(mod, AVX2) is mod


def test_what_is_small_stays():
    mod = module_of(lambda emit, x, b, a: emit(back, emit(forth, x, b), a), (1, 6, 8, 16), (6, 6), (4, 6))
    assert join_chains(mod, AVX2) is mod


def test_a_pad_of_what_was_just_made_is_irregular():
    def body(x, b, a):
        return forth(back(forth(x, b), a), b)

    params = [te.placeholder(shape, name=f"x{i}") for i, shape in enumerate(LARGE)]
    func = te.create_prim_func([*params, body(*params)], index_dtype_override="int64")
    assert not chain_of(stages_of(simplified_schedule(new_schedule(func), AVX2))).is_regular


def test_parts_that_make_no_nest_stay_apart():
    """One after the other in one function, the last passes of Winograd's filter took 16 times as long as apart."""
    x, b, a = params = [te.placeholder(shape, name=f"x{i}") for i, shape in enumerate(LARGE)]
    func = te.create_prim_func([*params, relu(back(forth(x, b), a))], index_dtype_override="int64")
    apart = ChainModel(AVX2).apart(chain_of(stages_of(simplified_schedule(new_schedule(func), AVX2))))
    assert joined_primfunc(func, AVX2, passes=1, nanoseconds=1.0) is None
    assert joined_primfunc(func, AVX2, passes=1, nanoseconds=apart) is not None
    assert joined_primfunc(func, AVX2, passes=9, nanoseconds=1.0) is not None  # an epilogue of many passes


def test_tiles_are_whole_and_fit_the_cache():
    x, b, a = params = [te.placeholder(shape, name=f"x{i}") for i, shape in enumerate(LARGE)]
    func = te.create_prim_func([*params, back(forth(x, b), a)], index_dtype_override="int64")
    chain, model = chain_of(stages_of(simplified_schedule(new_schedule(func), AVX2))), ChainModel(AVX2)
    tiles = model.faster(chain, model.apart(chain))
    assert tiles is not None
    count, rows, width, lanes = tiles.tile
    assert rows % 4 == 0
    between = count * (rows + 2) * width * lanes + 6 * count * (rows // 4) * width * lanes
    assert 4 * between < AVX2.l2_working_set
    everything = model.nanoseconds(chain, (1, 128, 64, 16))
    assert everything is not None
    assert everything > 1.2 * tiles.nanoseconds


def test_one_core_does_not_get_the_memory_of_all():
    """One thread was thought to have the 25 GB/s of two: what joining saves of that is 17 % of a U-Net's time."""
    x, b, a = params = [te.placeholder(shape, name=f"x{i}") for i, shape in enumerate(LARGE)]
    func = te.create_prim_func([*params, back(forth(x, b), a)], index_dtype_override="int64")
    chain = chain_of(stages_of(simplified_schedule(new_schedule(func), AVX2)))
    one, two, many, more = (ChainModel(replace(AVX512, cores=cores)).apart(chain) for cores in (1, 2, 16, 32))
    assert one > 1.5 * two
    assert more > 0.8 * many, "and many cores share what there is"


@given(
    count=st.integers(1, 3),
    tiles=st.integers(1, 4),
    width=st.integers(1, 9),
    lanes=st.sampled_from([8, 16, 24]),
    padding=st.sampled_from([0, 1]),
    turned=st.integers(0, 3),
    machine=st.sampled_from([AVX512, AVX2, NEON]),
    data=st.data(),
)
@settings(max_examples=tries(25))
def test_nests_of_any_tile(run, arrays, count, tiles, width, lanes, padding, turned, machine, data):
    """``turned`` channels are read otherwise than the others, as a concat does: before windows or as part of a pad."""
    shapes = (count, 4 * tiles + 2 - 2 * padding, width, lanes), (6, 6), (4, 6)
    assume(shapes[0][1] > 0)
    x, b, a = params = [te.placeholder(shape, name=f"x{i}") for i, shape in enumerate(shapes)]
    parts = te.compute(x.shape, lambda c, *i: tirx.if_then_else(c < turned, x[(c, *i)] - 1.0, x[(c, *i)]), name="parts")
    result = relu(back(forth(parts if turned else x, b, padding=padding), a))
    func = te.create_prim_func([*params, result], index_dtype_override="int64")
    full = [int(e) for e in result.shape]
    wholes = (1, 4, 1)  # rows come in fours
    tile = [
        whole * data.draw(st.sampled_from(divisors(extent // whole, extent)))
        for extent, whole in zip(full, wholes, strict=False)
    ]
    sch = simplified_schedule(new_schedule(func), AVX2)
    schedule_fused_tiles(sch, (*tile, lanes), machine)
    blocks = math.prod(extent // size for extent, size in zip(full, (*tile, lanes), strict=True))
    assert f"T.parallel(T.int64({blocks}))" in sch.mod.script()

    builder = relax.BlockBuilder()
    variables = [relax.Var(f"x{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(shapes)]
    callee = builder.add_func(sch.mod["main"].without_attr("global_symbol"), "joined")
    with builder.function("main", variables):
        with builder.dataflow():
            call = relax.call_tir(callee, relax.Tuple(variables), relax.TensorType(full, "float32"))
            output = builder.emit_output(call)
        builder.emit_func_output(output)
    inputs = arrays(*shapes)
    got = run(built(builder.get()), *inputs)
    x, b, a = inputs
    x[:turned] -= 1
    padded = np.pad(x, [(0, 0), (padding, padding), (0, 0), (0, 0)])
    windows = np.stack([padded[:, r : r + 4 * (tiles - 1) + 1 : 4] for r in range(6)])
    rows = np.einsum("ar,rcyxi->acyxi", b, windows)
    expected = np.einsum("pa,acyxi->cypxi", a, rows).reshape(full)
    np.testing.assert_allclose(got, np.maximum(expected, 0), atol=1e-3)


def test_a_tile_whose_rows_no_vector_divides_takes_longer():
    """Gates of 54 channels are done in vectors of 9 lanes within a tile; they were taken for full ones."""

    def nanoseconds(channels: int) -> float:
        x = te.placeholder((512, 2 * channels), name="x")
        gate = te.compute((512, channels), lambda i, j: te.tanh(x[i, j]) * te.tanh(x[i, channels + j]), name="gate")
        more = te.compute(gate.shape, lambda i, j: te.tanh(gate[i, j]) + gate[i, j], name="more")
        func = te.create_prim_func([x, more], index_dtype_override="int64")
        found = ChainModel(replace(AVX512, cores=1)).nanoseconds(
            chain_of(stages_of(new_schedule(func))), (16, channels)
        )
        return found / channels

    assert nanoseconds(54) > 1.05 * nanoseconds(64)


def test_what_was_joined_once_is_known(monkeypatch):
    """A plan that is compared as it is built, and then built, scheduled all its kernels three times."""

    def body(emit, x, w, v):
        return emit(back, emit(relu, emit(forth, x, w)), v)

    shapes = (16, 56, 56, 16), (6, 6), (4, 6)
    first = join_chains(module_of(body, *shapes), AVX2)
    monkeypatch.setattr("eqsat_layout.targets.cpu.chains.join_calls.joined_primfunc", None)
    monkeypatch.setattr("eqsat_layout.targets.cpu.chains.join_calls.new_schedule", None)
    again = join_chains(module_of(body, *shapes), AVX2, Notes(strict=True))
    assert len(calls_of(first)) == 1
    assert tvm_ffi.structural_equal(again, first)


def test_what_fails_is_told_to_the_next_module_too(monkeypatch):
    """That it saves nothing was kept for all modules: they were slower, and nothing said why."""

    def body(emit, x, w, v):
        return emit(back, emit(relu, emit(forth, x, w)), v)

    def failing(*_, **__):
        raise OverflowError("no tiles")

    shapes = (12, 56, 56, 16), (6, 6), (4, 6)
    own = "eqsat_layout.targets.cpu.chains.join_calls.joined_primfunc"
    with monkeypatch.context() as patched:
        patched.setattr(own, failing)
        for _ in range(2):
            notes = Notes(strict=False)
            join_chains(module_of(body, *shapes), AVX2, notes)
            assert any("is not joined: OverflowError: no tiles" in note for note in notes)
    assert len(calls_of(join_chains(module_of(body, *shapes), AVX2, Notes(strict=True)))) == 1


def gates(emit, x, w, h):
    """What a step of a recurrent network makes of a product: two parts of it are read together."""

    def gate(z, h):
        n = h.shape[1]
        return te.compute(h.shape, lambda i, j: te.sigmoid(z[i, j]) * h[i, j] + te.tanh(z[i, j + n]), name="gate")

    z = emit(product, x, w)
    return emit(gate, z, h)


def product(x, w):
    k = te.reduce_axis((0, x.shape[1]), "k")
    return te.compute((x.shape[0], w.shape[1]), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="product")


def test_gates_are_in_the_kernel_of_their_product(joined_of_two):
    """24 steps of 4 us each called two kernels, and a call takes .35."""
    joined_of_two(gates, (1, 32), (32, 64), (1, 32))


def test_long_kernels_spare_no_call():
    """Each has the schedule that it has alone."""
    mod = module_of(gates, (64, 512), (512, 1024), (64, 512))
    assert len(calls_of(join_chains(mod, AVX2))) == 2


@pytest.mark.parametrize("cores", [1, 2])
def test_calls_that_are_faster_with_copies_of_their_rows_stay_apart(cores):
    """What a kernel takes by itself was thought to be what it takes without these: 7.8 ms in one, 4.1 in two."""

    def pointwise(data, weights):
        channels, height, width = (int(extent) for extent in data.shape)
        c = te.reduce_axis((0, channels), "c")
        shape = (weights.shape[0], height, width)
        return te.compute(shape, lambda o, y, x: te.sum(data[c, y, x] * weights[o, c], axis=c), name="sums")

    def both(emit, x, first, second):
        return emit(pointwise, emit(relu, emit(pointwise, x, first)), second)

    mod = module_of(both, (24, 256, 256), (48, 24), (16, 48))
    assert len(calls_of(join_chains(mod, replace(AVX2, cores=cores)))) == 2
