"""Models as other tools and older versions of ONNX write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import eqsat_layout
from eqsat_layout.errors import EqsatError, InputError

onnx = pytest.importorskip("onnx")
reference = pytest.importorskip("onnx.reference")
RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((4, 6), "float32")
IMAGE = RNG.standard_normal((2, 3, 8, 7), "float32")
WEIGHTS = RNG.standard_normal((4, 3, 3, 2), "float32")


def model_of(
    nodes: Sequence[Any], shape: Sequence[Any], results: Sequence[str], constants: Mapping[str, Any], opset: int
) -> Any:
    helper = onnx.helper
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info(name) for name in results],
        [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def test_bounds_and_counts_that_are_attributes() -> None:
    """Before ONNX's version 10: "Slice with ends=(3,) is not done"."""
    node = onnx.helper.make_node
    nodes = [
        node("Slice", ["x"], ["part"], starts=[1, -5], ends=[9, -1], axes=[0, 1]),
        node("TopK", ["part"], ["values", "places"], k=2, axis=1),
    ]
    model = model_of(nodes, ["n", 6], ["values", "places"], {}, 9)
    got = eqsat_layout.Session(model, candidates=False).run(None, {"x": ROWS})
    part = ROWS[1:, 1:5]
    places = np.argsort(-part, axis=1)[:, :2]
    np.testing.assert_array_equal(got[1], places)
    np.testing.assert_array_equal(got[0], np.take_along_axis(part, places, 1))


@pytest.mark.parametrize(("opset", "is_said"), [(6, False), (9, True)])
def test_slopes_are_of_channels_before_version_7(opset: int, is_said: bool) -> None:
    """They stayed along the last axis: "TVM can't build relax.nn.prelu of gv: "."""
    slopes = np.array([0.1, 0.2, 0.3], "float32")
    nodes = [onnx.helper.make_node("PRelu", ["x", "slopes"], ["y"], name="leak")]
    model = model_of(nodes, IMAGE.shape, ["y"], {"slopes": slopes}, opset)
    model.graph.input.append(onnx.helper.make_tensor_value_info("slopes", 1, [3]))
    if is_said:
        with pytest.raises(EqsatError, match=r"'leak' \(PRelu\): slopes of shape \[3\] don't spread to .*, 8, 7\]"):
            eqsat_layout.Session(model)
        return
    got = eqsat_layout.Session(model, candidates=False).run(None, {"x": IMAGE})[0]
    np.testing.assert_allclose(got, np.where(IMAGE < 0, IMAGE * slopes[:, None, None], IMAGE), rtol=1e-6)


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (("Conv", ["x"], ["y"]), r"'this' \(Conv\) has no operand 1 \(W\), which Conv needs"),
        (("Relu", ["x", "x"], ["y"]), r"\(Relu\) has 2 operands, and Relu 1 at most"),
        (("Concat", ["x", "x"], ["y"]), r"\(Concat\) has no attribute 'axis', which Concat needs"),
        (("Sigmod", ["x"], ["y"]), r"\(Sigmod\): ONNX has no op of this name.* did you mean 'Sigmoid'\?"),
        (("Swish", ["x"], ["y"]), r"\(Swish\): .* since opset 24, in a model that says opset 18"),
        (("Bernoulli", ["x"], ["y"]), r"'this' \(Bernoulli\): .* random numbers: give them as an input"),
    ],
    ids=lambda given: given[0] if isinstance(given, tuple) else "",
)
def test_nodes_that_are_none_of_their_op_are_named(node: Any, said: str) -> None:
    """ "'NoneType' object has no attribute 'ty'", "nothing here converts this op" of what ONNX had written for it, or
    in silence: ``Concat`` without an axis, ``Relu`` of two."""
    model = model_of([onnx.helper.make_node(*node, name="this")], IMAGE.shape, ["y"], {}, 18)
    with pytest.raises(EqsatError, match=said):
        eqsat_layout.Session(model)


def test_the_first_version_of_resizes() -> None:
    """Version 10, in which TVM's converter finds no size, and whose ``TopK`` it takes for the one before."""
    node = onnx.helper.make_node
    nodes = [node("Resize", ["x", "scales"], ["y"]), node("TopK", ["y", "two"], ["values", "places"])]
    constants = {"scales": np.array([1, 1, 2, 1], "float32"), "two": np.array([2])}
    got = eqsat_layout.Session(model_of(nodes, IMAGE.shape, ["y", "values"], constants, 10)).run(None, {"x": IMAGE})
    doubled = np.repeat(IMAGE, 2, 2)
    np.testing.assert_array_equal(got[0], doubled)
    np.testing.assert_array_equal(got[1], -np.sort(-doubled, -1)[..., :2])


