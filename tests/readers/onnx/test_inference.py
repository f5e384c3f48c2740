"""ONNX's own inference of shapes comes to an end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eqsat_layout.readers.onnx.inference import inferred

onnx = pytest.importorskip("onnx")
helper = onnx.helper


def sliced(made: list[Any], **stored: int) -> Any:
    """A model that slices its input's shape by ``steps``, which the nodes ``made`` or a stored tensor give."""
    numbers = {"starts": 0, "ends": 9, "axes": 0, **stored}
    node = helper.make_node("Slice", ["shape", "starts", "ends", "axes", "steps"], ["part"])
    nodes = [helper.make_node("Shape", ["x"], ["shape"]), *made, node, helper.make_node("Expand", ["x", "part"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "sliced",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 2, 1, 3])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.array([number]), name) for name, number in numbers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


@pytest.mark.parametrize("steps", [1 << 32, -(1 << 63)])
def test_steps_that_are_0_in_32_bits_are_not_followed(steps: int) -> None:
    """It went through a shape by steps of 0, and wrote down what it met until the memory was full."""
    model = sliced([], steps=steps)
    before = model.SerializeToString()
    inferred(model)
    assert model.SerializeToString() == before


def test_steps_that_are_worked_out_are_not_followed() -> None:
    product = helper.make_node("Mul", ["half", "half"], ["steps"])
    inferred(sliced([product], half=1 << 16))


def test_ordinary_steps_are() -> None:
    (y,) = inferred(sliced([], steps=2)).graph.output
    assert [dim.dim_value for dim in y.type.tensor_type.shape.dim] == [1, 2, 1, 3]
