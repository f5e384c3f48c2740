"""Elements that are moved between lanes: transposes, resizes, strides."""

from __future__ import annotations

import numpy as np
import pytest
from effort import tries
from hypothesis import given, settings
from hypothesis import strategies as st
from targets.machines import AVX2, AVX512, NEON, built
from tvm import relax, te, tirx
from tvm.relax import op

from eqsat_layout.targets.cpu.single.lane_moves import move_lanes
from eqsat_layout.targets.lowering import lower
from eqsat_layout.targets.schedules.stages import new_schedule, stages_of

MACHINES = AVX512, AVX2, NEON


def kernel_built(func, machine):
    """The kernel alone as a module; ``None`` if nothing moves."""
    sch = move_lanes(new_schedule(func), machine)
    if sch is None:
        return None
    builder = relax.BlockBuilder()
    *given, made = func.params
    params = [relax.Var(f"x{i}", relax.TensorType(list(b.shape), str(b.dtype))) for i, b in enumerate(given)]
    kernel = builder.add_func(sch.mod["main"].without_attr("global_symbol"), "kernel")
    with builder.function("main", params):
        out = relax.TensorType(list(made.shape), str(made.dtype))
        builder.emit_func_output(builder.emit(relax.call_tir(kernel, relax.Tuple(params), out)))
    return built(builder.get())


def computed(shape, body, *operands):
    """The PrimFunc of ``te.compute(shape, body)``; its axes are int64, as those of Relax are."""
    made = te.compute([tirx.IntImm("int64", n) for n in shape], body, name="made")
    return te.create_prim_func([*operands, made], index_dtype_override="int64")


@given(
    shape=st.tuples(st.integers(1, 3), st.integers(4, 40), st.integers(1, 5), st.integers(4, 40)),
    order=st.permutations(range(4)).filter(lambda order: order[3] in (0, 1, 2)),
    dtype=st.sampled_from(["float32", "float16", "int8", "int32", "float64"]),
    machine=st.sampled_from(MACHINES),
)
@settings(max_examples=tries(30))
def test_squares_of_any_two_axes(run, shape, order, dtype, machine):
    x = te.placeholder(shape, dtype, name="x")
    func = computed([shape[axis] for axis in order], lambda *i: x[tuple(i[order.index(axis)] for axis in range(4))], x)
    executable = kernel_built(func, machine)
    is_large = shape[order[3]] >= 4 and shape[3] >= 4 and machine.lanes(np.dtype(dtype).itemsize) >= 4
    assert executable is not None or not is_large  # of small ones, some are put together of a few vectors
    if executable is not None:
        data = np.random.default_rng(0).integers(-99, 99, shape).astype(dtype)
        np.testing.assert_array_equal(run(executable, data), data.transpose(order))


@pytest.mark.parametrize("machine", MACHINES)
def test_squares_beside_other_operands(run, arrays, machine):
    """One that lies as the result does, one along each axis, and a second that is transposed."""
    rows, columns = 21, 37
    x, y = (te.placeholder((rows, columns), name=name) for name in "xy")
    z = te.placeholder((columns, rows), name="z")
    a, b = te.placeholder((columns,), name="a"), te.placeholder((rows,), name="b")
    func = computed(
        (columns, rows), lambda i, j: te.max((x[j, i] + a[i]) * b[j] - y[j, i], z[i, j]) / 4.0, x, y, z, a, b
    )
    given = arrays(*((rows, columns),) * 2, (columns, rows), (columns,), (rows,))
    dx, dy, dz, da, db = given
    np.testing.assert_allclose(
        run(kernel_built(func, machine), *given),
        np.maximum((dx.T + da[:, None]) * db - dy.T, dz) / 4,
        rtol=1e-5,
        atol=1e-6,
    )