def test_axes_that_the_first_version_of_resizes_shrinks_are_rounded_up() -> None:
    """They were rounded down, as those that grow are. ONNX has [[1, 3]] of [[1, 2, 3, 4]]."""
    nodes = [onnx.helper.make_node("Resize", ["x", "scales"], ["y"])]
    model = model_of(nodes, IMAGE.shape, ["y"], {"scales": np.array([1, 1, 1.6, 0.6], "float32")}, 10)
    (got,) = eqsat_layout.Session(model).run(None, {"x": IMAGE})
    down, up = (np.arange(int(IMAGE.shape[axis] * by)) / by for axis, by in ((2, 1.6), (3, 0.6)))
    np.testing.assert_array_equal(got, IMAGE[:, :, np.floor(down).astype(int)][..., np.ceil(up).astype(int)])


@pytest.mark.parametrize(
    ("mode", "pads", "ops", "shape"),
    [
        ("SAME_LOWER", [1, 1, 0, 0], ["MaxPool", "AveragePool", "Conv"], ["b", 3, 8, 7]),
        ("SAME_UPPER", [0, 0, 1, 1], ["MaxPool", "Conv"], ["b", 3, "h", "w"]),
    ],
)
def test_pads_that_go_by_the_size_of_the_data(mode: str, pads: list[int], ops: list[str], shape: list[Any]) -> None:
    """TVM's pools round sizes down, and want numbers of the batch too; its convolutions want ``kernel_shape``."""

    def model(**border: Any) -> Any:
        nodes = []
        for op in ops:
            own: dict[str, Any] = {} if op == "Conv" else {"kernel_shape": [3, 2]}
            nodes.append(onnx.helper.make_node(op, ["x", "w"][: 2 - len(own)], [op], strides=[2, 2], **own, **border))
        return model_of(nodes, shape, ops, {"w": WEIGHTS}, 17)

    wanted = reference.ReferenceEvaluator(model(pads=pads)).run(None, {"x": IMAGE})
    got = eqsat_layout.Session(model(auto_pad=mode), candidates=False).run(None, {"x": IMAGE})
    for one, want in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, want, rtol=1e-5, atol=1e-5)


def test_nodes_that_stand_before_what_they_read() -> None:
    """Casts to float16 are appended to models by the tools that make them; ONNX Runtime sorts."""
    node = onnx.helper.make_node
    nodes = [
        node("Relu", ["half"], ["y"], name="second"),
        node("Cast", ["y"], ["z"], to=onnx.TensorProto.FLOAT, name="last"),
        node("Cast", ["x"], ["half"], to=onnx.TensorProto.FLOAT16, name="first"),
    ]
    model = model_of(nodes, ["n", 6], ["z"], {}, 17)
    got = eqsat_layout.Session(model, candidates=False).run(None, {"x": ROWS})[0]
    np.testing.assert_array_equal(got, np.maximum(ROWS, 0).astype("float16").astype("float32"))
    assert [one.name for one in model.graph.node] == ["second", "last", "first"]


def test_operands_of_resizes_that_are_left_out_by_being_empty() -> None:
    """Version 11, in which they could not be left out: "Only one of scales and sizes can be provided"."""
    node = onnx.helper.make_node
    nodes = [
        node("Constant", [], ["twice"], value_ints=[1, 1, 2, 2]),  # an attribute of later versions, as torch writes it
        node("Shape", ["x"], ["shape"]),
        node("Mul", ["shape", "twice"], ["sizes"]),
        node("Resize", ["x", "none", "none", "sizes"], ["y"], name="resize"),
    ]
    model = model_of(nodes, ["b", 3, "h", "w"], ["y"], {"none": np.empty(0, "float32")}, 11)
    (got,) = eqsat_layout.Session(model, candidates=False).run(None, {"x": IMAGE})
    np.testing.assert_array_equal(got, np.repeat(np.repeat(IMAGE, 2, 2), 2, 3))


