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
    made = [
        helper.make_node(op, given, [result, *(f"{result}_{i}" for i in range(1, more.get("num_outputs", 1)))], **more)
        for op, given, result, more in nodes
    ]
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


def test_sizes_are_gathered_joined_and_split() -> None:
    """A transformer that ONNX Runtime's optimiser wrote: "relax.concat expects the input to be a Tuple of Tensors"."""
    nodes = [
        ("Shape", ["x"], "shape", {}),
        ("Gather", ["shape", "one_zero"], "turned", {}),
        ("Reshape", ["x", "turned"], "gathered", {}),
        ("Split", ["shape"], "n", {"num_outputs": 2}),
        ("Concat", ["n_1", "n"], "joined", {"axis": 0}),
        ("ConstantOfShape", ["joined"], "zeros", {}),
        ("ScatterND", ["seven", "one_column", "n"], "put", {}),
        ("ConstantOfShape", ["put"], "filled", {}),
        ("NonZero", ["x"], "places", {}),
        ("ReduceMax", ["places", "ones"], "last", {"keepdims": 0}),
        ("Concat", ["shape", "last"], "mixed", {"axis": 0}),
    ]
    constants = {
        "one_zero": np.array([1, 0]),
        "seven": np.array([7, 7]),
        "one_column": np.array([[1]]),
        "ones": np.array([1]),
    }
    check(model_of(nodes, ["gathered", "zeros", "filled", "mixed"], constants))


def test_sizes_of_other_types_are_sizes_again() -> None:
    """Of int32, as TensorFlow's exporters write them, and floats that are scaled and rounded, as torch's are."""
    nodes = [
        ("Shape", ["x"], "shape", {}),
        ("Cast", ["shape"], "narrow", {"to": onnx.TensorProto.INT32}),
        ("Gather", ["narrow", "one"], "m", {}),
        ("Cast", ["m"], "wide", {"to": onnx.TensorProto.INT64}),
        ("Unsqueeze", ["wide", "first"], "m_1", {}),
        ("Concat", ["m_1", "rest"], "columns", {"axis": 0}),
        ("Reshape", ["x", "columns"], "reshaped", {}),
        ("Cast", ["shape"], "floats", {"to": onnx.TensorProto.FLOAT}),
        ("Mul", ["floats", "half_more"], "scaled", {}),
        ("Floor", ["scaled"], "floored", {}),
        ("Cast", ["floored"], "larger", {"to": onnx.TensorProto.INT64}),
        ("ConstantOfShape", ["larger"], "zeros", {}),
        ("Div", ["floats", "three"], "thirds", {}),
        ("Ceil", ["thirds"], "raised", {}),
        ("Cast", ["raised"], "smaller", {"to": onnx.TensorProto.INT64}),
        ("ConstantOfShape", ["smaller"], "few", {}),
        ("Size", ["x"], "count", {}),
        ("Unsqueeze", ["count", "first"], "counts", {}),
        ("Reshape", ["x", "counts"], "flat", {}),
    ]
    constants = {
        "one": np.array(1),
        "first": np.array([0]),
        "rest": np.array([-1]),
        "half_more": np.array(1.5, "float32"),
        "three": np.array(3, "float32"),
    }
    check(model_of(nodes, ["reshaped", "zeros", "few", "flat"], constants))


def test_a_size_that_may_be_a_number_is_compared_in_every_run() -> None:
    """TVM's converter said that n is never 3."""
    nodes = [
        ("Shape", ["x"], "shape", {}),
        ("Equal", ["shape", "three_nine"], "equal", {}),
        ("Where", ["equal", "two", "shape"], "chosen", {}),
        ("ConstantOfShape", ["chosen"], "zeros", {}),
        ("Equal", ["shape", "below"], "never", {}),
        ("Where", ["never", "two", "shape"], "same", {}),
        ("Expand", ["x", "same"], "expanded", {}),
    ]
    constants = {"three_nine": np.array([3, 9]), "two": np.array([2]), "below": np.array([-1])}
    check(model_of(nodes, ["zeros", "expanded", "equal"], constants))


