"""Ops of ``com.microsoft``, and what few exporters write, beside ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eqsat_layout
from eqsat_layout.errors import EqsatError

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
helper = onnx.helper
RNG = np.random.default_rng(0)
MICROSOFT = "com.microsoft"


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape, "float32")


def narrow(*shape: int) -> Any:
    return RNG.integers(-20, 20, shape, "int8")


def model(op: str, feed: dict[str, Any], constants: dict[str, Any], results: int, **attributes: Any) -> Any:
    """Operands are called a, b, c in their order."""
    domain = attributes.pop("domain", MICROSOFT)
    symbols = attributes.pop("symbols", {})
    last = max(ord(name) for name in (*feed, *constants))
    names = [chr(at) if chr(at) in feed or chr(at) in constants else "" for at in range(ord("a"), last + 1)]
    node = helper.make_node(op, names, [f"y{i}" for i in range(results)], name="this", domain=domain, **attributes)
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype), symbols.get(name, np.asarray(array).shape)
        )
        for name, array in feed.items()
    ]
    graph = helper.make_graph(
        [node],
        "g",
        inputs,
        [helper.make_empty_tensor_value_info(f"y{i}") for i in range(results)],
        [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


TABLES = {"c": floats(9, 4), "d": floats(9, 4)}
PACKED = {"b": floats(32, 96) / 6, "c": floats(96)}
CACHE = {"d": ["batch", 2, "past", 16], "e": ["batch", 2, "past", 16]}
STEPS = {"a": ["batch", "steps", 64], "b": ["batch", "steps", 32], "c": ["batch", "steps", 32], "f": ["batch"]}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], int, dict[str, Any]]] = {
    "a norm of a sum, and the sum": (
        "SkipLayerNormalization",
        {"a": floats(2, 3, 8), "b": floats(2, 3, 8)},
        {"c": floats(8), "e": floats(8)},
        1,
        {"epsilon": 1e-5},
    ),
    "a norm without a mean": (
        "SkipSimplifiedLayerNormalization",
        {"a": floats(2, 3, 8), "b": floats(2, 3, 8)},
        {"c": floats(8)},
        1,
        {"epsilon": 1e-5},
    ),
    "positions turned": (
        "RotaryEmbedding",
        {"a": floats(2, 3, 24), "b": np.array([[0, 1, 2], [4, 5, 6]])},
        TABLES,
        1,
        {},
    ),
    "positions turned pair by pair, by heads": (
        "RotaryEmbedding",
        {"a": floats(2, 3, 4, 8), "b": np.array([2])},
        TABLES,
        1,
        {"interleaved": 1},
    ),
    "attention with a bias and padding": (
        "MultiHeadAttention",
        {
            "a": floats(2, 3, 8),
            "b": floats(2, 4, 8),
            "c": floats(2, 4, 8),
            "e": np.array([[1, 1, 1, 0], [1, 1, 0, 0]], "int32"),
        },
        {"d": floats(24)},
        1,
        {"num_heads": 2},
    ),
    "a step of a decoder": (
        "GroupQueryAttention",
        {
            "a": floats(1, 1, 64),
            "b": floats(1, 1, 32),
            "c": floats(1, 1, 32),
            "d": floats(1, 2, 5, 16),
            "e": floats(1, 2, 5, 16),
            "f": np.array([5], "int32"),
            "g": np.array(6, "int32"),
        },
        {"h": floats(9, 8), "i": floats(9, 8)},
        3,
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "symbols": {**STEPS, **CACHE}},
    ),
    "weights of four bits": (
        "MatMulNBits",
        {"a": floats(2, 32)},
        {
            "b": RNG.integers(0, 255, (6, 2, 8), "uint8"),
            "c": floats(12),
            "d": RNG.integers(0, 255, (6,), "uint8"),
        },
        1,
        {"K": 32, "N": 6, "bits": 4, "block_size": 16},
    ),
    "a product with a factor": (
        "FusedMatMul",
        {"a": floats(2, 4, 3), "b": floats(2, 5, 4)},
        {},
        1,
        {"alpha": 0.5, "transA": 1, "transB": 1},
    ),
    "a convolution and its activation": (
        "FusedConv",
        {"a": floats(1, 3, 6, 6)},
        {"b": floats(4, 3, 3, 3), "c": floats(4)},
        1,
        {"activation": "LeakyRelu", "activation_params": [0.2], "kernel_shape": [3, 3], "pads": [1, 1, 1, 1]},
    ),
    "a sum of whole numbers": (
        "QLinearAdd",
        {"a": narrow(3, 4), "d": narrow(3, 4)},
        {
            "b": np.float32(0.1),
            "c": np.int8(1),
            "e": np.float32(0.2),
            "f": np.int8(-1),
            "g": np.float32(0.15),
            "h": np.int8(3),
        },
        1,
        {},
    ),
    "a product of whole numbers": (
        "QGemm",
        {"a": narrow(3, 5)},
        {
            "b": np.float32(0.1),
            "c": np.int8(1),
            "d": narrow(4, 5),
            "e": np.float32(0.2),
            "f": np.int8(0),
            "g": RNG.integers(-90, 90, (4,), "int32"),
            "h": np.float32(0.7),
            "i": np.int8(3),
        },
        1,
        {"transB": 1},
    ),
    "an LSTM with peepholes and sequences of their own lengths": (
        "LSTM",
        {"a": floats(5, 3, 4), "e": np.array([5, 2, 3], "int32")},
        {
            "b": floats(2, 24, 4),
            "c": floats(2, 24, 6),
            "d": floats(2, 48),
            "f": floats(2, 3, 6),
            "g": floats(2, 3, 6),
            "h": floats(2, 18),
        },
        3,
        {"hidden_size": 6, "direction": "bidirectional", "domain": ""},
    ),
    "a GRU of sequences of their own lengths": (
        "GRU",
        {"a": floats(5, 3, 4), "e": np.array([1, 4, 5], "int32")},
        {"b": floats(2, 18, 4), "c": floats(2, 18, 6), "f": floats(2, 3, 6)},
        2,
        {"hidden_size": 6, "direction": "bidirectional", "domain": ""},
    ),
    "a resize that keeps the ratio of the sides": (
        "Resize",
        {"a": floats(1, 2, 5, 7)},
        {"d": np.array([9, 11])},
        1,
        {"axes": [2, 3], "keep_aspect_ratio_policy": "not_larger", "mode": "linear", "domain": ""},
    ),
    "a resize to the element before, near a whole place": (
        "Resize",
        {"a": floats(1, 2, 7, 9)},
        {"c": np.array([1, 1, 1.7, 0.6], "float32")},
        1,
        {"nearest_mode": "floor", "domain": ""},
    ),
    "all elements that differ, with their places in a matrix": (
        "Unique",
        {"a": RNG.integers(0, 4, (3, 4)).astype("float32")},
        {},
        4,
        {"domain": ""},
    ),
    "as many of the largest as a tensor says": (
        "TopK",
        {"a": floats(3, 9), "b": np.array([4])},
        {},
        2,
        {"domain": ""},
    ),
    "attention of one matrix, with a mask of keys": (
        "Attention",
        {"a": floats(2, 5, 32), "d": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], "int32")},
        PACKED,
        1,
        {"num_heads": 4, "symbols": {"a": ["batch", "steps", 32], "d": ["batch", "steps"]}},
    ),
    "attention of one matrix, as many keys as each sequence has, and their past": (
        "Attention",
        {"a": floats(2, 5, 32), "d": np.array([7, 6], "int32"), "e": floats(2, 2, 4, 3, 8)},
        PACKED,
        2,
        {
            "num_heads": 4,
            "unidirectional": 1,
            "symbols": {"a": ["batch", "steps", 32], "d": ["batch"], "e": [2, "batch", 4, "past", 8]},
        },
    ),
    "attention of one matrix, keys between two places": (
        "Attention",
        {"a": floats(2, 5, 32), "d": np.array([3, 5, 1, 0], "int32")},
        PACKED,
        1,
        {"num_heads": 4, "mask_filter_value": -3.0},
    ),
    "attention of whole numbers": (
        "QAttention",
        {"a": narrow(2, 5, 32).view("uint8")},
        {
            "b": narrow(32, 96),
            "c": floats(96),
            "d": np.array(0.02, "float32"),
            "e": np.array(0.01, "float32"),
            "g": np.array(100, "uint8"),
            "h": np.array(0, "int8"),
        },
        1,
        {"num_heads": 4},
    ),
    "words, segments and places, and how many words": (
        "EmbedLayerNormalization",
        {
            "a": RNG.integers(0, 20, (2, 5), "int32"),
            "b": RNG.integers(0, 2, (2, 5), "int32"),
            "h": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], "int32"),
        },
        {"c": floats(20, 8), "d": floats(9, 8), "e": floats(2, 8), "f": floats(8), "g": floats(8)},
        2,
        {"epsilon": 1e-5, "symbols": {name: ["batch", "steps"] for name in "abh"}},
    ),
    "a product of an operand that is rounded as it comes": (
        "DynamicQuantizeMatMul",
        {"a": floats(3, 4, 8)},
        {"b": narrow(8, 5), "c": np.abs(floats(5)) + 0.1, "d": narrow(5), "e": floats(5)},
        1,
        {},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_nodes_give_the_numbers_of_onnx_runtime(name: str) -> None:
    op, feed, constants, results, attributes = CASES[name]
    made = model(op, feed, constants, results, **attributes)
    wanted = runtime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feed)
    session = eqsat_layout.Session(made)
    given = {port.name: feed[port.name] for port in session.inputs}
    for own, want in zip(session.run(None, given), wanted, strict=True):
        assert (own.dtype, own.shape) == (want.dtype, want.shape)
        if own.dtype.kind in "iu":
            np.testing.assert_array_equal(own, want)
        else:
            np.testing.assert_allclose(own, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("op", "attributes", "why"),
    [
        ("FusedMatMul", {"transBatchA": 1}, "transBatchA"),
        ("FusedGemm", {"activation": "Selu"}, "activation=Selu"),
        ("Unique", {}, "the order in which they come first"),  # it gave the results of ONNX's op of that name
    ],
)
def test_what_is_not_done_is_refused_by_the_node(op: str, attributes: dict[str, Any], why: str) -> None:
    made = model(op, {"a": floats(4, 4), "b": floats(4, 4)}, {}, 1, **attributes)
    with pytest.raises(EqsatError, match=f"node 'this' .*{why}"):
        eqsat_layout.Session(made)


def test_boxes_of_unknown_shape_are_refused_where_tvm_ended_the_process() -> None:
    nodes = [
        helper.make_node("Slice", ["a", "from", "to", "axis"], ["c"]),
        helper.make_node("NonMaxSuppression", ["c", "s"], ["y"], name="this"),
    ]
    kind = onnx.TensorProto.FLOAT
    shapes = {"a": [1, "n", 4], "s": [1, 1, "n"]}
    inputs = [helper.make_tensor_value_info(name, kind, shape) for name, shape in shapes.items()]
    inputs += [helper.make_tensor_value_info(name, onnx.TensorProto.INT64, [1]) for name in ("from", "to")]
    axis = onnx.numpy_helper.from_array(np.array([1]), "axis")
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info("y")], [axis])
    with pytest.raises(EqsatError, match=r"node 'this' .*boxes of a shape that is known at run time only"):
        eqsat_layout.Session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10))


def test_a_layer_of_whole_weights_is_near_what_rounds_its_data_too() -> None:
    constants = {
        "b": narrow(2, 6, 32),
        "c": narrow(2, 8, 32),
        "d": floats(2, 64),
        "i": np.full(2, 0.02, "float32"),
        "j": np.zeros(2, "int8"),
        "k": np.full(2, 0.02, "float32"),
        "l": np.zeros(2, "int8"),
    }
    feed = {"a": floats(4, 2, 6)}
    made = model("DynamicQuantizeLSTM", feed, constants, 1, direction="bidirectional", hidden_size=8)
    wanted = runtime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feed)
    np.testing.assert_allclose(eqsat_layout.Session(made).run(None, feed)[0], wanted[0], atol=0.02)
