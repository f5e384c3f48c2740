"""Batch norms become weights, or a product and a sum; nothing else of the program changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tvm
from compare import stock_results
from tvm import relax, tirx
from tvm.relax import op

from eqsat_layout.passes.batch_norms import fold_batch_norms
from eqsat_layout.tir.structural import nodes_of

CHANNELS = 6
OPS = "conv", "matmul", "add", "subtract", "multiply", "batch_norm"


def constants(rng: np.random.Generator, dtype: str = "float32") -> list[Any]:
    given = [rng.uniform(0.5, 2.0, CHANNELS) for _ in range(4)]
    return [relax.const(one.astype(dtype)) for one in given]


def module_of(shape: tuple[int, ...], body: Callable[[Any, Any], Any]) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(body(builder.emit, x))
        builder.emit_func_output(out)
    return builder.get()


def counted(mod: tvm.IRModule) -> dict[str, int]:
    text = mod.script()
    return {name: count for name in OPS if (count := text.count(f".{name}"))}


def checked(mod: tvm.IRModule, expected: Mapping[str, int]) -> None:
    """The ops that are left, and the numbers of the program as TVM decomposes it."""
    folded = fold_batch_norms(mod)
    relax.analysis.well_formed(folded)
    assert counted(folded) == expected
    (x,) = mod["main"].params
    data = np.random.default_rng(1).uniform(-1, 1, tuple(map(int, x.ty.shape))).astype("float32")
    results = []
    for one in (mod, folded):
        plain = relax.transform.DecomposeOpsForInference()(one)
        results.append(stock_results(plain, data))
    for ours, stock in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(ours, stock, rtol=1e-4, atol=1e-4)


CONVOLUTIONS = {
    "1-D": (op.nn.conv1d, (1, 4, 9), (CHANNELS, 4, 3), {}, 1),
    "2-D": (op.nn.conv2d, (1, 4, 9, 7), (CHANNELS, 4, 3, 3), {}, 1),
    "3-D": (op.nn.conv3d, (1, 4, 5, 5, 5), (CHANNELS, 4, 3, 3, 3), {}, 1),
    "grouped": (op.nn.conv2d, (1, 4, 9, 7), (CHANNELS, 2, 3, 3), {"groups": 2}, 1),
    "channels last": (
        op.nn.conv2d,
        (1, 9, 7, 4),
        (3, 3, 4, CHANNELS),
        {"data_layout": "NHWC", "kernel_layout": "HWIO"},
        -1,
    ),
    "transposed": (op.nn.conv2d_transpose, (1, 4, 5, 5), (4, CHANNELS, 3, 3), {}, 1),
}


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_a_convolution_gets_other_weights(kind: str) -> None:
    conv, shape, weight_shape, attrs, axis = CONVOLUTIONS[kind]
    rng = np.random.default_rng(0)
    weights = relax.const(rng.uniform(-1, 1, weight_shape).astype("float32"))

    def body(emit: Any, x: Any) -> Any:
        y = emit(conv(x, weights, **attrs), "images")
        return emit(emit(op.nn.batch_norm(y, *constants(rng), axis=axis, training=False))[0])

    mod = module_of(shape, body)
    checked(mod, {"conv": 1, "add": 1})
    assert "images" in fold_batch_norms(mod).script()


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("reshaped", [True, False])
def test_a_product_gets_other_weights(biased: bool, reshaped: bool) -> None:
    """Linear layers that torch flattens for a norm of two dimensions: divided and scaled element by element before."""
    rng = np.random.default_rng(0)
    weights, bias = (relax.const(rng.uniform(-1, 1, shape).astype("float32")) for shape in [(4, CHANNELS), (CHANNELS,)])

    def body(emit: Any, x: Any) -> Any:
        y = emit(op.matmul(x, weights))
        y = emit(op.add(bias, y)) if biased else y
        y = emit(op.reshape(y, (10, CHANNELS))) if reshaped else y
        return emit(emit(op.nn.batch_norm(y, *constants(rng), axis=-1, training=False))[0])

    checked(module_of((2, 5, 4) if reshaped else (5, 4), body), {"matmul": 1, "add": 1})


def test_a_bias_in_front_goes_along() -> None:
    rng = np.random.default_rng(0)
    weights, bias = (
        relax.const(rng.uniform(-1, 1, shape).astype("float32")) for shape in [(CHANNELS, 4, 3, 3), (1, CHANNELS, 1, 1)]
    )

    def body(emit: Any, x: Any) -> Any:
        y = emit(op.add(emit(op.nn.conv2d(x, weights)), bias))
        return emit(emit(op.nn.batch_norm(y, *constants(rng), axis=1, training=False))[0])

    checked(module_of((1, 4, 9, 7), body), {"conv": 1, "add": 1})


@pytest.mark.parametrize("shape", [(1,), (7,), (1, CHANNELS, 7)])
def test_what_is_added_elsewhere_stays(shape: tuple[int, ...]) -> None:
    """Not one number for each channel."""
    rng = np.random.default_rng(0)
    weights = relax.const(rng.uniform(-1, 1, (CHANNELS, 4, 3)).astype("float32"))
    added = relax.const(rng.uniform(-1, 1, shape).astype("float32"))

    def body(emit: Any, x: Any) -> Any:
        y = emit(op.add(emit(op.nn.conv1d(x, weights)), added))
        return emit(emit(op.nn.batch_norm(y, *constants(rng), axis=1, training=False))[0])

    checked(module_of((1, 4, 9), body), {"conv": 1, "add": 2, "subtract": 1, "multiply": 1})


def test_channels_that_do_not_stay_last_are_others() -> None:
    rng = np.random.default_rng(0)
    weights = relax.const(rng.uniform(-1, 1, (4, CHANNELS)).astype("float32"))

    def body(emit: Any, x: Any) -> Any:
        y = emit(op.reshape(emit(op.matmul(x, weights)), (CHANNELS, CHANNELS)))
        return emit(emit(op.nn.batch_norm(y, *constants(rng), axis=0, training=False))[0])

    checked(module_of((CHANNELS, 4), body), {"matmul": 1, "add": 1, "subtract": 1, "multiply": 1})


def test_results_that_nobody_reads_are_no_readers() -> None:
    """ONNX's importer takes all three from the tuple: no norm of such a model was folded."""
    rng = np.random.default_rng(0)
    weights = relax.const(rng.uniform(-1, 1, (CHANNELS, 4, 3)).astype("float32"))

    def body(emit: Any, x: Any) -> Any:
        norm = emit(op.nn.batch_norm(emit(op.nn.conv1d(x, weights)), *constants(rng), axis=1, training=False))
        items = [emit(norm[number]) for number in range(3)]
        return items[0]

    checked(module_of((1, 4, 9), body), {"conv": 1, "add": 1})