def test_pads_that_are_made_of_sizes() -> None:
    """Windows of a picture of any size: "Dynamic pads are not supported yet"."""
    nodes = [
        ("Shape", ["x"], "shape", {}),
        ("Mod", ["shape", "four"], "over", {}),
        ("Sub", ["four", "over"], "missing", {}),
        ("Concat", ["none", "missing"], "pads", {"axis": 0}),
        ("Pad", ["x", "pads", "value"], "padded", {}),
        ("Reshape", ["padded", "windows"], "y", {}),
        ("Slice", ["over", "first", "second"], "n", {}),
        ("Concat", ["n", "one"], "around", {"axis": 0}),
        ("Pad", ["x", "around", "", "one"], "edges", {"mode": "edge"}),
        ("Pad", ["x", "around", "", "one"], "mirrored", {"mode": "reflect"}),
    ]
    constants = {
        "four": np.array(4),
        "none": np.array([0, 0]),
        "value": np.array(2, "float32"),
        "windows": np.array([0, -1, 4]),
        "first": np.array([0]),
        "second": np.array([1]),
        "one": np.array([1]),
    }
    check(model_of(nodes, ["y", "edges", "mirrored"], constants))


def test_pads_that_are_turned_around() -> None:
    """``torch.nn.functional.pad`` by sizes, as torch's older exporter writes it: pairs from the last axis on, which are
    cut, turned and read backwards. "Dynamic pads are not supported yet" (Swin of pictures of any size)."""
    nodes = [
        ("Shape", ["x"], "shape", {}),
        ("Mod", ["shape", "minus_four"], "less", {}),
        ("Neg", ["less"], "missing", {}),
        ("Gather", ["missing", "last"], "of_rows", {}),
        ("Concat", ["none", "of_rows"], "given", {"axis": 0}),
        ("Shape", ["given"], "count", {}),
        ("Sub", ["four", "count"], "rest", {}),
        ("ConstantOfShape", ["rest"], "zeros", {"value": onnx.numpy_helper.from_array(np.array([0]))}),
        ("Concat", ["given", "zeros"], "all", {"axis": 0}),
        ("Reshape", ["all", "pairs"], "table", {}),
        ("Slice", ["table", "last", "before", "none", "last"], "backwards", {}),
        ("Transpose", ["backwards"], "turned", {"perm": [1, 0]}),
        ("Reshape", ["turned", "last"], "flat", {}),
        ("Cast", ["flat"], "pads", {"to": 7}),
        ("Pad", ["x", "pads", "value"], "padded", {}),
        ("Reshape", ["padded", "windows"], "y", {}),
    ]
    constants = {
        "minus_four": np.array(-4),
        "none": np.array([0]),
        "four": np.array([4]),
        "pairs": np.array([-1, 2]),
        "last": np.array([-1]),
        "before": np.array([-(2**63) + 1]),
        "value": np.array(2, "float32"),
        "windows": np.array([-1, 4]),
    }
    check(model_of(nodes, ["y"], constants))


def test_ranges_and_grids_and_spread_axes_of_sizes() -> None:
    """A ``Range`` up to a size that is a number made a size that is none; ``Expand`` to a shape of sizes compared
    expressions ("Cannot use and / or / not operator to Expr")."""
    nodes = [
        ("Shape", ["x"], "shape", {}),
        ("Gather", ["shape", "first"], "n", {}),
        ("Gather", ["shape", "second"], "m", {}),
        ("Size", ["three"], "number", {}),
        ("Range", ["zero", "number", "step"], "count", {}),
        ("Range", ["m", "n", "step"], "between", {}),
        ("Range", ["n", "first", "down"], "backwards", {}),
        ("Expand", ["x", "same"], "still", {}),
        ("Concat", ["one", "shape"], "wider", {"axis": 0}),
        ("Expand", ["x", "wider"], "widened", {}),
        ("Expand", ["widened", "three"], "thrice", {}),
    ]
    constants = {
        "first": np.array(0),
        "second": np.array(1),
        "zero": np.array(0),
        "step": np.array(1),
        "down": np.array(-2),
        "one": np.array([1]),
        "same": np.array([1, 1]),
        "three": np.array([3, 1, 1]),
    }
    check(model_of(nodes, ["count", "between", "backwards", "still", "thrice"], constants))


def test_a_row_at_a_place_that_is_made_of_sizes() -> None:
    """The last token: "'dtype' object has no attribute 'dtype'"; its place as a matrix: "out of range"."""
    nodes = [
        ("Shape", ["x"], "shape", {}),
        ("Gather", ["shape", "one"], "length", {}),
        ("Sub", ["length", "one"], "last", {}),
        ("Gather", ["x", "last"], "row", {"axis": 1}),
        ("Unsqueeze", ["last", "axes"], "matrix", {}),
        ("Gather", ["x", "matrix"], "element", {"axis": 1}),
    ]
    check(model_of(nodes, ["row", "element"], {"one": np.array(1), "axes": np.array([0, 1])}))
