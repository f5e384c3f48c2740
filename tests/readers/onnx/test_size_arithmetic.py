"""Sizes of an ONNX graph as operands of its nodes, beside ONNX's own evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import eqsat_layout

onnx = pytest.importorskip("onnx")


def model_of(nodes: Sequence[tuple[Any, ...]], results: Sequence[str], constants: Mapping[str, Any]) -> Any:
    """Of ``x``, of shape (n, m); each node: an op, its inputs, its result, its attributes."""
    helper = onnx.helper
    made = [helper.make_node(op, given, [result], result, **more) for op, given, result, more in nodes]
    graph = helper.make_graph(
        made,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", "m"])],
        [helper.make_empty_tensor_value_info(name) for name in results],
        [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def check(model: Any) -> None:
    session, evaluator = eqsat_layout.Session(model), onnx.reference.ReferenceEvaluator(model)
    for shape in ((3, 5), (1, 4)):
        feed = {"x": np.random.default_rng(0).standard_normal(shape).astype("float32")}
        for got, wanted in zip(session.run(None, feed), evaluator.run(None, feed), strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_a_tensor_is_repeated_as_often_as_a_size_says() -> None:
    """Whisper by torch's exporter: "Node node_repeat cannot handle ShapeExpr inputs"."""
    nodes = [
        ("Shape", ["x"], "n", {"end": 1}),
        ("Concat", ["n", "two"], "times", {"axis": 0}),
        ("Tile", ["x", "times"], "y", {}),
    ]
    check(model_of(nodes, ["y"], {"two": np.array([2])}))


def test_arithmetic_on_sizes_gives_shapes() -> None:
    nodes = [
        ("Shape", ["x"], "shape", {}),
        ("Mul", ["shape", "three_two"], "larger", {}),
        ("Div", ["larger", "two"], "halves", {}),
        ("ConstantOfShape", ["halves"], "zeros", {}),
        ("ReduceProd", ["shape"], "count", {}),
        ("Reshape", ["x", "count"], "flat", {}),
    ]
    check(model_of(nodes, ["zeros", "flat"], {"three_two": np.array([3, 2]), "two": np.array(2)}))


def test_sizes_are_results_and_operands_of_tensors() -> None:
    nodes = [
        ("Shape", ["x"], "shape", {}),
        ("Gather", ["shape", "one"], "m", {}),
        ("Cast", ["shape"], "same", {"to": onnx.TensorProto.INT64}),
        ("Add", ["same", "table"], "sums", {}),
    ]
    check(model_of(nodes, ["shape", "m", "sums"], {"one": np.array(1), "table": np.arange(4).reshape(2, 2)}))