@pytest.mark.parametrize(
    "attributes",
    [
        {"mode": "nearest", "coordinate_transformation_mode": "half_pixel"},
        {"mode": "linear", "antialias": 1},
    ],
    ids=["nearest", "smooth"],
)
def test_resizes_of_images_of_open_sizes(attributes: dict[str, Any]) -> None:
    """Smooth ones were refused, also where only the batch is open ("sizes that are known at run time only"); nearest
    elements were taken beside those of ONNX."""
    node = onnx.helper.make_node
    nodes = [
        node("Shape", ["x"], ["first"], end=2),
        node("Concat", ["first", "sides"], ["sizes"], axis=0),
        node("Resize", ["x", "", "", "sizes"], ["y"], name="resize", **attributes),
    ]
    model = model_of(nodes, ["n", 3, "h", 7], ["y"], {"sides": np.array([13, 7])}, 18)
    session = eqsat_layout.Session(model, candidates=False)
    for image in (IMAGE, np.concatenate([IMAGE, IMAGE], 2)):
        (want,) = reference.ReferenceEvaluator(model).run(None, {"x": image})
        np.testing.assert_allclose(session.run(None, {"x": image})[0], want, atol=1e-5)


@pytest.mark.parametrize("height", [10, "h"])
def test_scales_are_multiplied_in_their_own_precision(height: int | str) -> None:
    """``interpolate(scale_factor=0.7)``: torch and ONNX Runtime make 7 of 10; of known sizes ours were 6."""
    nodes = [
        onnx.helper.make_node("Resize", ["x", "", "scales"], ["y"], name="resize"),
        onnx.helper.make_node("Relu", ["y"], ["z"], name="relu"),
    ]
    scales = np.array([1, 1, 0.7, 2.3], "float32")
    model = model_of(nodes, [1, 3, height, 10], ["z"], {"scales": scales}, 13)
    (got,) = eqsat_layout.Session(model, candidates=False).run(None, {"x": np.ones((1, 3, 10, 10), "float32")})
    assert got.shape == (1, 3, 7, 23)


def test_the_long_name_of_onnx_s_own_domain() -> None:
    """ONNX's tools look for the empty name: "No opset import for domain ai.onnx"."""
    node = onnx.helper.make_node
    nodes = [node("Relu", ["x"], ["y"], domain="ai.onnx"), node("Celu", ["y"], ["z"], domain="ai.onnx")]
    for imported in ("", "ai.onnx"):
        model = model_of(nodes, ROWS.shape, ["z"], {}, 17)
        model.opset_import[0].domain = imported
        (got,) = eqsat_layout.Session(model, candidates=False).run(None, {"x": ROWS})
        np.testing.assert_array_equal(got, np.maximum(ROWS, 0))


def test_results_of_a_norm_without_the_operand_and_the_result_that_are_left_out() -> None:
    """The definition that ONNX gives was not found: "TVM's frontend makes R.Tensor(()) of it"."""
    nodes = [onnx.helper.make_node("LayerNormalization", ["x", "scale", ""], ["y", "", "inverse"], epsilon=0.0)]
    model = model_of(nodes, ROWS.shape, ["y", "inverse"], {"scale": ROWS[0]}, 17)
    got = eqsat_layout.Session(model, candidates=False).run(None, {"x": ROWS})
    inverse = 1 / ROWS.std(1, keepdims=True)
    np.testing.assert_allclose(got[1], inverse, rtol=1e-5)
    np.testing.assert_allclose(got[0], (ROWS - ROWS.mean(1, keepdims=True)) * inverse * ROWS[0], rtol=1e-4, atol=1e-5)


def test_spectra_of_signals_of_open_length() -> None:
    """The length of windows is known, and it said: "a Fourier transform of unknown length"."""
    constants = {"step": np.int64(3), "window": np.hanning(8).astype("float32")}
    nodes = [onnx.helper.make_node("STFT", ["x", "step", "window"], ["y"])]
    session = eqsat_layout.Session(model_of(nodes, ["batch", "length"], ["y"], constants, 17), candidates=False)
    for length in (8, 21):
        x = RNG.standard_normal((2, length)).astype("float32")
        (got,) = session.run(None, {"x": x})
        frames = np.stack([x[:, at : at + 8] for at in range(0, length - 7, 3)], 1) * constants["window"]
        np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], np.fft.rfft(frames), atol=1e-5)
    with pytest.raises(InputError, match="too small"):
        session.run(None, {"x": ROWS[:, :3]})
    with pytest.raises(EqsatError, match="a window of 8 elements is longer than its signal of 3"):
        eqsat_layout.Session(model_of(nodes, [2, 3], ["y"], constants, 17))  # it made -1 of them, and ran out of memory


