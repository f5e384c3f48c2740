"""Ops of ONNX that TVM's frontend does not take, beside ONNX's own evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import eqsat_layout
from eqsat_layout.errors import EqsatError

onnx = pytest.importorskip("onnx")
RNG = np.random.default_rng(0)
IMAGE = RNG.standard_normal((1, 2, 5, 7), "float32")
BYTES = RNG.integers(0, 255, (1, 3, 6, 6), "uint8")
ROWS = RNG.integers(0, 255, (4, 5), "uint8")
WEIGHTS = RNG.integers(-100, 100, (4, 3, 3, 3), "int8")
MATRIX = WEIGHTS.reshape(-1)[:15].reshape(5, 3)
NARROW = IMAGE.astype(pytest.importorskip("ml_dtypes").float8_e4m3fn)
ODD = np.array([np.inf, -np.inf, np.nan, 2, -3], "float32")
SCALE, ZERO, SIGNED = np.float32(0.02), np.uint8(119), np.int8(3)


def session(op: str, feed: Mapping[str, Any], constants: Mapping[str, Any], results: int, **attributes: Any) -> Any:
    helper = onnx.helper
    names = [f"y{i}" for i in range(results)]
    order = [name for name in (*feed, *constants) if name]
    given = [name if name in order else "" for name in map(chr, range(ord("a"), ord(max(order)) + 1))]
    node = helper.make_node(op, given, names, name="this", **attributes)
    kinds = {name: helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype) for name, array in feed.items()}
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(name, kinds[name], np.asarray(array).shape) for name, array in feed.items()],
        [helper.make_empty_tensor_value_info(name) for name in names],
        [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)


CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], int, dict[str, Any]]] = {
    "convolution with scales for each channel": (
        "QLinearConv",
        {"a": BYTES},
        {
            "b": SCALE,
            "c": ZERO,
            "d": WEIGHTS,
            "e": np.array([0.01, 0.02, 0.03, 0.04], "float32"),
            "f": np.array([0, 1, -2, 3], "int8"),
            "g": np.float32(0.5),
            "h": np.uint8(100),
            "i": np.array([50, -30, 0, 1000], "int32"),
        },
        1,
        {"pads": [1, 1, 1, 1]},
    ),
    "product with scales": (
        "QLinearMatMul",
        {"a": ROWS},
        {"b": SCALE, "c": ZERO, "d": MATRIX, "e": SCALE, "f": SIGNED, "g": SCALE, "h": ZERO},
        1,
        {},
    ),
    "convolution of whole numbers": ("ConvInteger", {"a": BYTES, "b": WEIGHTS.view("uint8")}, {"c": ZERO}, 1, {}),
    "products so far": ("CumProd", {"a": IMAGE}, {"b": np.int64(-1)}, 1, {"exclusive": 1, "reverse": 1}),
    "sequences turned": (
        "ReverseSequence",
        {"a": IMAGE[0, 0], "b": np.array([2, 7, 1, 3, 5])},
        {},
        1,
        {"time_axis": 1, "batch_axis": 0},
    ),
    "maxima and their places": (
        "MaxPool",
        {"a": IMAGE},
        {},
        2,
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1], "storage_order": 1},
    ),
    "determinants": ("Det", {"a": RNG.standard_normal((2, 3, 4, 4), "float32")}, {}, 1, {}),
    "attention by its definition": (
        "Attention",
        {name: RNG.standard_normal((1, 2, 4, 8), "float32") for name in "abc"},
        {},
        1,
        {"is_causal": 1},
    ),
    "shifts by all bits": ("BitShift", {"a": np.full(4, 200, "uint8"), "b": np.array([1, 7, 8, 9], "uint8")}, {}, 1,
                           {"direction": "LEFT"}),
    "powers with whole exponents": ("Pow", {"a": abs(IMAGE), "b": np.arange(7)}, {}, 1, {}),
    "infinities of one sign": ("IsInf", {"a": np.float32([np.inf, -np.inf, 1])}, {}, 1, {"detect_negative": 0}),
    "fewer places than data along every axis": (
        "ScatterElements",
        {"a": IMAGE, "b": np.array([[[[4, 0, 1]], [[2, 1, 3]]]]), "c": np.ones((1, 2, 1, 3), "float32")},
        {},
        1,
        {"axis": 2, "reduction": "add"},
    ),
    "sums of windows with uneven borders": (
        "LpPool",
        {"a": IMAGE},
        {},
        1,
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 2, 1], "p": 3, "ceil_mode": 1},
    ),
    "boxes that overlap as much as allowed": (
        "NonMaxSuppression",
        {"a": np.float32([[[0, 0, 1, 1], [0, 0.5, 1, 1], [5, 5, 6, 6]]]), "b": np.float32([[[0.9, 0.8, 0.7]]])},
        {"c": np.array([3]), "d": np.array([0.5], "float32")},
        1,
        {},
    ),
    "ones where numbers say": (
        "OneHot",
        {"a": np.array([[1.0, -2, 7, 0]], "float32")},
        {"b": np.float32(4), "c": np.array([2, 5], "float32")},
        1,
        {"axis": -2},
    ),
    "rows of length one": ("LpNormalization", {"a": IMAGE * (IMAGE[..., :1] > 0)}, {}, 1, {"p": 1, "axis": 1}),
    "real Fourier": ("DFT", {"a": IMAGE[..., None]}, {"b": np.int64(9), "c": np.int64(2)}, 1, {"onesided": 1}),
    "inverse Fourier": ("DFT", {"a": IMAGE[..., :2]}, {"b": np.int64(4), "c": np.int64(1)}, 1, {"inverse": 1}),
    "Fourier transforms of windows": (
        "STFT",
        {"a": RNG.standard_normal((2, 20, 1), "float32")},
        {"b": np.int64(3), "c": np.hanning(8).astype("float32"), "d": np.int64(8)},
        1,
        {},
    ),
    "resize with all elements": (
        "Resize",
        {"a": IMAGE},
        {"d": np.array([3, 9])},
        1,
        {"mode": "cubic", "antialias": 1, "axes": [2, 3]},
    ),
    "resize without what lies beyond": (
        "Resize",
        {"a": IMAGE},
        {"c": np.array([1, 1, 0.7, 1.6], "float32")},
        1,
        {"mode": "linear", "exclude_outside": 1},
    ),
    "corners of a part of an element": (
        "Resize",
        {"a": IMAGE},
        {"c": np.array([1, 1, 0.7, 0.5], "float32")},
        1,
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    ),
    "losses": (
        "SoftmaxCrossEntropyLoss",
        {"a": RNG.standard_normal((3, 5), "float32"), "b": np.array([4, 0, 2])},
        {},
        2,
        {"reduction": "mean"},
    ),
    "transposed convolution to a size": (
        "ConvTranspose",
        {"a": IMAGE},
        {"b": WEIGHTS[:2].astype("float32") / 100},
        1,
        {"strides": [2, 3], "output_shape": [10, 21]},
    ),
    "attention of rows that see no key": (
        "Attention",
        {name: RNG.standard_normal((1, 2, 4, 8), "float32") for name in "abc"},
        {"d": np.array([[True] * 4, [False] * 4, [True, False] * 2, [False] * 4])},
        1,
        {},
    ),
    "attention with an operand left out": (
        "Attention",
        {name: RNG.standard_normal((1, 2, 4, 8), "float32") for name in "abcef"},
        {},
        3,
        {},
    ),
    "the largest of infinities": ("ReduceMax", {"a": np.float32([[-np.inf] * 2, [1, -np.inf]])}, {"b": [1]}, 1, {}),
    "the least of nothing": ("ReduceMin", {"a": np.zeros((2, 0), "float32")}, {"b": np.array([1])}, 1, {"keepdims": 0}),
    "the largest of truths": ("ReduceMax", {"a": np.array([[True, False], [False, False]])}, {"b": [1]}, 1, {}),
    "a diagonal of another type": ("EyeLike", {"a": np.zeros((3, 4), "int32")}, {}, 1, {"dtype": 11, "k": 1}),
    "all kept": ("Dropout", {"a": IMAGE}, {}, 2, {}),
    "bits of truths": ("BitCast", {"a": np.array([True, False])}, {}, 1, {"to": 2}),
    "numbers with scales for blocks": (
        "DequantizeLinear",
        {"a": ROWS},
        {"b": RNG.random((4, 3)).astype("float32"), "c": ROWS[:, :3].copy()},
        1,
        {"axis": 1, "block_size": 2},
    ),
    "batches first": (
        "GRU",
        {"a": RNG.standard_normal((2, 3, 4), "float32")},
        {"b": RNG.standard_normal((1, 15, 4), "float32"), "c": RNG.standard_normal((1, 15, 5), "float32")},
        2,
        {"hidden_size": 5, "layout": 1, "linear_before_reset": 1},
    ),
    "remainders of infinite numbers": (
        "Mod",
        {"a": np.array([-3, 3, 5.5, -1], "float32"), "b": np.array([2, np.inf, -2, 4], "float32")},
        {},
        1,
        {},
    ),
    "sums of powers of infinities": (
        "ReduceLogSumExp", {"a": np.float32([[np.inf, 1], [1000, 999]])}, {"b": [1]}, 1, {},
    ),
    "lengths of single elements": (
        "ReduceL2", {"a": IMAGE}, {"b": np.zeros(0, "int64")}, 1, {"noop_with_empty_axes": 1},
    ),
    "what is above a threshold, infinities too": (
        "ThresholdedRelu", {"a": np.float32([-np.inf, np.nan, 3, 0.1])}, {}, 1, {"alpha": 0.3},
    ),
    "an exponential unit of NaN": ("Elu", {"a": np.float32([np.nan, -np.inf, -0.5, 2, np.inf])}, {}, 1, {"alpha": 2.0}),
    "a scaled one": ("Selu", {"a": np.float32([np.nan, -np.inf, -0.5, 2])}, {}, 1, {}),
    "a norm with scales along one of its axes": (
        "LayerNormalization", {"a": IMAGE[..., :5]}, {"b": IMAGE[0, 0, 0, :5], "c": IMAGE[0, 0, :, :1]}, 1, {"axis": 2},
    ),
    "a norm of float64": (
        "LayerNormalization", {"a": IMAGE.astype("float64")}, {"b": IMAGE[0, 0, 0].astype("float64")}, 1, {},
    ),
    "an image alone that grows": ("Resize", {"a": IMAGE[0, 0]}, {"c": np.float32([2, 3])}, 1, {"mode": "linear"}),
    "channels that are repeated": ("Resize", {"a": IMAGE}, {"c": np.float32([1, 2, 1, 1])}, 1, {"mode": "nearest"}),
    "six axes, of which one grows": (
        "Resize", {"a": IMAGE[None, None]}, {"c": np.float32([1, 1, 1, 1, 1, 2])}, 1, {"mode": "nearest"},
    ),
    "a vector that grows": ("Resize", {"a": IMAGE[0, 0, 0]}, {"c": np.float32([2])}, 1, {"mode": "nearest"}),
    "channels that are halved": ("Resize", {"a": IMAGE}, {"c": np.float32([1, 0.5, 1, 1])}, 1, {"mode": "linear"}),
    "every second channel": ("Resize", {"a": IMAGE}, {"c": np.float32([1, 0.5, 1, 1])}, 1, {"mode": "nearest"}),
    "products with 0": ("Mul", {"a": ODD}, {"b": np.float32(0)}, 1, {}),
    "a product of a number with 0": ("Mul", {"a": ODD[0]}, {"b": np.float32(0)}, 1, {}),
    "units without a slope": ("LeakyRelu", {"a": ODD[1:]}, {}, 1, {"alpha": 0.0}),
    "parts, one of no elements": ("Split", {"a": IMAGE}, {"b": np.array([2, 0, 3])}, 3, {"axis": 2}),
    "a part along two axes of four": (
        "Resize",
        {"a": IMAGE},
        {"b": np.array([0.1, 0.2, 0.9, 0.8], "float32"), "d": np.array([3, 4])},
        1,
        {"axes": [2, 3], "coordinate_transformation_mode": "tf_crop_and_resize", "mode": "linear"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_ops_give_the_numbers_of_onnx(name: str) -> None:
    op, feed, constants, results, attributes = CASES[name]
    model = session(op, feed, constants, results, **attributes)
    got = eqsat_layout.Session(model).run(None, feed)
    wanted = _wanted(name, model, feed)
    for one, other in zip(got, wanted, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_bytes_of_zeros_alone_are_their_zero_point() -> None:
    """Each was 255: the scale was 0. ONNX Runtime's is 1."""
    zeros = np.zeros((2, 3), "float32")
    model = session("DynamicQuantizeLinear", {"a": zeros}, {}, 3)
    model.opset_import[0].version = 11
    runtime = pytest.importorskip("onnxruntime").InferenceSession(model.SerializeToString())
    ours = eqsat_layout.Session(model)
    for feed in (zeros, zeros - 1.5, IMAGE[0, 0, :2, :3]):
        for got, wanted in zip(ours.run(None, {"a": feed}), runtime.run(None, {"a": feed}), strict=True):
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("op", ["ReduceLogSum", "ReduceLogSumExp", "ReduceL2"])
def test_roots_and_logarithms_of_whole_numbers_lose_their_fractions(op: str) -> None:
    """TVM's kernel of a logarithm takes floats only."""
    given = np.array([[1, 2], [3, 4], [9, 1]], "int32")
    model = session(op, {"a": given}, {"b": np.array([1])}, 1)
    runtime = pytest.importorskip("onnxruntime").InferenceSession(model.SerializeToString())
    (got,), (wanted,) = (one.run(None, {"a": given}) for one in (eqsat_layout.Session(model), runtime))
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(("size", "dtype", "rank"), [(4, "float32", 4), (3, "float64", 4), (2, "float32", 2)])
def test_norms_by_neighbours_in_other_channels(size: int, dtype: str, rank: int) -> None:
    """TVM takes one channel more where ``size`` is even; ONNX's evaluator norms as many as there are images."""
    data = RNG.standard_normal((3, 5, 2, 1)[:rank]).astype(dtype)
    (got,) = eqsat_layout.Session(session("LRN", {"a": data}, {}, 1, size=size, alpha=0.5, bias=2.0)).run(
        None, {"a": data}
    )
    sums = np.zeros_like(data)
    for channel in range(5):
        first = channel - (size - 1) // 2
        sums[:, channel] = (data[:, max(0, first) : first + size] ** 2).sum(1)
    np.testing.assert_allclose(got, data / (2 + 0.5 / size * sums) ** 0.75, rtol=1e-5)


