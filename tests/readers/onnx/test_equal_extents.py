"""Sizes that are equal though they are written in two ways, and sizes that a model works out for its resizes."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx
from onnx import TensorProto, helper

import eqsat_layout


def _decoder() -> onnx.ModelProto:
    """Two convolutions that halve an image, and a resize to ``(h - 1) / 4 + 1``, as torch's exporter writes the sizes of
    a head that meets a skip connection; then the sum of both, and a product with the skip alone."""
    numbers = {
        "two": np.array([2], "int64"),
        "one": np.array([1], "int64"),
        "four": np.array([4], "int64"),
        "kernel": np.full((3, 3, 1, 1), 0.5, "float32"),
    }
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["half"], strides=[2, 2], name="half"),
        helper.make_node("Conv", ["half", "kernel"], ["quarter"], strides=[2, 2], name="quarter"),
        helper.make_node("Conv", ["quarter", "kernel"], ["eighth"], strides=[2, 2], name="eighth"),
        helper.make_node("Shape", ["x"], ["b"], start=0, end=2),
        helper.make_node("Shape", ["x"], ["sides"], start=2, end=4),
        helper.make_node("Sub", ["sides", "one"], ["less"]),
        helper.make_node("Div", ["less", "four"], ["few"]),
        helper.make_node("Add", ["few", "one"], ["wanted"]),
        helper.make_node("Concat", ["b", "wanted"], ["sizes"], axis=0),
        helper.make_node("Resize", ["eighth", "", "", "sizes"], ["large"], mode="linear", name="resize"),
        helper.make_node("Conv", ["large", "kernel"], ["head"], name="head"),
        helper.make_node("Add", ["quarter", "head"], ["sum"], name="sum"),
        helper.make_node("Concat", ["sum", "large"], ["y"], axis=1, name="concat"),
    ]
    graph = helper.make_graph(
        nodes,
        "decoder",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 3, "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", 6, "p", "q"])],
        [onnx.numpy_helper.from_array(array, name) for name, array in numbers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def test_a_size_that_is_written_in_two_ways_is_one_size() -> None:
    """``Conv`` of a resize of dynamic sizes had no shape, and the sum with a skip connection had none either."""
    model = _decoder()
    session = eqsat_layout.Session(model)
    assert session.outputs[0].shape is not None
    reference = onnx.reference.ReferenceEvaluator(model)
    for height, width in ((16, 16), (21, 9)):
        x = np.random.default_rng(0).standard_normal((2, 3, height, width)).astype("float32")
        np.testing.assert_allclose(
            session.run(None, {"x": x})[0], reference.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5
        )


def _sum_of_ends(op: str) -> onnx.ModelProto:
    """Of ``x`` without its first element and of ``y``, whose sizes have nothing to do with one another."""
    nodes = [
        helper.make_node("Slice", ["x", "one", "most"], ["rest"]),
        helper.make_node(op, ["rest", "y"], ["z"], name="both", **({"axis": 1} if op == "Concat" else {})),
        helper.make_node("Relu", ["z"], ["r"]),
    ]
    ends = {"one": np.array([1], "int64"), "most": np.array([2**63 - 1], "int64")}
    graph = helper.make_graph(
        nodes,
        "ends",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2]),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m", 2]),
        ],
        [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in ends.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize("op", ["Add", "Concat"])
def test_sizes_that_turn_out_to_differ_are_an_error_of_the_run(op: str) -> None:
    session = eqsat_layout.Session(_sum_of_ends(op))
    x, y = np.ones((4, 2), "float32"), np.ones((3, 2), "float32")
    assert session.run(None, {"x": x, "y": y})[0].shape == ((3, 2) if op == "Add" else (3, 4))
    for rows in (2, 1, 4):
        with pytest.raises(Exception, match="rows|match|shape|size"):
            session.run(None, {"x": x, "y": np.ones((rows, 2), "float32")})