def branches_of_different_ranks(*after: Any) -> Any:
    """A model whose ``chosen`` is flat if the sum of x is more than 0, and x if not; ``after`` makes y."""
    helper, node = onnx.helper, onnx.helper.make_node
    float32 = onnx.TensorProto.FLOAT
    flat, whole = (
        helper.make_graph([made], made.op_type, [], [helper.make_tensor_value_info(made.output[0], float32, None)])
        for made in (node("Reshape", ["x", "size"], ["flat"]), node("Identity", ["x"], ["whole"]))
    )
    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Greater", ["sum", "zero"], ["is_more"]),
        node("If", ["is_more"], ["chosen"], then_branch=flat, else_branch=whole),
        *after,
    ]
    constants = {"size": np.array([ROWS.size]), "zero": np.float32(0), "rows": np.array(ROWS.shape)}
    return model_of(nodes, ROWS.shape, ["y"], constants, 17)


def test_branches_of_different_ranks_are_refused_by_the_name_of_who_reads_them() -> None:
    """It said "TVM can't build relax.sum of gv2", which is no node."""
    node = onnx.helper.make_node
    model = branches_of_different_ranks(
        node("Identity", ["chosen"], ["same"]), node("ReduceMax", ["same"], ["y"], name="most")
    )
    with pytest.raises(EqsatError, match=r"node 'most' \(ReduceMax\) reads 'same', whose rank is not known"):
        eqsat_layout.Session(model)


def test_inputs_without_a_rank_are_refused_by_the_name_of_who_reads_them() -> None:
    """It said "TVM can't build relax.nn.relu of gv"."""
    model = model_of([onnx.helper.make_node("Relu", ["x"], ["y"])], [4], ["y"], {}, 17)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(EqsatError, match=r"\(Relu\) reads 'x', whose rank is not known: an input without a shape"):
        eqsat_layout.Session(model)


def test_branches_of_different_ranks_are_brought_to_one() -> None:
    node = onnx.helper.make_node
    model = branches_of_different_ranks(
        node("Identity", ["chosen"], ["same"]), node("Reshape", ["same", "rows"], ["one"]), node("Neg", ["one"], ["y"])
    )
    session = eqsat_layout.Session(model, candidates=False)
    for x in (np.abs(ROWS), -np.abs(ROWS)):
        (got,) = session.run(None, {"x": x})
        np.testing.assert_array_equal(got, -x)


@pytest.mark.parametrize(
    ("operand", "said"), [("x", r"node 'words' \(Cast\): its result is text"), ("text", "tensor 'text' holds text")]
)
def test_text_is_refused_by_that_name(operand: str, said: str) -> None:
    """It said "unknown dtype `object`"."""
    node = onnx.helper.make_node
    kinds = onnx.TensorProto
    nodes = [
        node("Cast", [operand], ["words"], name="words", to=kinds.STRING),
        node("Cast", ["words"], ["y"], to=kinds.FLOAT),
    ]
    model = model_of(nodes, ROWS.shape, ["y"], {"text": np.array(["a"], object)} if operand == "text" else {}, 17)
    with pytest.raises(EqsatError, match=said):
        eqsat_layout.Session(model)


def test_states_that_do_not_fit_a_recurrent_layer_are_refused_by_the_name_of_the_node() -> None:
    """torch's newer exporter forgets the projection of an ``nn.LSTM``: "Operator-specific validation identified"."""
    node = onnx.helper.make_node
    nodes = [
        node("Unsqueeze", ["x", "one"], ["steps"]),
        node("LSTM", ["steps", "w", "r", "", "", "h", "c"], ["y"], name="layer", hidden_size=3),
    ]
    shapes = {"w": (1, 12, 6), "r": (1, 12, 3), "h": (1, 1, 3), "c": (1, 1, 4)}
    constants = {name: np.zeros(shape, "float32") for name, shape in shapes.items()} | {"one": np.array([1])}
    with pytest.raises(
        EqsatError, match=r"node 'layer' \(LSTM\): the first cells of the LSTM are \[1, 1, 4\], not \[1, 1, 3\]"
    ):
        eqsat_layout.Session(model_of(nodes, ROWS.shape, ["y"], constants, 17))