def functions_of_rows(x, y, mask, group):
    """Of what lies across: more than vectors' own arithmetic, each with what NumPy says."""
    leaky = (
        lambda i, j: tirx.Select(x[j, i] > 0.0, x[j, i], x[j, i] * 0.125),
        lambda x, y, mask, group: np.where(x.T > 0, x.T, x.T * 0.125),
    )
    sigmoid = (
        lambda i, j: 1.0 / (1.0 + te.exp(y[j, i] - x[j, i])),
        lambda x, y, mask, group: 1 / (1 + np.exp((y - x).T)),
    )
    chosen = (
        lambda i, j: tirx.Select(mask[j, i], x[j, i], group[j // 4]),
        lambda x, y, mask, group: np.where(mask.T, x.T, group.repeat(4)[: x.shape[0]]),
    )
    rounded = (
        lambda i, j: tirx.Cast("int32", te.floor(x[j, i] * 8.0)) + tirx.Cast("int32", group[j // 4]),
        lambda x, y, mask, group: np.floor(x.T * 8).astype("int32") + group.astype("int32").repeat(4)[: x.shape[0]],
    )
    return [leaky, sigmoid, chosen, rounded]


@given(
    number=st.integers(0, 3),
    rows=st.integers(4, 70),
    columns=st.integers(4, 70),
    machine=st.sampled_from(MACHINES),
)
@settings(max_examples=tries(30))
def test_functions_of_squares(run, number, rows, columns, machine):
    """An activation beside a transpose was worked out of single elements: four to six times as long."""
    x, y = (te.placeholder((rows, columns), name=name) for name in "xy")
    mask, group = te.placeholder((rows, columns), "bool", name="mask"), te.placeholder((-(-rows // 4),), name="group")
    body, expected = functions_of_rows(x, y, mask, group)[number]
    func = computed((columns, rows), body, x, y, mask, group)
    executable = kernel_built(func, machine)
    assert executable is not None or min(rows, columns) < 16 or number == 2  # booleans
    if executable is not None:
        rng = np.random.default_rng(0)
        data = [rng.standard_normal((rows, columns)).astype("float32") for _ in "xy"]
        data += [rng.integers(0, 2, (rows, columns)).astype(bool), rng.standard_normal(-(-rows // 4)).astype("float32")]
        np.testing.assert_allclose(run(executable, *data), expected(*data), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("channels", [32, 20])
def test_squares_of_blocked_channels(make_module, run, arrays, channels):
    """Blocks of 16 are whole squares; those of 10 hold none, and lanes stay where they are."""
    block = channels // 2
    shape = 1, 2, 9, 17, block
    mod = make_module(
        lambda emit, x: emit(op.layout_transform(x, lambda n, c, h, w, b: (n, c * block + b, h, w))), shape
    )
    (x,) = arrays(shape)
    expected = x.transpose(0, 1, 4, 2, 3).reshape(1, channels, 9, 17)
    np.testing.assert_array_equal(run(lower(mod), x), expected)


@pytest.mark.parametrize(("channels", "block"), [(100, 16), (96, 24), (21, 16), (3, 16), (36, 12)])
@pytest.mark.parametrize("machine", MACHINES)
def test_squares_of_blocks_that_no_vector_divides_or_that_are_not_full(run, arrays, channels, block, machine):
    """100 channels in blocks of 16 and 96 in blocks of 24 took 3 cycles an element: squares crossed blocks."""
    shape = -(-channels // block), 3, 37, block
    x = te.placeholder(shape, name="x")
    func = computed((channels, 3, 37), lambda c, h, w: x[c // block, h, w, c % block] * 2.0, x)
    (data,) = arrays(shape)
    executable = kernel_built(func, machine)
    assert executable is not None
    expected = 2 * data.transpose(0, 3, 1, 2).reshape(-1, 3, 37)[:channels]
    np.testing.assert_array_equal(run(executable, data), expected)


@pytest.mark.parametrize("machine", MACHINES)
def test_squares_beside_padding(run, arrays, machine):
    """72 channels are put into blocks of 16, the last one with zeros: each element was a branch."""
    x = te.placeholder((72, 3, 37), name="x")

    def element(o, h, w, i):
        return te.max(tirx.if_then_else(tirx.all(o == 4, i >= 8), 0.0, x[o * 16 + i, h, w]), -1.0)

    (data,) = arrays((72, 3, 37))
    executable = kernel_built(computed((5, 3, 37, 16), element, x), machine)
    assert executable is not None
    padded = np.concatenate([data, np.zeros((8, 3, 37), "float32")]).reshape(5, 16, 3, 37)
    np.testing.assert_array_equal(run(executable, data), np.maximum(padded.transpose(0, 2, 3, 1), -1))


@given(
    extent=st.integers(4, 70),
    width=st.integers(4, 70),
    step=st.sampled_from([-2, -1, 0, 1, 2, 3, 7]),
    shift=st.integers(0, 69),
    divisor=st.sampled_from([1, 2, 3]),
    machine=st.sampled_from(MACHINES),
)
@settings(max_examples=tries(40))
def test_elements_anywhere_in_a_row(run, arrays, extent, width, step, shift, divisor, machine):
    """Beside a table of the place in the row, and an operand that has one element for a row."""
    x, y = te.placeholder((3, width), name="x"), te.placeholder((3,), name="y")

    def body(i, j):
        return x[i, (tirx.floordiv(j, divisor) * step + shift) % width] * (tirx.Cast("float32", j) * 0.5) + y[i]

    func = computed((3, extent), body, x, y)
    given = arrays((3, width), (3,))
    executable = kernel_built(func, machine)
    places = np.arange(extent)
    chosen = (places // divisor * step + shift) % width
    size = next((size for size in (16, 8, 4) if size <= min(machine.lanes(4), extent)), 0)
    vectors = [chosen[min(start, extent - size) :][:size] for start in range(0, extent, size or extent)]
    if executable is None:
        (stage,) = stages_of(new_schedule(func))
        seems_along_memory = stage.loads[0].stride(stage.axes[-1].var) in (0, 1)
        assert seems_along_memory or width < size or any(np.ptp(vector) >= 2 * size for vector in vectors)
        return
    expected = given[0][:, chosen] * (places * np.float32(0.5)) + given[1][:, None]
    np.testing.assert_allclose(run(executable, *given), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("method", ["nearest_neighbor", "linear", "cubic"])
@pytest.mark.parametrize("size", [(14, 44), (33, 31), (7, 11)])
def test_resize_reads_vectors(make_module, run, unscheduled, arrays, method, size):
    """2400 us for 64 channels of 56x56 twice as large where LLVM read element by element, 340 so."""
    shape = 2, 3, 14, 22

    def body(emit, x):
        return emit(op.nn.relu(emit(op.image.resize2d(x, size, layout="NCHW", method=method))))

    mod = make_module(body, shape)
    (x,) = arrays(shape)
    np.testing.assert_allclose(run(lower(mod), x), unscheduled(mod, x), rtol=1e-5, atol=1e-5)


def test_resize_is_made_of_shuffles():
    """A table of weights and two vectors for each of the operands of a pixel: no element is read alone."""
    x = relax.Var("x", relax.TensorType((1, 8, 32, 32), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(op.image.resize2d(x, (64, 64), layout="NCHW", method="linear")))
    func = relax.transform.LegalizeOps()(builder.get())["resize2d"]
    text = move_lanes(new_schedule(func), MACHINES[0]).mod["main"].script()
    assert "T.Shuffle([x[" in text
    assert "T.parallel" in text


@pytest.mark.parametrize("size", [14, 7])
def test_rows_that_are_shorter_than_a_vector_are_shuffled(make_module, run, unscheduled, arrays, size):
    """496 us for 128 channels of 14x14 twice as large, element by element; 41 so."""
    x = relax.Var("x", relax.TensorType((1, 8, size, size), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        made = op.image.resize2d(x, (2 * size, 2 * size), layout="NCHW", method="linear")
        builder.emit_func_output(builder.emit(made))
    func = relax.transform.LegalizeOps()(builder.get())["resize2d"]
    executable = kernel_built(func, MACHINES[0])
    assert executable is not None
    (given,) = arrays((1, 8, size, size))
    expected = unscheduled(builder.get(), given)
    np.testing.assert_allclose(run(executable, given), expected, rtol=1e-5, atol=1e-5)


@given(
    channels=st.integers(1, 40),
    size=st.tuples(st.integers(1, 9), st.integers(1, 12)),
    larger=st.tuples(st.integers(1, 20), st.integers(1, 24)),
    method=st.sampled_from(["nearest_neighbor", "linear", "cubic"]),
    dtype=st.sampled_from(["float32", "float16"]),
    machine=st.sampled_from(MACHINES),
)
@settings(max_examples=tries(25))
def test_resized_pixels_of_any_number_of_channels(
    run, arrays, unscheduled, channels, size, larger, method, dtype, machine
):
    """Channels last, 21 classes took 3 cycles an element and 3 colours 7: vectors of both, or tables of places."""
    shape = 1, *size, channels
    x = relax.Var("x", relax.TensorType(shape, dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(op.image.resize2d(x, larger, layout="NHWC", method=method)))
    executable = kernel_built(relax.transform.LegalizeOps()(builder.get())["resize2d"], machine)
    if executable is not None:
        given = arrays(shape)[0].astype(dtype)
        tolerance = 1e-5 if dtype == "float32" else 1e-2
        np.testing.assert_allclose(
            run(executable, given), unscheduled(builder.get(), given), rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize(("channels", "expected"), [(3, "T.Shuffle([x["), (21, "table0["), (64, "table0[")])
def test_resized_pixels_are_made_in_vectors(channels, expected):
    x = relax.Var("x", relax.TensorType((1, 8, 8, channels), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(op.image.resize2d(x, (16, 16), layout="NHWC", method="linear")))
    func = relax.transform.LegalizeOps()(builder.get())["resize2d"]
    assert expected in move_lanes(new_schedule(func), MACHINES[0]).mod["main"].script()


def test_other_stages_stay():
    """Loads along memory, reductions and conditions are none of its business."""
    x = te.placeholder((8, 24), name="x")
    k = te.reduce_axis((0, 8), "k")
    bodies = [
        ((8, 24), lambda i, j: x[i, j] + 1.0),
        ((24,), lambda j: te.sum(x[k, j], axis=k)),
        ((24, 8), lambda j, i: tirx.if_then_else(j < 3, x[i, j], 0.0)),  # by the place along the operand's rows
    ]
    for shape, body in bodies:
        assert move_lanes(new_schedule(computed(shape, body, x)), MACHINES[0]) is None


@given(
    groups=st.integers(1, 3),
    size=st.tuples(st.integers(1, 5), st.integers(3, 40)),
    scale=st.sampled_from([(2, 2), (4, 4), (3, 3), (1, 2), (2, 1)]),
    block=st.sampled_from([0, 8, 16]),
    dtype=st.sampled_from(["float32", "float16", "int8"]),
    machine=st.sampled_from(MACHINES),
)
@settings(max_examples=tries(25))
def test_pixels_that_lie_in_channels(run, groups, size, scale, block, dtype, machine):
    """Pixel shuffles of channels in blocks or plain, with a bias for each channel."""
    (height, width), (tall, wide) = size, scale
    channels = groups * 4
    given = channels * tall * wide
    block = block if block and given % block == 0 else 0
    x = te.placeholder((given // block, height, width, block) if block else (given, height, width), dtype, name="x")
    bias = te.placeholder((channels,), dtype, name="bias")

    def made(c, h, w):
        source = (c * tall + h % tall) * wide + w % wide
        place = (source // block, h // tall, w // wide, source % block) if block else (source, h // tall, w // wide)
        return x[place] + bias[c]

    func = computed((channels, height * tall, width * wide), made, x, bias)
    executable = kernel_built(func, machine)
    rng = np.random.default_rng(0)
    data, add = (rng.integers(-50, 50, [int(n) for n in one.shape]).astype(dtype) for one in (x, bias))
    plain = data.transpose(0, 3, 1, 2).reshape(given, height, width) if block else data
    wanted = plain.reshape(channels, tall, wide, height, width).transpose(0, 3, 1, 4, 2)
    if wide > 1 and not block and machine is not NEON and width >= 16:
        assert executable is not None
    if executable is not None:
        np.testing.assert_array_equal(
            run(executable, data, add), wanted.reshape(channels, height * tall, -1) + add[:, None, None]
        )


def test_halves_that_are_interleaved(run, arrays):
    x, y = (te.placeholder((5, 37), name=name) for name in "xy")
    func = computed((5, 74), lambda i, j: te.if_then_else(j % 2 == 1, y[i, j // 2], x[i, j // 2] * 2.0), x, y)
    dx, dy = arrays((5, 37), (5, 37))
    np.testing.assert_array_equal(run(kernel_built(func, AVX512), dx, dy), np.stack((2 * dx, dy), -1).reshape(5, 74))


@pytest.mark.parametrize(("channels", "size"), [(3, 256), (16, 224)])
def test_squares_are_read_row_by_row(channels, size):
    """Pixels that become channels were read square by square of all channels, whose planes may lie powers of two apart:
    6 times as long."""
    x = te.placeholder((channels, size, size), name="x")
    rows = size // 4
    shape = (channels * 16, rows, rows)
    func = computed(shape, lambda c, i, j: x[c // 16, i * 4 + c // 4 % 4, j * 4 + c % 4], x)
    sch = move_lanes(new_schedule(func), AVX2)
    extents = [int(sch.get(loop).extent) for loop in sch.get_loops(sch.get_sblock("made"))]
    assert extents[-3:] == [rows, channels * 4, rows // 4]
