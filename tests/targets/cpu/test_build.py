"""The way from a Relax module to an executable: whole nets, symbolic shapes, targets, preparation."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tvm
from compare import stock_results
from tvm import relax, te, tirx

import eqsat_layout
from eqsat_layout.errors import MalformedModuleError, TargetError
from eqsat_layout.models import resnet50
from eqsat_layout.notes import Notes
from eqsat_layout.passes.fold_constants import fold_constants
from eqsat_layout.soundness.programs.check import unscheduled_machine
from eqsat_layout.targets.cpu.machine import machine_of
from eqsat_layout.targets.cpu.target import normalize_target
from eqsat_layout.targets.lowering import lower, prepared
from eqsat_layout.targets.registry import target

nn, op = relax.op.nn, relax.op
NET = {"image": 32, "width": 16, "blocks": (1, 1), "classes": 10}


def test_a_small_resnet_end_to_end(run, unscheduled, arrays):
    mod = resnet50(batch=2, **NET)
    before = mod.script()
    (x,) = arrays((2, 3, 32, 32))
    np.testing.assert_allclose(run(lower(mod), x), unscheduled(mod, x), rtol=1e-4, atol=1e-4)
    assert mod.script() == before


def test_lowering_twice_gives_the_same_numbers(run, make_module, arrays):
    mod = make_module(lambda emit, x: emit(nn.softmax(emit(nn.relu(x)))), (8, 16))
    (x,) = arrays((8, 16))
    np.testing.assert_array_equal(run(lower(mod), x), run(lower(mod), x))


def test_a_call_tir_of_the_caller(run, arrays):
    from tvm import te

    def packed_matmul(x, w):
        k = te.reduce_axis((0, 32), "k")
        blocks = te.compute((6, 4, 8), lambda m, c, i: te.sum(x[m, k] * w[c, k, i], axis=k), name="blocks")
        return te.compute((6, 32), lambda m, n: te.max(blocks[m, n // 8, n % 8], tirx.const(0.0, "float32")))

    builder = relax.BlockBuilder()
    params = [
        relax.Var("x", relax.TensorType((6, 32), "float32")),
        relax.Var("w", relax.TensorType((4, 32, 8), "float32")),
    ]
    with builder.function("main", params):
        with builder.dataflow():
            output = builder.emit_output(builder.call_te(packed_matmul, *params))
        builder.emit_func_output(output)
    x, w = arrays((6, 32), (4, 32, 8))
    expected = np.maximum(x @ w.transpose(1, 0, 2).reshape(32, 32), 0)
    np.testing.assert_allclose(run(lower(builder.get()), x, w), expected, atol=1e-4)


def test_a_call_tir_that_can_not_be_fused(run, arrays):
    from tvm import te

    a = te.placeholder((8, 8), name="a")
    plain = te.create_prim_func([a, te.compute((8, 8), lambda i, j: a[i, j] * tirx.const(2.0, "float32"))])
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((8, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            name = builder.add_func(plain.without_attr("global_symbol"), "int32_shapes")
            y = builder.emit(relax.call_tir(name, [x], relax.TensorType((8, 8), "float32")))
            output = builder.emit_output(relax.op.nn.relu(y))
        builder.emit_func_output(output)
    (data,) = arrays((8, 8))
    np.testing.assert_allclose(run(lower(builder.get()), data), np.maximum(2 * data, 0))


def test_a_symbolic_batch(run, make_module, arrays):
    batch = tirx.Var("n", "int64")

    def body(emit, x, w, g):
        y = emit(nn.relu(emit(nn.conv2d(x, w, padding=1))))
        y = emit(op.mean(y, axis=[2, 3]))
        return emit(nn.softmax(emit(op.matmul(y, g))))

    mod = make_module(body, (batch, 8, 10, 10), (16, 8, 3, 3), (16, 12))
    executable = lower(mod)
    for size in (1, 3):
        x, w, g = arrays((size, 8, 10, 10), (16, 8, 3, 3), (16, 12))
        fixed = make_module(body, x.shape, w.shape, g.shape)
        (expected,) = stock_results(fixed, x, w, g)
        np.testing.assert_allclose(run(executable, x, w, g), expected, atol=1e-5)


def test_progress_is_told(make_module):
    steps: list[str] = []
    lower(make_module(lambda emit, x: emit(nn.relu(x)), (4, 4)), progress=steps.append)
    assert steps == ["legalize", "fold constants", "join", "build"]


def test_constants_are_folded_on_the_way(make_module, run, arrays):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((6, 6)).astype("float32") for _ in range(2))

    def body(emit, x):
        folded = emit(op.permute_dims(emit(op.add(relax.const(a), relax.const(b)))))
        return emit(op.matmul(x, folded))

    mod = make_module(body, (2, 6))
    text = fold_constants(mod, Notes())["main"].script(show_meta=False)
    assert "R.add" not in text
    assert "R.permute_dims" not in text
    (x,) = arrays((2, 6))
    np.testing.assert_allclose(run(lower(mod), x), x @ (a + b).T, atol=1e-5)


def test_a_big_broadcast_of_a_small_constant_is_not_folded(make_module):
    def body(emit, x):
        return emit(op.add(x, emit(op.broadcast_to(relax.const(np.ones(1, "float32")), (512, 512)))))

    mod = make_module(body, (512, 512))
    assert "R.broadcast_to" in fold_constants(mod, Notes())["main"].script(show_meta=False)


def batch_norm_net(emit, x):
    rng = np.random.default_rng(3)
    y = emit(nn.conv2d(x, relax.const(rng.standard_normal((8, 3, 3, 3)).astype("float32")), padding=1))
    for _ in range(2):  # the second norm has no convolution before it
        scale, shift, mean, var = (relax.const(rng.uniform(0.5, 1.5, 8).astype("float32")) for _ in range(4))
        pair = emit(nn.batch_norm(y, scale, shift, mean, var, axis=1, training=False))
        y = emit(nn.relu(emit(relax.TupleGetItem(pair, 0))))
    return y


def test_prepare_folds_batch_norms(make_module, unscheduled, arrays):
    mod = make_module(batch_norm_net, (1, 3, 8, 8))
    before = mod.script()
    plain = prepared(mod)
    text = plain["main"].script(show_meta=False)
    assert mod.script() == before
    assert "batch_norm" not in text
    assert "sqrt" not in text
    assert text.count("R.add") == 2  # the bias of the convolution, the shift of the second norm
    (x,) = arrays((1, 3, 8, 8))
    np.testing.assert_allclose(unscheduled(plain, x), unscheduled(mod, x), rtol=1e-4, atol=1e-5)
    assert prepared(plain)["main"].script(show_meta=False) == text


@pytest.mark.parametrize("batch", [2, "n"])
def test_a_training_batch_norm_keeps_its_meaning(batch, unscheduled, run, arrays):
    """It was prepared as one for inference without a word."""

    def body(x, *vectors):
        pair = builder.emit(nn.batch_norm(x, *vectors, axis=1, training=True))
        return builder.emit(relax.TupleGetItem(pair, 0))

    extent = tvm.tirx.Var(batch, "int64") if isinstance(batch, str) else batch
    shapes = [(extent, 3, 4, 4), *[(3,)] * 4]
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            output = builder.emit_output(body(*params))
        builder.emit_func_output(output)
    mod = builder.finalize()
    values = [np.abs(array) for array in arrays((2, 3, 4, 4), *[(3,)] * 4)]
    expected = unscheduled(mod, *values)
    np.testing.assert_allclose(run(eqsat_layout.compile(mod), *values), expected, rtol=1e-4, atol=1e-5)


def test_a_module_without_public_functions_is_refused(make_module):
    """It gave an executable without functions."""
    mod = make_module(lambda emit, x: nn.relu(x), (3, 4))
    private = tvm.IRModule({"main": mod["main"].without_attr("global_symbol")})
    with pytest.raises(MalformedModuleError, match="no function of the module is public"):
        eqsat_layout.compile(private)


def test_two_functions_of_one_public_name_are_refused(make_module):
    """What te.create_prim_func makes is called main until somebody names it: TVM's InternalError told nobody so."""
    mod = make_module(lambda emit, x: nn.relu(x), (3, 4))
    a = te.placeholder((4,), "float32", name="a")
    mod["k"] = te.create_prim_func([a, te.compute((4,), lambda i: a[i] + 1.0, name="b")])
    with pytest.raises(MalformedModuleError, match="k and main have one global_symbol, 'main'"):
        eqsat_layout.compile(mod)