def test_bytes_between_others_lose_their_fractions() -> None:
    """They were rounded after each axis, which ONNX Runtime does where it smooths only."""
    how = {"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"}
    image = (IMAGE[:1] * 40 + 120).astype("uint8")
    model = session("Resize", {"a": image}, {"b": np.zeros(0, "float32"), "c": np.float32([1, 1, 2, 2])}, 1, **how)
    runtime = pytest.importorskip("onnxruntime").InferenceSession(model.SerializeToString())
    (got,), (wanted,) = (one.run(None, {"a": image}) for one in (eqsat_layout.Session(model), runtime))
    np.testing.assert_array_equal(got, wanted)


def _wanted(name: str, model: Any, feed: dict[str, Any]) -> Any:
    if name == "remainders of infinite numbers":  # ONNX says what Python does
        return [np.array([1, 3, -0.5, 3], "float32")]
    if name == "shifts by all bits":
        return [np.array([144, 0, 0, 0], "uint8")]
    if name in (
        "rows of length one",
        "transposed convolution to a size",
    ):  # ONNX's evaluator has no such sizes and norms
        runtime = pytest.importorskip("onnxruntime").InferenceSession(model.SerializeToString())
        return runtime.run(None, feed)
    return pytest.importorskip("onnx.reference").ReferenceEvaluator(model).run(None, feed)


