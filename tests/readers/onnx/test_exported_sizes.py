"""Sizes as torch's newer exporter writes them: masks among open sizes, stacks of products, the first ``min(s, 64)``."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper

import eqsat_layout
from eqsat_layout.errors import InputError


def test_a_number_among_operands_of_open_sizes_keeps_its_place() -> None:
    """Masks of attention are ``Where(mask, 0, -inf)`` added to scores: numbers were left out of the places of the
    operands, so that every such model of torch's newer exporter was refused ("list index out of range")."""
    nodes = [
        helper.make_node("Where", ["mask", "none", "x"], ["chosen"], name="where"),
        helper.make_node("Concat", ["chosen", "x"], ["y"], axis=0),
    ]
    graph = helper.make_graph(
        nodes,
        "masked",
        [
            helper.make_tensor_value_info("mask", TensorProto.BOOL, ["n", "s"]),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["m", "t"]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["p", "q"])],
        [numpy_helper.from_array(np.array(-1, "float32"), "none")],
    )
    session = eqsat_layout.Session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    x, mask = np.arange(6, dtype="float32").reshape(2, 3), np.array([[True, False, True], [False, True, False]])
    (found,) = session.run(None, {"mask": mask, "x": x})
    np.testing.assert_array_equal(found, np.concatenate([np.where(mask, np.float32(-1), x), x]))


def test_a_product_of_stacks_of_open_sizes_has_a_shape() -> None:
    """Stacks of as many matrices, said in two ways, gave a product without one, so that its reshape was refused."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["y"], name="product")],
        "product",
        [
            helper.make_tensor_value_info("a", TensorProto.FLOAT, ["q", "n", "k"]),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, ["r", "m", "p"]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["q", "n", "p"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    session = eqsat_layout.Session(model, candidates=False)
    assert session.outputs[0].shape == ("q", "n", "p")
    a, b = np.ones((2, 3, 4), "float32"), np.ones((2, 4, 2), "float32")
    np.testing.assert_allclose(session.run(None, {"a": a, "b": b})[0], a @ b)
    for unfit in ((3, 4, 2), (2, 5, 2)):
        with pytest.raises(InputError, match="do not fit together"):
            session.run(None, {"a": a, "b": np.ones(unfit, "float32")})


def test_a_size_may_meet_what_is_made_of_it() -> None:
    """BERT's positions are the first ``min(s, 64)`` of a table, spread to ``(b, s)`` and added to words of that shape:
    "the size s is min(s, 64), which is made of s itself"."""
    numbers = {
        "table": np.arange(8, dtype="float32")[None],
        "zero": np.array([0], "int64"),
        "one": np.array([1], "int64"),
    }
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Shape", ["x"], ["long"], start=1),
        helper.make_node("Slice", ["table", "zero", "long", "one"], ["first"], name="slice"),
        helper.make_node("Expand", ["first", "shape"], ["spread"], name="expand"),
        helper.make_node("Sub", ["x", "spread"], ["less"], name="sub"),
        helper.make_node("Add", ["first", "less"], ["y"], name="add"),
    ]
    graph = helper.make_graph(
        nodes,
        "positions",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", "s"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", "s"])],
        [numpy_helper.from_array(array, name) for name, array in numbers.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    session = eqsat_layout.Session(model, candidates=False)
    assert session.outputs[0].shape == ("b", "s")
    x = np.arange(10, dtype="float32").reshape(2, 5)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)
    with pytest.raises(InputError, match="do not fit together"):
        session.run(None, {"x": np.ones((2, 9), "float32")})