def test_prepare_returns_what_it_cannot_do_unchanged():
    broken = tvm.IRModule({"main": relax.Function([], relax.const(1.0), relax.TensorType((), "float32"))})
    assert prepared(broken) is not None


def test_the_default_target_is_this_machine():
    config = dict(normalize_target().attrs)
    assert config["mcpu"] == tvm.target.codegen.llvm_get_system_cpu()
    assert int(config["num-cores"]) >= 1
    assert dict(normalize_target("llvm").attrs) == config


def test_targets_are_taken_in_every_form():
    asked = {"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 3}
    checked = normalize_target(asked)
    assert dict(normalize_target(checked).attrs) == dict(checked.attrs)
    assert dict(checked.attrs)["mcpu"] == "skylake-avx512"
    assert int(dict(checked.attrs)["num-cores"]) == 3
    own = target(asked)
    assert target(own) is own
    assert target(own.tvm).name == own.name
    assert dict(normalize_target(tvm.target.Target(asked)).attrs)["mcpu"] == "skylake-avx512"


@pytest.mark.parametrize(
    ("config", "lanes", "registers"),
    [
        ({"mcpu": "znver5"}, 16, 32),
        ({"mcpu": "znver3"}, 8, 16),
        ({"mcpu": "nehalem"}, 4, 16),
        ({"mtriple": "aarch64-linux-gnu"}, 4, 32),
    ],
)
def test_vectors_and_registers_come_from_the_features(config, lanes, registers):
    triple = {"mtriple": "x86_64-linux-gnu"} | config
    machine = machine_of(normalize_target({"kind": "llvm", "num-cores": 2} | triple))
    assert machine.lanes(4) == lanes
    assert machine.registers == registers
    assert machine.cores == 2


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("riscy", "unknown target 'riscy'"),
        ("metal", "there is no target of kind 'metal'; there are"),
        ({"kind": "llvm", "mcpu": "pentium9"}, "knows no mcpu 'pentium9'"),
        ({"kind": "llvm", "num-cores": 0}, "a CPU of 0 cores"),
        ({"kind": "llvm", "num-cores": -1}, "a CPU of -1 cores"),
        ({"kind": "llvm", "colour": 1}, "unknown target {'kind': 'llvm', 'colour': 1}"),
        (7, "not int"),
    ],
)
def test_a_target_that_cannot_be_built_for_is_named(given, text):
    with pytest.raises(TargetError) as error:
        target(given)
    assert text in str(error.value)


