"""Loops of ONNX graphs are written out, beside ONNX's own evaluator; models of old versions, and of narrow weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eqsat_layout
from eqsat_layout.errors import EqsatError

onnx = pytest.importorskip("onnx")
helper, FLOAT, INT, BOOL = onnx.helper, 1, 7, 9


def model(nodes: list[Any], inputs: list[Any], results: list[str], held: dict[str, Any], version: int = 21) -> Any:
    graph = helper.make_graph(
        nodes,
        "g",
        inputs,
        [helper.make_empty_tensor_value_info(name) for name in results],
        [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=10)


def assert_as_onnx(made: Any, feed: dict[str, Any]) -> None:
    got = eqsat_layout.Session(made).run(None, feed)
    wanted = pytest.importorskip("onnx.reference").ReferenceEvaluator(made).run(None, feed)
    for one, other in zip(got, wanted, strict=True):
        assert (one.dtype, one.shape) == (np.asarray(other).dtype, np.shape(other))
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def value(name: str, kind: int, shape: Any) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def loop(body_nodes: list[Any], most: str = "most", goes_on: str = "on") -> Any:
    body = helper.make_graph(
        [*body_nodes, helper.make_node("Identity", [goes_on], ["goes"])],
        "body",
        [value("turn", INT, []), value("on", BOOL, []), value("state", FLOAT, [2, 3])],
        [value("goes", BOOL, []), value("next", FLOAT, [2, 3]), value("seen", FLOAT, [2])],
        [onnx.numpy_helper.from_array(np.float32(0.5), "half")],
    )
    return helper.make_node("Loop", [most, "yes", "x"], ["last", "all"], name="rounds", body=body)


STEPS = [
    helper.make_node("Cast", ["turn"], ["t"], to=FLOAT),
    helper.make_node("Mul", ["state", "half"], ["smaller"]),
    helper.make_node("Add", ["smaller", "t"], ["next"]),
    helper.make_node("ReduceSum", ["next", "along"], ["seen"], keepdims=0),
]
X = np.arange(6, dtype="float32").reshape(2, 3)


def test_a_loop_of_known_length_is_written_out() -> None:
    """Loops were refused."""
    held = {"most": np.int64(3), "yes": np.True_, "along": np.array([1])}
    assert_as_onnx(model([loop(STEPS)], [value("x", FLOAT, [2, 3])], ["last", "all"], held), {"x": X})


def test_a_loop_of_no_rounds_gives_nothing_of_its_shape() -> None:
    """ "a Loop of no rounds, whose results are of no shape, is not done", though its body says the shape."""
    held = {"most": np.int64(0), "yes": np.True_, "along": np.array([1])}
    made = model([loop(STEPS)], [value("x", FLOAT, [2, 3])], ["last", "all"], held)
    last, everything = eqsat_layout.Session(made).run(None, {"x": X})
    np.testing.assert_array_equal(last, X)
    assert (everything.shape, everything.dtype) == ((0, 2), np.float32)


def test_a_loop_without_a_condition_is_written_out() -> None:
    """It was "no operand 1 (cond), which Loop needs"; it may be empty, though ONNX's evaluator runs no round."""
    held = {"most": np.int64(3), "yes": np.True_, "along": np.array([1])}
    made = model([loop(STEPS)], [value("x", FLOAT, [2, 3])], ["last", "all"], held)
    wanted = eqsat_layout.Session(made).run(None, {"x": X})
    made.graph.node[0].input[1] = ""
    for got, one in zip(eqsat_layout.Session(made).run(None, {"x": X}), wanted, strict=True):
        np.testing.assert_array_equal(got, one)


def test_a_loop_that_goes_on_by_a_constant_around_it_is_written_out() -> None:
    """As torch's older exporter writes ``for i in range(3)`` of a scripted function."""
    held = {"most": np.array(3), "yes": np.array(True), "along": np.array([1])}
    assert_as_onnx(model([loop(STEPS, goes_on="yes")], [value("x", FLOAT, [2, 3])], ["last", "all"], held), {"x": X})