def test_groups_of_a_transposed_convolution_share_their_weights() -> None:
    rng = np.random.default_rng(0)
    weights = relax.const(rng.uniform(-1, 1, (4, CHANNELS // 2, 3, 3)).astype("float32"))

    def body(emit: Any, x: Any) -> Any:
        y = emit(op.nn.conv2d_transpose(x, weights, groups=2))
        return emit(emit(op.nn.batch_norm(y, *constants(rng), axis=1, training=False))[0])

    checked(module_of((1, 4, 5, 5), body), {"conv": 1, "add": 1, "subtract": 1, "multiply": 1})


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("scale", [True, False])
def test_alone_it_is_a_product_and_a_sum(center: bool, scale: bool) -> None:
    rng = np.random.default_rng(0)

    def body(emit: Any, x: Any) -> Any:
        norm = op.nn.batch_norm(x, *constants(rng), axis=1, center=center, scale=scale, training=False)
        return op.nn.relu(emit(emit(norm)[0]))

    checked(module_of((2, CHANNELS, 3), body), {"add": 1, "subtract": 1, "multiply": 1})


def test_what_others_read_stays() -> None:
    """The result of the convolution, here."""
    rng = np.random.default_rng(0)
    weights = relax.const(rng.uniform(-1, 1, (CHANNELS, 4, 1)).astype("float32"))

    def body(emit: Any, x: Any) -> Any:
        y = emit(op.nn.conv1d(x, weights))
        norm = emit(emit(op.nn.batch_norm(y, *constants(rng), axis=1, training=False))[0])
        return op.multiply(norm, y)

    checked(module_of((1, 4, 5), body), {"conv": 1, "add": 1, "subtract": 1, "multiply": 2})


def test_who_reads_the_statistics_keeps_the_op() -> None:
    rng = np.random.default_rng(0)

    def body(emit: Any, x: Any) -> Any:
        norm = emit(op.nn.batch_norm(x, *constants(rng), axis=1, training=False))
        return op.add(emit(norm[0]), op.reshape(emit(norm[1]), (1, CHANNELS, 1)))

    mod = module_of((1, CHANNELS, 5), body)
    assert fold_batch_norms(mod) is mod


def folded_half_weights(weights: Any, norms: Any) -> Any:
    """Those of a convolution in half precision, with the norm behind it."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 4, 5), "float16"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(op.nn.conv1d(x, relax.const(weights)))
            item = builder.emit(builder.emit(op.nn.batch_norm(y, *norms, axis=1, training=False))[0])
            out = builder.emit_output(item)
        builder.emit_func_output(out)
    folded = fold_batch_norms(builder.get())
    return folded["main"].body.blocks[0].bindings[0].value.args[1].value.numpy()


def test_a_wider_dtype_is_not_forgotten() -> None:
    """Weights in half precision: the scale is not rounded before the product."""
    rng = np.random.default_rng(0)
    weights = rng.uniform(-1, 1, (CHANNELS, 4, 1)).astype("float16")
    norms = constants(rng, "float16")
    given = folded_half_weights(weights, norms)
    gamma, _, _, variance = (one.value.numpy().astype("float64") for one in norms)
    scale = (gamma / np.sqrt(variance + 1e-5)).reshape(-1, 1, 1)
    np.testing.assert_array_equal(given, (weights.astype("float32") * scale.astype("float32")).astype("float16"))


def test_doubles_stay_doubles() -> None:
    """`relax.const` makes float32 of them where it is told no dtype: the norm's type error came out."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, CHANNELS, 5), "float64"))
    given = [relax.const(np.full(CHANNELS, 1 / 3), "float64") for _ in range(4)]
    with builder.function("main", [x]):
        with builder.dataflow():
            norm = builder.emit(op.nn.batch_norm(x, *given, axis=1, training=False))
            out = builder.emit_output(builder.emit(norm[0]))
        builder.emit_func_output(out)
    folded = fold_batch_norms(builder.get())
    assert counted(folded) == {"subtract": 1, "multiply": 1, "add": 1}
    assert "float32" not in folded.script()


def test_a_convolution_whose_size_is_matched_stays_as_it_is() -> None:
    """A ``match_cast`` reads it as well: it got what was scaled."""
    n, rows = tirx.Var("n", "int64"), tirx.Var("rows", "int64")
    rng = np.random.default_rng(0)
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((n, 4, 5, 5), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            weight = relax.const(rng.uniform(-1, 1, (CHANNELS, 4, 3, 3)).astype("float32"))
            made = builder.emit(op.nn.conv2d(x, weight))
            matched = builder.match_cast(made, relax.TensorType([rows, CHANNELS, 3, 3], "float32"))
            norm = builder.emit(op.nn.batch_norm(made, *constants(rng), axis=1, training=False))
            outputs = [builder.emit_output(builder.emit(relax.TupleGetItem(norm, 0)))]
            outputs.append(builder.emit_output(op.nn.relu(matched)))
        builder.emit_func_output(relax.Tuple(outputs))
    folded = fold_batch_norms(builder.get())
    (own,) = [call for call in nodes_of(folded["main"], tvm.ir.Call) if str(call.op.name) == "relax.nn.conv2d"]
    np.testing.assert_array_equal(own.args[1].value.numpy(), weight.value.numpy())


@pytest.mark.parametrize(("weight", "gamma", "variance"), [(1e-3, 1e-3, 1.0), (200.0, 2.0, 0.0), (1.0, 1.0, -1.0)])
def test_weights_that_would_lose_bits_or_be_infinite_stay(weight: float, gamma: float, variance: float) -> None:
    """In half precision they were 0 or infinite where the program's results are ordinary numbers."""
    weights = np.full((CHANNELS, 4, 1), weight, "float16")
    norms = [relax.const(np.full(CHANNELS, one, "float16")) for one in (gamma, 0.0, 0.0, variance)]
    given = folded_half_weights(weights, norms)
    np.testing.assert_array_equal(given, weights)


def test_a_convolution_of_another_dataflow_block_stays() -> None:
    """What it reads is not known in the block of the norm: the module was not well formed afterwards."""
    rng = np.random.default_rng(0)
    weights = relax.const(rng.uniform(-1, 1, (CHANNELS, 4, 3, 3)).astype("float32"))
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 4, 9, 7), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            convolved = builder.emit_output(op.nn.conv2d(builder.emit(op.nn.relu(x)), weights))
        builder.emit(op.abs(x))  # else both would be one block
        with builder.dataflow():
            norm = builder.emit(op.nn.batch_norm(convolved, *constants(rng), axis=1, training=False))
            out = builder.emit_output(builder.emit(relax.TupleGetItem(norm, 0)))
        builder.emit_func_output(out)
    checked(builder.get(), {"conv": 1, "subtract": 1, "multiply": 1, "add": 1})