def test_what_is_worked_out_of_one_vector_twice_has_its_schedule():
    """The larger of a vector and itself: NumPy has no float32x16, so the kernel lost its schedule."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 8, 3, 2, 9), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            larger = builder.emit(op.maximum(x, x))
            moved = op.layout_transform(larger, lambda i0, i1, i2, i3, i4: (i1, i2, i4 * 2 + i3, i0))
            result = builder.emit_output(builder.emit(moved))
        builder.emit_func_output(result)
    notes = []
    built = eqsat_layout.compile(builder.get(), notes=notes)
    data = np.random.default_rng(0).standard_normal((1, 8, 3, 2, 9)).astype("float32")
    found = relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(data)).numpy()
    assert not notes
    np.testing.assert_array_equal(found, data.transpose(1, 2, 4, 3, 0).reshape(8, 3, 18, 1))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn"])
def test_zeros_of_narrow_floats_have_their_schedule(dtype):
    """TVM's pass for bfloat16 refuses to store a vector of what is made of bits: the kernel lost its schedule."""
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        builder.emit_func_output(builder.emit(op.zeros(relax.ShapeExpr([64, 63]), dtype)))
    notes = []
    built = eqsat_layout.compile(builder.get(), notes=notes)
    found = relax.VirtualMachine(built, tvm.cpu())["main"]().numpy()
    assert not notes
    assert found.shape == (64, 63)
    assert not found.astype("float32").any()


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16", "int8", "float64"])
def test_weights_of_any_dtype_compile_and_run(kind):
    """int8: weights that are scaled to floats in the program."""
    dtype = "float32" if kind == "int8" else kind
    rng = np.random.default_rng(0)
    numpy_dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType((1, 16, 12, 12), dtype))

    def weight(*shape):
        if kind == "int8":
            levels = relax.const(rng.integers(-100, 100, shape).astype("int8"))
            return builder.emit(op.multiply(builder.emit(op.astype(levels, dtype)), relax.const(0.002, dtype)))
        return relax.const(tvm.runtime.tensor((0.1 * rng.standard_normal(shape)).astype(numpy_dtype)))

    with builder.function("main", [data]):
        with builder.dataflow():
            y = builder.emit(op.nn.relu(builder.emit(op.nn.conv2d(data, weight(32, 16, 3, 3), padding=1))))
            y = builder.emit(op.nn.gelu(builder.emit(op.nn.conv2d(y, weight(32, 32, 3, 3), padding=1))))
            y = builder.emit(op.nn.conv2d(y, weight(32, 1, 3, 3), padding=1, groups=32))
            y = builder.emit(op.matmul(builder.emit(op.mean(y, [2, 3])), weight(32, 10)))
            output = builder.emit_output(op.nn.softmax(y))
        builder.emit_func_output(output)
    mod = builder.get()
    sample = tvm.runtime.tensor(rng.standard_normal((1, 16, 12, 12)).astype(numpy_dtype))
    machines = unscheduled_machine(mod), relax.VirtualMachine(eqsat_layout.compile(mod), tvm.cpu())
    wanted, got = (machine["main"](sample).numpy().astype("float64") for machine in machines)
    np.testing.assert_allclose(got, wanted, atol={"float16": 1e-3, "bfloat16": 5e-3}.get(kind, 1e-6))