def test_branches_in_the_rounds_of_a_loop_make_names_of_their_own() -> None:
    """onnxscript moves a branch that is always taken into the graph, where the next round's has the same names:
    "Initializer 'three' is already registered"."""
    branches = {
        branch: helper.make_graph(
            [
                helper.make_node("Constant", [], ["three"], value=onnx.numpy_helper.from_array(np.float32(number))),
                helper.make_node("Mul", ["state", "three"], [branch]),
            ],
            branch,
            [],
            [value(branch, FLOAT, [2, 3])],
        )
        for branch, number in (("then_branch", 3), ("else_branch", 4))
    }
    steps = [
        helper.make_node("Cast", ["turn"], ["is_later"], to=BOOL),
        helper.make_node("If", ["is_later"], ["next"], **branches),
        helper.make_node("ReduceSum", ["next", "along"], ["seen"], keepdims=0),
    ]
    held = {"most": np.array(3), "yes": np.array(True), "along": np.array([1])}
    assert_as_onnx(model([loop(steps)], [value("x", FLOAT, [2, 3])], ["last", "all"], held), {"x": X})


def test_a_loop_in_a_loop_is_written_out() -> None:
    inner = loop(STEPS)
    inner.input[2] = "state"
    inner.output[:] = ["next", "ignored"]
    steps = [inner, helper.make_node("ReduceSum", ["next", "along"], ["seen"], keepdims=0)]
    held = {"most": np.int64(2), "yes": np.True_, "along": np.array([1])}
    assert_as_onnx(model([loop(steps)], [value("x", FLOAT, [2, 3])], ["last", "all"], held), {"x": X})


def test_a_loop_of_unknown_length_is_refused_by_its_node() -> None:
    made = model(
        [loop(STEPS)],
        [value("x", FLOAT, [2, 3]), value("most", INT, [])],
        ["last", "all"],
        {"yes": np.True_, "along": np.array([1])},
    )
    with pytest.raises(EqsatError, match=r"node 'rounds' \(Loop\): a Loop that runs as often as is known at run time"):
        eqsat_layout.Session(made)


def test_a_loop_too_long_to_be_written_out_is_refused() -> None:
    held = {"most": np.int64(10**6), "yes": np.True_, "along": np.array([1])}
    with pytest.raises(EqsatError, match=r"'rounds' \(Loop\): a Loop of 1000000 rounds: .* more than 4096 nodes"):
        eqsat_layout.Session(model([loop(STEPS)], [value("x", FLOAT, [2, 3])], ["last", "all"], held))


@pytest.mark.parametrize("turned", [0, 1])
def test_a_scan_is_written_out(turned: int) -> None:
    """Scans were refused."""
    body = helper.make_graph(
        [helper.make_node("Add", ["state", "row"], ["next"]), helper.make_node("Relu", ["next"], ["seen"])],
        "body",
        [value("state", FLOAT, [2]), value("row", FLOAT, [2])],
        [value("next", FLOAT, [2]), value("seen", FLOAT, [2])],
    )
    node = helper.make_node(
        "Scan",
        ["first", "x"],
        ["last", "all"],
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_input_directions=[turned],
        scan_output_axes=[1],
        scan_output_directions=[turned],
    )
    made = model([node], [value("x", FLOAT, [2, 3])], ["last", "all"], {"first": np.float32([-9, 1])})
    got = eqsat_layout.Session(made).run(None, {"x": X})
    rows = X[:, ::-1] if turned else X
    sums = np.float32([[-9], [1]]) + np.cumsum(rows, 1)
    np.testing.assert_allclose(got[0], sums[:, -1])
    np.testing.assert_allclose(got[1], np.maximum(sums[:, ::-1] if turned else sums, 0))


