"""Nodes that converters of TVM's frontend get wrong, beside ONNX's own evaluator: its numbers, or an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import eqsat_layout
from eqsat_layout.errors import EqsatError

onnx = pytest.importorskip("onnx")
RNG = np.random.default_rng(0)
IMAGE = RNG.standard_normal((1, 2, 5, 7), "float32")
ROWS = RNG.standard_normal((6, 7), "float32")


def model(
    nodes: Sequence[Any], inputs: dict[str, tuple[Any, Sequence[Any]]], outputs: Sequence[str], **given: Any
) -> Any:
    """A graph of these nodes; ``inputs`` by element type and shape, ``given`` constants."""
    value = onnx.helper.make_tensor_value_info
    types = {name: onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind)) for name, (kind, _) in inputs.items()}
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [value(name, types[name], shape) for name, (_, shape) in inputs.items()],
        [onnx.helper.make_empty_tensor_value_info(name) for name in outputs],
        [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in given.items()],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)


node = onnx.helper.make_node
SCALES = np.array([1, 1, 1.5, 0.5], "float32")
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "the sign of NaN": (
        model([node("Sign", ["x"], ["y"])], {"x": ("float32", [4])}, ["y"]),
        {"x": np.array([np.nan, -2.0, 0.0, np.inf], "float32")},
    ),
    "scales that give no whole number": (
        model(
            [node("Resize", ["x", "", "s"], ["y"], mode="linear")],
            {"x": ("float32", [1, 2, 5, "w"])},
            ["y"],
            s=SCALES,
        ),
        {"x": IMAGE},
    ),
    "slices between places that are known at run time": (
        model(
            [node("Slice", ["x", "s", "e", "a"], ["y"])],
            {"x": ("float32", ["n", 7]), "s": ("int64", [1]), "e": ("int64", [1])},
            ["y"],
            a=np.array([0]),
        ),
        {"x": ROWS, "s": np.array([1]), "e": np.array([-1])},
    ),
    "a shape of ones for data of any size": (
        model([node("Expand", ["x", "s"], ["y"])], {"x": ("float32", ["n", 7])}, ["y"], s=np.array([1, 7])),
        {"x": ROWS},
    ),
    "numbers of whole numbers": (
        model(
            [node("Pow", ["x", "e"], ["p"]), node("OneHot", ["x", "d", "v"], ["y"])],
            {"x": ("int64", [3])},
            ["p", "y"],
            e=np.int64(3),
            d=np.int64(4),
            v=np.array([0.1, 0.9], "float32"),
        ),
        {"x": np.array([-2, 0, 3])},
    ),
    "half a pixel of the map": (
        model(
            [
                node(
                    "RoiAlign",
                    ["x", "r", "b"],
                    ["y"],
                    output_height=2,
                    output_width=2,
                    sampling_ratio=2,
                    spatial_scale=0.5,
                )
            ],
            {"x": ("float32", [1, 2, 5, 7])},
            ["y"],
            r=np.array([[1, 1, 9, 8]], "float32"),
            b=np.array([0]),
        ),
        {"x": IMAGE},
    ),
    "functions of ONNX": (
        model(
            [node("LayerNormalization", ["x", "g"], ["y", "m", "s"]), node("Celu", ["x"], ["c"], alpha=0.5)],
            {"x": ("float32", [6, 7])},
            ["y", "m", "s", "c"],
            g=np.ones(7, "float32"),
        ),
        {"x": ROWS},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_nodes_give_the_numbers_of_onnx(name: str) -> None:
    """Each gave other numbers, other types, an allocation without end, or an error that named no file."""
    given, feed = CASES[name]
    reference = pytest.importorskip("onnx.reference")
    results = eqsat_layout.Session(given).run(None, feed)
    for result, wanted in zip(results, reference.ReferenceEvaluator(given).run(None, feed), strict=True):
        assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "said"),
    [
        ("Resize", ["x", "box", "scales"], {"coordinate_transformation_mode": "tf_crop_and_resize"}, "no whole number"),
    ],
)
def test_attributes_that_no_converter_looks_at_are_refused(
    op: str, inputs: list[str], attributes: dict[str, Any], said: str
) -> None:
    constants = {
        "scales": SCALES,
        "box": np.array([0, 0, 0, 0, 1, 1, 1, 1], "float32"),
        "w": np.ones((2, 2, 3, 3), "float32"),
    }
    one = node(op, inputs, ["y"], name="this", **attributes)
    given = {name: constants[name] for name in inputs if name in constants}
    with pytest.raises(EqsatError, match=f"'this'.*{said}"):
        eqsat_layout.plan(model([one], {"x": ("float32", [1, 2, 5, 7])}, ["y"], **given))


def test_inputs_of_text_are_refused_by_their_name() -> None:
    given = model([node("Identity", ["words"], ["y"])], {"words": ("float32", [2])}, ["y"])
    given.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.STRING
    with pytest.raises(EqsatError, match="'words' holds text"):
        eqsat_layout.plan(given)


def test_logarithms_of_single_whole_numbers() -> None:
    """A sum over no axes of whole numbers was refused; ONNX's own evaluator takes none at all."""
    one = node("ReduceLogSum", ["x", "a"], ["y"], noop_with_empty_axes=1)
    session = eqsat_layout.Session(model([one], {"x": ("int32", [2, 2])}, ["y"], a=np.zeros(0, "int64")))
    (found,) = session.run(None, {"x": np.array([[1, 9], [90, 900]], "int32")})
    np.testing.assert_array_equal(found, np.array([[0, 2], [4, 6]], "int32"))
