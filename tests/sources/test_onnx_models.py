"""Models of onnx: recurrent layers, computed shapes, functions that call others, all kinds of constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sources.exported import Exported, X

import eqsat_layout
from eqsat_layout.errors import EqsatError
from eqsat_layout.sources.source import source_of


def recurrent(kind: str, sizes: Any = (5, 2), **attributes: Any) -> Any:
    """A node with all that it may be given, and outputs of all its results."""
    onnx = pytest.importorskip("onnx")
    helper, real, wide, hidden = onnx.helper, onnx.TensorProto.FLOAT, 3, 4
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind] * hidden
    sides = 2 if attributes.get("direction") == "bidirectional" else 1
    rng = np.random.default_rng(0)
    shapes = {"w": (sides, gates, wide), "r": (sides, gates, hidden), "b": (sides, 2 * gates)}
    weights = [
        onnx.numpy_helper.from_array(rng.standard_normal(s).astype("float32"), name) for name, s in shapes.items()
    ]
    states = ["h", "c"] if kind == "LSTM" else ["h"]
    given = {"x": (*sizes, wide)} | {name: (sides, sizes[1], hidden) for name in states}
    made = ["y", *(f"last_{name}" for name in states)]
    node = helper.make_node(kind, ["x", "w", "r", "b", "", *states], made, hidden_size=hidden, **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(name, real, shape) for name, shape in given.items()],
        [helper.make_tensor_value_info(name, real, None) for name in made],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


RECURRENT: list[tuple[str, dict[str, Any]]] = [
    ("LSTM", {}), ("LSTM", {"direction": "bidirectional"}), ("RNN", {"direction": "reverse"}),
    ("RNN", {"activations": ["Relu"]}), ("GRU", {"linear_before_reset": 1, "direction": "bidirectional"}),
    ("GRU", {"direction": "bidirectional"}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "attributes"), RECURRENT)
@pytest.mark.parametrize("sizes", [(5, 2), ("steps", "batch")])
def test_recurrent_layers_of_onnx(kind: str, attributes: dict[str, Any], sizes: Any) -> None:
    """TVM's frontend takes none of them."""
    runtime = pytest.importorskip("onnxruntime")
    model = recurrent(kind, sizes, **attributes)
    session, theirs = eqsat_layout.Session(model), runtime.InferenceSession(model.SerializeToString())
    rng, sides = np.random.default_rng(1), 2 if attributes.get("direction") == "bidirectional" else 1
    feed = {spec.name: rng.standard_normal((sides, 2, 4)).astype("float32") for spec in session.inputs}
    for steps in (5,) if sizes[0] == 5 else (5, 1, 9):
        feed["x"] = rng.standard_normal((steps, 2, 3)).astype("float32")
        for got, wanted in zip(session.run(None, feed), theirs.run(None, feed), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_activations_that_onnx_does_not_have_are_refused() -> None:
    with pytest.raises(EqsatError, match="RNN with the activations Sine is not done"):
        source_of(recurrent("RNN", activations=["Sine"]))


@pytest.mark.parametrize(("batch", "shapes"), [(2, None), ("n", {"x": (2, 4, 3)})])
def test_shapes_that_an_onnx_graph_computes_are_folded(batch: Any, shapes: Any) -> None:
    pytest.importorskip("onnxscript")
    model = Exported.onnx(batch)
    before = model.SerializeToString()
    source = source_of(model, None, shapes)
    assert model.SerializeToString() == before
    text = str(source.module.script())
    assert "shape_of" not in text
    x = np.random.default_rng(0).standard_normal((2, 4, 3)).astype("float32")
    (z,) = eqsat_layout.Session(model, shapes=shapes).run(None, {"x": x})
    wanted = np.pad(x.reshape(2, 2, 2, 3), 1)
    np.testing.assert_array_equal(z, np.maximum(wanted, 0))


def test_a_graph_that_computes_too_much_is_not_computed_on_reading() -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    from eqsat_layout.readers.onnx.folding import folded

    model = Exported.onnx(2)
    huge = onnx.numpy_helper.from_array(np.array([1 << 20, 1 << 20], "int64"), "huge")
    model.graph.initializer.append(huge)
    model.graph.node.insert(0, onnx.helper.make_node("ConstantOfShape", ["huge"], ["h"]))
    model.graph.output.append(onnx.helper.make_tensor_value_info("h", onnx.TensorProto.FLOAT, None))
    assert "ConstantOfShape" in {node.op_type for node in folded(model).graph.node}


def test_functions_that_call_each_other_too_often_are_refused() -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    helper = onnx.helper
    sets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("f0", ["x"], ["y"], domain="own")],
            "g",
            [helper.make_tensor_value_info("x", 1, [2])],
            [helper.make_tensor_value_info("y", 1, [2])],
        ),
        opset_imports=sets,
        ir_version=10,
    )
    for depth in range(30):
        twice = [(["x"], ["h"]), (["h"], ["y"])]
        inner = [helper.make_node(f"f{depth + 1}", a, b, domain="own") for a, b in twice]
        model.functions.append(helper.make_function("own", f"f{depth}", ["x"], ["y"], inner, sets))
    last = [helper.make_node("Relu", ["x"], ["y"])]
    model.functions.append(helper.make_function("own", "f30", ["x"], ["y"], last, sets))
    with pytest.raises(EqsatError, match="functions that are written out make more than"):
        source_of(model)
    model.functions[-1].node[0].op_type, model.functions[-1].node[0].domain = "f30", "own"
    with pytest.raises(EqsatError, match="'f30' calls itself"):
        source_of(model)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("value_float", 2.5), ("value_floats", [1.5, 2.5, 3.5, 4.5]), ("value_int", 3), ("value_ints", [1, 2, 3, 4])],
)
def test_constants_of_onnx_may_be_attributes(attribute: str, value: Any) -> None:
    """XCiT from torch's exporter raised "no value in Constant"."""
    onnx = pytest.importorskip("onnx")
    kind = np.dtype("float32" if "float" in attribute else "int64")
    made = onnx.helper.make_node("Constant", [], ["c"], **{attribute: value})
    scaled = onnx.helper.make_node("Mul", ["x", "c"], ["y"])
    code, numbers = onnx.helper.np_dtype_to_tensor_dtype(kind), (10 * X).astype(kind)
    x, y = (onnx.helper.make_tensor_value_info(name, code, X.shape) for name in "xy")
    model = onnx.helper.make_model(onnx.helper.make_graph([made, scaled], "g", [x], [y]))
    (got,) = eqsat_layout.Session(model).run(None, {"x": numbers})
    np.testing.assert_allclose(got, numbers * np.asarray(value, kind), rtol=1e-6)