@pytest.mark.parametrize(
    ("op", "feed", "constants", "results", "attributes", "said"),
    [
        ("Cast", {"a": IMAGE}, {}, 1, {"to": 17}, r"'this' \(Cast\).*float8"),
        ("Cast", {"a": IMAGE}, {}, 1, {"to": 22}, r"'this' \(Cast\)"),
        ("Cast", {"a": NARROW}, {}, 1, {"to": 1}, "an operand is float8_e4m3fn"),
        ("Dropout", {"a": IMAGE}, {"b": np.float32(0.5), "c": np.bool_(True)}, 1, {}, "training"),
        (
            "NonMaxSuppression",
            {"a": np.zeros((1, 3, 4), "float32"), "b": np.zeros((1, 1, 3), "float32"), "c": np.array([3])},
            {},
            1,
            {},
            "run time",
        ),
        ("ImageDecoder", {"a": np.zeros(9, "uint8")}, {}, 1, {}, r"'this' \(ImageDecoder\): nothing here converts"),
    ],
)
def test_what_would_give_other_numbers_is_refused_by_the_node(
    op: str, feed: Any, constants: Any, results: int, attributes: Any, said: str
) -> None:
    """Each gave wrong numbers, no rows, or an error that named no node."""
    with pytest.raises(EqsatError, match=said):
        eqsat_layout.Session(session(op, feed, constants, results, **attributes))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_an_upsample_of_old_models_is_a_resize(mode: str) -> None:
    """Its scale, an input since version 9, was not found."""
    model = session("Upsample", {"a": IMAGE}, {"b": np.array([1, 1, 2, 3], "float32")}, 1, mode=mode)
    model.opset_import[0].version = 9
    (got,) = eqsat_layout.Session(model).run(None, {"a": IMAGE})
    (wanted,) = pytest.importorskip("onnxruntime").InferenceSession(model.SerializeToString()).run(None, {"a": IMAGE})
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", ["Hardmax", "Softmax"])
@pytest.mark.parametrize("axis", [-1, 1])
def test_rows_of_old_models_begin_at_an_axis_from_the_end(op: str, axis: int) -> None:
    """``Hardmax`` along -1 gave 1 everywhere: its rows were of no axes."""
    model = session(op, {"a": IMAGE}, {}, 1, axis=axis)
    model.opset_import[0].version = 11
    (got,) = eqsat_layout.Session(model).run(None, {"a": IMAGE})
    (wanted,) = pytest.importorskip("onnxruntime").InferenceSession(model.SerializeToString()).run(None, {"a": IMAGE})
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_what_is_cut_off_stands_around_nothing() -> None:
    """Elements behind the cut were those before the others, wrapped around; ONNX Runtime cuts first."""
    pads = np.array([0, 0, -1, 2, 0, 0, 2, -3])
    model = session("Pad", {"a": IMAGE}, {"b": pads}, 1, mode="wrap")
    model.opset_import[0].version = 19
    (got,) = eqsat_layout.Session(model).run(None, {"a": IMAGE})
    around = [(0, 0), (0, 0), (0, 2), (2, 0)]
    np.testing.assert_array_equal(got, np.pad(IMAGE[:, :, 1:, :-3], around, mode="wrap"))


