"""Legalisation: packed convolutions against NumPy, and calm about what it does not know."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import tvm
import tvm_ffi
from compare import stock_results
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from programs import program
from tvm import relax, tirx
from tvm.relax import op as R

import eqsat_layout
from eqsat_layout.graph.legalised_calls import legalise_calls
from eqsat_layout.graph.legalize import kernel_of, legalize
from eqsat_layout.graph.packed_convolution import PackedConvolution
from eqsat_layout.maps import index_map_from_names
from eqsat_layout.targets.schedules.stages import new_schedule, stages_of
from eqsat_layout.tir.index_map import to_tvm

DATA = ["NCHW", "NHWC", "NCHW4c", "NCHW8c", "NHCW4c"]
KERNEL = ["OIHW", "HWIO", "OIHW4i4o", "OIHW4o4i", "OIHW8i2o", "OHWI4o", "OIHW4o"]


def reference(x, w, stride, pad, dilation, groups):
    """Convolution of NCHW data with OIHW weights, by its definition."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    out, group_in, kh, kw = w.shape
    reach = [dilation * (k - 1) + 1 for k in (kh, kw)]
    windows = np.lib.stride_tricks.sliding_window_view(x, reach, axis=(2, 3))[
        :, :, ::stride, ::stride, ::dilation, ::dilation
    ]
    n, _, oh, ow = windows.shape[:4]
    result = np.empty((n, out, oh, ow), x.dtype)
    for o in range(out):
        first = o // (out // groups) * group_in
        result[:, o] = np.einsum("ncyxhw,chw->nyx", windows[:, first : first + group_in], w[o])
    return result


def lay(array, source, target):
    index_map = index_map_from_names(source, target, array.shape)
    assert index_map is not None
    return index_map.apply(array)


def run_conv(make_module, unscheduled, x, w, data, kernel, out, **attrs):
    x, w = lay(x, "NCHW", data), lay(w, "OIHW", kernel)

    def body(emit, a, b):
        conv = relax.op.nn.conv2d(a, b, data_layout=data, kernel_layout=kernel, out_layout=out, **attrs)
        return emit(conv)

    mod = legalize(make_module(body, x.shape, w.shape))
    assert "call_tir" in mod["main"].script(show_meta=False)
    assert "R.nn.conv2d" not in mod["main"].script(show_meta=False)
    return unscheduled(mod, x, w)