@pytest.mark.parametrize("kind", ["INT4", "UINT4"])
def test_weights_of_four_bits_are_dequantised(kind: str) -> None:
    """They were refused, or TVM said that sizes mismatch."""
    number = getattr(onnx.TensorProto, kind)
    weights = helper.make_tensor("w", number, [3, 4], np.arange(12) % 8)
    made = model(
        [
            helper.make_node("DequantizeLinear", ["w", "s"], ["f"], axis=0, block_size=2),
            helper.make_node("MatMul", ["x", "f"], ["y"]),
        ],
        [value("x", FLOAT, [2, 3])],
        ["y"],
        {"s": np.array([[1, 2, 3, 4], [0.5, 1, 1.5, 2]], "float32")},
    )
    made.graph.initializer.append(weights)
    (got,) = eqsat_layout.Session(made).run(None, {"x": X})
    scales = np.float32([[1, 2, 3, 4], [1, 2, 3, 4], [0.5, 1, 1.5, 2]])
    np.testing.assert_allclose(got, X @ ((np.arange(12) % 8).reshape(3, 4) * scales), rtol=1e-5)


def test_a_model_of_an_old_version_is_converted() -> None:
    """Broadcasts by attributes, of opset 6, were refused."""
    node = helper.make_node("Add", ["x", "b"], ["y"], broadcast=1, axis=0)
    made = model([node], [value("x", FLOAT, [2, 3]), value("b", FLOAT, [2])], ["y"], {}, 6)
    (got,) = eqsat_layout.Session(made).run(None, {"x": X, "b": np.float32([10, 20])})
    np.testing.assert_allclose(got, X + np.float32([[10], [20]]))


def test_an_operand_that_must_be_constant_is_said_to_be_none() -> None:
    """The message was of an attribute that a Var does not have."""
    made = model(
        [helper.make_node("Pad", ["x", "pads", "v"], ["y"], name="border")],
        [value("x", FLOAT, [2, 3]), value("v", FLOAT, [])],
        ["y"],
        {"pads": np.array([1, 1, 1, 1])},
    )
    with pytest.raises(EqsatError, match=r"'border' \(Pad\): with an operand that must be constant"):
        eqsat_layout.Session(made)


def test_a_shape_made_of_values_is_said_so() -> None:
    """TVM said that a DataflowVar can't be a dependent type expression."""
    made = model([helper.make_node("ConstantOfShape", ["x"], ["y"])], [value("x", INT, [2])], ["y"], {})
    with pytest.raises(EqsatError, match="made of values that are known at run time only"):
        eqsat_layout.Session(made)


@pytest.mark.parametrize("start", [0, 3])
def test_rows_are_written_into_a_cache_around_its_end(start: int) -> None:
    """``TensorScatter`` was refused."""
    cache, rows = np.arange(8, dtype="float32").reshape(1, 1, 4, 2), -np.ones((1, 1, 2, 2), "float32")
    given = [value("c", FLOAT, cache.shape), value("u", FLOAT, rows.shape), value("w", INT, [1])]
    made = model([helper.make_node("TensorScatter", ["c", "u", "w"], ["y"], mode="circular")], given, ["y"], {}, 24)
    (got,) = eqsat_layout.Session(made).run(None, {"c": cache, "u": rows, "w": np.array([start])})
    cache[:, :, [start, (start + 1) % 4]] = -1
    np.testing.assert_array_equal(got, cache)


def test_windows_are_summed_into_an_image() -> None:
    """``Col2Im`` was refused."""
    held = {"image": np.array([5, 5]), "block": np.array([2, 2])}
    node = helper.make_node("Col2Im", ["x", "image", "block"], ["y"], strides=[3, 2], pads=[0, 1, 1, 0])
    made = model([node], [value("x", FLOAT, [1, 8, 6])], ["y"], held)
    x = np.random.default_rng(0).standard_normal((1, 8, 6), "float32")
    assert_as_onnx(made, {"x": x})