def test_an_empty_list_is_an_attribute() -> None:
    """TVM's importer could not "parse" it, and named no node."""
    model = session("Transpose", {"a": np.float32(3)}, {}, 1)
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("perm", [], attr_type=onnx.AttributeProto.INTS))
    (got,) = eqsat_layout.Session(model).run(None, {"a": np.float32(3)})
    assert got.shape == ()
    assert got == 3


@pytest.mark.parametrize(
    ("parts", "attributes"), [(np.int64(3), {}), (np.array([1, 4, 2]), {}), (None, {"keepdims": 0})]
)
def test_parts_of_a_sequence_may_be_of_several_sizes(parts: Any, attributes: Any) -> None:
    """Equal sizes were made of a number that does not divide, and nothing could be inserted."""
    helper, real = onnx.helper, onnx.TensorProto.FLOAT
    data, constants = IMAGE[0], {"at": np.int64(1)} | ({} if parts is None else {"parts": parts})
    nodes = [
        helper.make_node(
            "SplitToSequence", ["a", *(["parts"] if parts is not None else [])], ["s"], axis=2, **attributes
        ),
        helper.make_node("SequenceAt", ["s", "at"], ["one"]),
        helper.make_node("SequenceInsert", ["s", "one"], ["more"]),
        helper.make_node("ConcatFromSequence", ["more"], ["y"], axis=1 if attributes else 2),
    ]
    given, made = helper.make_tensor_value_info("a", real, data.shape), helper.make_empty_tensor_value_info("y")
    weights = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", [given], [made], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    (got,) = eqsat_layout.Session(model).run(None, {"a": data})
    ends = [3, 6] if parts is not None and not parts.shape else [1, 5] if parts is not None else list(range(1, 7))
    split = np.split(data, ends, axis=2)
    split = [one[..., 0] for one in split] if attributes else split
    np.testing.assert_array_equal(got, np.concatenate([*split, split[1]], axis=1 if attributes else 2))


def test_a_sequence_of_too_many_parts_is_refused() -> None:
    """A file of a kilobyte took half a minute to read."""
    helper, real = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("SplitToSequence", ["a"], ["s"], axis=0),
        helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0),
    ]
    given, made = helper.make_tensor_value_info("a", real, [20000]), helper.make_empty_tensor_value_info("y")
    model = helper.make_model(helper.make_graph(nodes, "g", [given], [made]), ir_version=10)
    with pytest.raises(EqsatError, match="into 20000 parts, more than 16384, is not done"):
        eqsat_layout.plan(model)