@given(
    data=st.sampled_from(DATA),
    kernel=st.sampled_from(KERNEL),
    out=st.sampled_from(DATA),
    groups=st.sampled_from([1, 2]),
    stride=st.sampled_from([1, 2]),
    pad=st.sampled_from([0, 1]),
    dilation=st.sampled_from([1, 2]),
)
@settings(max_examples=20)
def test_conv_in_any_layouts_is_the_convolution(
    make_module, unscheduled, arrays, data, kernel, out, groups, stride, pad, dilation
):
    x, w = arrays((2, 16, 6, 7), (8, 16 // groups, 3, 2))
    attrs = {"strides": stride, "padding": pad, "dilation": dilation, "groups": groups}
    got = run_conv(make_module, unscheduled, x, w, data, kernel, out, **attrs)
    expected = reference(x, w, stride, pad, dilation, groups)
    np.testing.assert_allclose(got, lay(expected, "NCHW", out), atol=1e-4)


@pytest.mark.parametrize(("data", "kernel"), [("NCHW4c", "OIHW1i4o"), ("NHWC", "OIHW4o"), ("NCHW8c", "OIHW1i8o")])
def test_depthwise_conv_in_packed_layouts(make_module, unscheduled, arrays, data, kernel):
    x, w = arrays((1, 16, 6, 6), (16, 1, 3, 3))
    out = "NCHW4c"
    got = run_conv(make_module, unscheduled, x, w, data, kernel, out, padding=1, groups=16)
    np.testing.assert_allclose(got, lay(reference(x, w, 1, 1, 1, 16), "NCHW", out), atol=1e-4)


def test_packed_reduction_axes_stay_plain(make_module):
    def body(emit, x, w):
        return emit(relax.op.nn.conv2d(x, w, data_layout="NCHW16c", kernel_layout="OIHW16i16o"))

    mod = legalize(make_module(body, (1, 2, 8, 8, 16), (4, 2, 3, 3, 16, 16)))
    text = next(f for f in mod.functions.values() if not isinstance(f, relax.Function)).script()
    assert "//" not in text
    assert "%" not in text


def test_a_module_is_not_changed(make_module):
    mod = make_module(lambda emit, x: emit(relax.op.nn.relu(x)), (4, 4))
    before = mod.script()
    legalize(mod)
    assert mod.script() == before


def test_what_has_no_legalisation_stays(make_module):
    def body(emit, x, w):
        conv = relax.op.nn.conv2d_transpose(x, w, data_layout="NCHW4c", kernel_layout="IOHW4i4o")
        return emit(relax.op.nn.relu(emit(conv)))

    try:
        mod = make_module(body, (1, 2, 8, 8, 4), (2, 2, 3, 3, 4, 4))
    except tvm.error.TVMError:
        pytest.skip("TVM does not type this op")
    text = legalize(mod)["main"].script(show_meta=False)
    assert "R.nn.conv2d_transpose" in text
    assert "R.nn.relu" not in text


def test_an_op_whose_legalisation_raises_stays(make_module):
    # cumsum over a symbolic axis of unknown rank, and a bool tensor through layout_transform
    def body(emit, x):
        return emit(relax.op.layout_transform(x, index_map=lambda i, j: (j, i)))

    mod = make_module(body, (4, 6), dtype="bool")
    assert legalize(mod)["main"].script(show_meta=False)


@given(
    shape=st.tuples(*[st.sampled_from([1, 4, 8])] * 4),
    names=st.sampled_from([("NCHW", "NHWC"), ("NCHW", "NCHW4c"), ("NHWC", "NCHW"), ("NHWC", "NHCW4c")]),
)
@settings(max_examples=15)
def test_transforms_write_in_order(make_module, unscheduled, arrays, shape, names):
    """So TVM fuses them with what is in front of them and behind; its own are in the order of what they read."""
    index_map = index_map_from_names(*names, shape)
    assume(index_map is not None)
    mod = legalize(make_module(lambda emit, x: emit(relax.op.layout_transform(x, to_tvm(index_map))), shape))
    func = next(f for f in mod.functions.values() if isinstance(f, tvm.tirx.PrimFunc))
    (stage,) = stages_of(new_schedule(func))
    assert stage.is_plain
    (x,) = arrays(shape)
    np.testing.assert_array_equal(unscheduled(mod, x), index_map.apply(x))


def test_a_fault_in_our_own_legalisation_is_not_taken_for_a_refusal(make_module, monkeypatch):
    """It was: the convolution stayed a call, and nobody was told."""

    def body(emit, x, w):
        return emit(relax.op.nn.conv2d(x, w, data_layout="NCHW4c", kernel_layout="OIHW4i4o"))

    def broken(self, data, kernel):
        raise KeyError("a slip")

    mod = make_module(body, (1, 2, 8, 8, 4), (2, 2, 3, 3, 4, 4))
    assert "call_tir" in legalize(mod)["main"].script(show_meta=False)
    monkeypatch.setattr(PackedConvolution, "compute", broken)
    with pytest.raises(KeyError, match="a slip"):
        legalize(mod)


def test_packed_convolutions_of_symbolic_channels_and_unknown_shapes_stay():
    channels = tvm.tirx.Var("c", "int64")
    shapes = [[(1, channels, 8, 8, 4), (2, channels, 3, 3, 4, 4)], [None, (2, 2, 3, 3, 4, 4)]]
    for x_shape, w_shape in shapes:
        types = [relax.TensorType(s, "float32", ndim=-1 if s else 5) for s in (x_shape, w_shape)]
        x, w = (relax.Var(name, ty) for name, ty in zip("xw", types, strict=True))
        builder = relax.BlockBuilder()
        with builder.function("main", [x, w]):
            with builder.dataflow():
                conv = relax.op.nn.conv2d(x, w, data_layout="NCHW4c", kernel_layout="OIHW4i4o")
                output = builder.emit_output(builder.emit(conv))
            builder.emit_func_output(output)
        assert "R.nn.conv2d" in legalize(builder.finalize())["main"].script(show_meta=False)


@pytest.mark.parametrize(("data_layout", "shape"), [("N4cHWC", (1, 4, 6, 6, 2)), ("NHWC4c", (1, 6, 6, 2, 4))])
def test_blocks_may_stand_before_their_axis(make_module, unscheduled, arrays, data_layout, shape):
    """The outer axis had stride 1 where its block stands before it, and elements out of bounds were read."""

    def body(emit, x, w):
        return emit(relax.op.nn.conv2d(x, w, data_layout=data_layout, kernel_layout="O4oHWI", out_layout="NCHW"))

    x, w = arrays(shape, (2, 4, 3, 3, 8))
    mod = make_module(body, shape, (2, 4, 3, 3, 8))
    plain_x = np.einsum("nahwb->nbahw" if data_layout == "N4cHWC" else "nhwba->nbahw", x).reshape(1, 8, 6, 6)
    plain_w = np.einsum("aohwi->aoihw", w).reshape(8, 8, 3, 3)
    expected = sum(
        np.einsum("nihw,oi->nohw", plain_x[:, :, a : a + 4, b : b + 4], plain_w[:, :, a, b])
        for a in range(3)
        for b in range(3)
    )
    np.testing.assert_allclose(unscheduled(legalize(mod), x, w), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("start", "stop", "step", "dtype"),
    [(0, 70_000, 1, "int64"), (5, -200_000, -2, "int32"), (0.5, 20_000.5, 0.25, "float32"), (3, 70_000, 1, "float16")],
)
def test_a_long_range_is_a_kernel_and_not_a_constant(make_module, start, stop, step, dtype):
    """TVM writes it down while it legalises: a word of a file would fill the memory."""
    ends = [
        relax.prim_value(tvm.tirx.FloatImm("float32", x) if isinstance(x, float) else x) for x in (start, stop, step)
    ]
    mod = make_module(lambda emit: emit(relax.op.arange(*ends, dtype)))
    legal = legalize(mod)
    assert "call_tir" in legal["main"].script(show_meta=False)
    (stock,), (ours,) = map(stock_results, (mod, legal))
    assert stock.tobytes() == ours.tobytes()


def test_results_of_another_dtype_than_stated_are_no_kernel() -> None:
    """TVM's variance of int8 is int8 by its type, and int64 as legalised: 8 bytes were written where there was one."""
    calls = [
        made(relax.Var("x", relax.TensorType((4, 6), "int8")), 1)
        for made in (relax.op.variance, relax.op.mean, relax.op.max)
    ]
    assert [found.func is None for found in legalise_calls(calls)] == [True, True, False]


@pytest.mark.parametrize("op", ["max", "convolution", "chained"])
def test_a_reduction_over_nothing_is_what_it_starts_from(op: str) -> None:
    """TVM's own code gives what lay in memory."""
    if op == "convolution":
        mod = program(lambda b, x, w: b.emit(R.nn.conv2d(x, w)), (1, 0, 17, 17), (6, 0, 3, 3))
    elif op == "max":
        mod = program(lambda b, x: b.emit(R.max(x, axis=[0])), (0, 500))
    else:
        mod = program(lambda b, x: b.emit(R.nn.relu(b.emit(R.max(x, axis=[0])))), (0, 500))
    expected = {"max": np.float32(np.finfo("float32").min), "convolution": 0, "chained": 0}[op]
    machine = relax.VirtualMachine(eqsat_layout.compile(mod), tvm.cpu(), memory_cfg="naive")
    given = [tvm.runtime.tensor(np.zeros([int(e) for e in p.ty.shape.values], "float32")) for p in mod["main"].params]
    libc = ctypes.CDLL(None)
    libc.mallopt(-6, 0x40)  # M_PERTURB: what memory holds that nobody wrote
    try:
        got = machine["main"](*given).numpy()
    finally:
        libc.mallopt(-6, 0)
    assert (got == expected).all()


@pytest.mark.parametrize(
    ("op", "expected"), [(relax.op.divide, [np.inf, -np.inf, np.nan]), (relax.op.mod, [np.nan] * 3)]
)
def test_numbers_are_divided_by_zero(make_module, unscheduled, op, expected):
    """TVM refuses to build that."""
    mod = make_module(lambda emit, x: emit(op(x, relax.const(0.0))), (3,))
    given = np.array([1, -2, 0], "float32")
    np.testing.assert_array_equal(unscheduled(legalize(mod), given), np.array(expected, "float32"))


@pytest.mark.parametrize("scan", [R.cumsum, R.cumprod, R.nn.softmax])
def test_scans_of_nothing(scan) -> None:
    """TVM divided by the extent."""
    made = legalize(program(lambda builder, x: builder.emit(scan(x, 1)), (3, 0)))
    assert "call_tir" in made.script()


def test_corners_that_meet_in_one_element() -> None:
    """TVM divided by the 0 elements between them: "Divide by zero"."""
    data = np.arange(70, dtype="float32").reshape(1, 2, 5, 7)
    aligned = {"layout": "NCHW", "method": "linear", "coordinate_transformation_mode": "align_corners"}
    mod = program(lambda builder, x: builder.emit(R.image.resize2d(x, (1, 3), **aligned)), data.shape)
    np.testing.assert_allclose(stock_results(legalize(mod), data)[0], data[:, :, :1, [0, 3, 6]])


def test_grids_of_open_sizes() -> None:
    """ "affine_grid legalization requires static target_shape"."""
    height, width = tirx.Var("h", "int64"), tirx.Var("w", "int64")
    matrix = np.random.default_rng(0).standard_normal((1, 2, 3), "float32")

    def made(sizes) -> tvm.IRModule:
        builder = relax.BlockBuilder()
        params = [relax.Var("x", relax.TensorType((1, 2, 3), "float32")), relax.Var("s", relax.ShapeType(sizes))]
        with builder.function("main", params):
            builder.emit_func_output(R.image.affine_grid(params[0], relax.ShapeExpr(sizes), align_corners=False))
        return legalize(builder.get())

    shape = tvm.runtime.ShapeTuple([4, 5])
    machines = [
        relax.VirtualMachine(tvm.compile(made(sizes), "llvm"), tvm.cpu()) for sizes in ((height, width), (4, 5))
    ]
    opened, known = (machine["main"](tvm.runtime.tensor(matrix), shape).numpy() for machine in machines)
    np.testing.assert_allclose(opened, known, rtol=1e-5, atol=1e-6)


def _alone(params, call):
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(call))
    return builder.get()


def test_takes_are_as_tvm_makes_them_without_its_warning(capfd: pytest.CaptureFixture[str]) -> None:
    """Each embedding of a session wrote "Fast mode segfaults" to standard error, twice."""
    for shape, places, axis in (((10, 4), (3,), 0), ((2, 10, 4), (3, 5), -2), ((5,), (), 0)):
        x, at = relax.Var("x", relax.TensorType(shape, "float32")), relax.Var("at", relax.TensorType(places, "int64"))
        mod = _alone([x, at], relax.op.take(x, at, axis))
        ours = legalize(mod)
        assert "Fast mode" not in capfd.readouterr().err
        assert tvm_ffi.structural_equal(ours, relax.transform.LegalizeOps()(mod))
        capfd.readouterr()


def test_cubes_are_products_without_tvms_warning(capfd: pytest.CaptureFixture[str]) -> None:
    """Each ``x ** 3`` of a session wrote "Detected pow(x, y) where y >= 3" to standard error three times."""
    given = np.random.default_rng(0).standard_normal(64).astype("float32")
    x = relax.Var("x", relax.TensorType((64,), "float32"))
    mod = _alone([x], relax.op.power(x, relax.const(3, "float32")))
    (found,) = eqsat_layout.Session(mod, approx=False).run(None, {"x": given})
    assert not capfd.readouterr().err
    np.testing.assert_array_equal(found, given * given * given)


@pytest.mark.parametrize(("exponent", "dtype"), [(3.5, "float32"), (3, "float16"), (4, "bfloat16")])
def test_high_powers_are_computed_without_tvms_warning(
    exponent: float, dtype: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """``x ** 3.5`` and cubes of halves still wrote "Detected pow(x, y)"."""
    given = np.random.default_rng(0).uniform(0.5, 2, 64).astype(dtype)
    x = relax.Var("x", relax.TensorType((64,), dtype))
    (found,) = eqsat_layout.Session(_alone([x], relax.op.power(x, relax.const(exponent, dtype)))).run(
        None, {"x": given}
    )
    assert not capfd.readouterr().err
    wanted = given.astype("float64") ** exponent
    np.testing.assert_allclose(
        found.astype("float64"), wanted, rtol={"float32": 1e-6, "float16": 1e-3}.get(dtype, 8e-3)
    )


def test_exact_powers_are_those_of_the_library(capfd: pytest.CaptureFixture[str]) -> None:
    """With ``approx=False``, too, ``x ** 8`` was a product: two of three results were not TVM's."""
    given = np.random.default_rng(0).uniform(0.5, 2, 256).astype("float32")
    x = relax.Var("x", relax.TensorType((256,), "float32"))
    mod = _alone([x], relax.op.power(x, relax.const(8, "float32")))
    found, near = (eqsat_layout.Session(mod, approx=approx).run(None, {"x": given})[0] for approx in (False, True))
    assert not capfd.readouterr().err
    wanted = (given.astype("float64") ** 8).astype("float32")
    assert (found == wanted).mean() > 0.95, "libm rounds nearly all to nearest"
    assert (near == wanted).mean() < 0.95, "products are in the default only"


def test_a_call_may_say_less_than_it_makes() -> None:
    """Its type had no dtype, and what TVM made of it was cast to ``None``."""
    text = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((6,), "float32")) -> R.Tensor((1, 6), "float32"):
        with R.dataflow():
            y: R.Tensor((1, 6)) = R.reshape(x, R.shape([1, 6]))
            z: R.Tensor((1, 6), "float32") = R.add(y, R.const(1, "float32"))
            R.output(z)
        return z
"""
    mod = tvm.script.from_source(text, extra_vars={"I": tvm.script.ir, "R": tvm.script.relax})
    assert mod["main"].body.blocks[0].bindings[0].value.ty.dtype is None
    x = np.arange(6, dtype="float32")
    (found,) = eqsat_layout.Session(mod).run(None, {"x": x})
    np.testing.assert_array_equal(found, x[None] + 1)


N = tirx.Var("n", "int64")


@pytest.mark.parametrize(
    ("make", "shapes", "is_alone"),
    [
        (lambda x, w: R.nn.conv2d(x, w, padding=1), [(1, 4, 6, 6), (5, 4, 3, 3)], True),
        (lambda x, y: R.concat([x, y], axis=1), [(2, 3), (2, 5)], True),
        (lambda x: R.reshape(x, (3, 4)), [(2, 6)], True),
        (lambda x: R.strided_slice(x, [1], [2], [0], [-1]), [(2, 6)], True),
        (lambda x: R.nn.softmax(x), [(2, 6)], True),
        (lambda x, y: R.matmul(x, y), [(2, 6), (6, 5)], False),  # it asks the builder for a type
        (lambda x: R.split(x, 2, axis=1), [(2, 6)], False),
        (lambda x, y: R.add(x, y), [(N, 6), (1, 6)], False),
    ],
)
def test_a_kernel_that_is_made_alone_is_that_of_a_module(make, shapes, is_alone) -> None:
    builder = relax.BlockBuilder()
    operands = [relax.Var(f"x{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(shapes)]
    call = builder.normalize(make(*operands))
    with builder.function("main", operands):
        builder.emit_func_output(builder.emit(call))
    (expected,) = (f for f in legalize(builder.get()).functions.values() if isinstance(f, tirx.PrimFunc))
    kernel, (made,) = kernel_of(call), legalise_calls([call])
    assert (kernel is not None) == is_alone
    assert tvm_ffi.structural_equal(made.func, expected.without_attr("global_symbol"), map_free_vars=True)
    assert kernel is None or tvm_ffi.structural_equal(kernel.func(), made.func, map_free_vars=True)


def test_calls_that_are_legalised_together_are_what_each_is_alone() -> None:
    """In turn, beside a second thread: kernels, what is legalised as a module, and what is ill-typed."""
    x, y, z = (relax.Var("p", relax.TensorType(shape, "float32")) for shape in [(6, 6), (6, 5), (6,)])
    builder = relax.BlockBuilder()
    made = [R.add(x, x), R.matmul(x, y), R.nn.softmax(x), R.split(x, 2, axis=1), R.add(x, z), R.variance(x), R.sum(y)]
    calls = [*map(builder.normalize, made), R.add(x, y), R.nn.relu(x)] * 2
    for call, together in zip(calls, legalise_calls(calls), strict=True):
        (alone,) = legalise_calls([call])
        assert (together.func is None) == (alone.func is None)
        assert alone.func is None or tvm_ffi.structural_equal(together.func, alone.func, map_free_vars=True)
        assert (together.type is None) == (alone.type is None) == (call is calls[7] or call is calls[16])
        assert alone.type is None or tvm_ffi.structural_equal(together.type, alone.type)


@pytest.mark.parametrize("mean", [R.mean, R.std, R.variance])
@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_means_of_no_whole_numbers_are_0(mean, dtype) -> None:
    """NaN is none: to compile them raised TVM's own errors."""
    mod = program(lambda b, x: b.emit(mean(x, axis=[0])), (0, 3), dtype=dtype)
    machine = relax.VirtualMachine(eqsat_layout.compile(mod), tvm.cpu(), memory_cfg="naive")
    assert machine["main"](tvm.runtime.tensor(np.zeros((0, 3), dtype))).numpy().tolist() == [0, 0, 0]


def test_ill_typed_calls_are_not_legalised() -> None:
    """TVM's legalisation takes the axis modulo the rank, 0, of a scalar; of a step of 0 it ended the process."""
    x, y, i = (
        relax.Var("p", relax.TensorType(shape, dtype))
        for shape, dtype in [((), "float32"), ((4,), "float32"), ((2,), "int64")]
    )
    for written in (R.take(x, i, axis=-2), R.strided_slice(y, axes=[0], begin=[0], end=[4], strides=[0])):
        call = relax.Call(written.op, written.args, written.attrs, ret_ty=relax.TensorType((2,), "float32"))
        assert [(one.func, one.type) for one in legalise_calls([call] * 6)] == [(None, None)] * 6
