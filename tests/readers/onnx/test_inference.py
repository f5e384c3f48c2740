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


def extents_of_part(model: Any) -> list[int]:
    (part,) = (value for value in inferred(model).graph.value_info if value.name == "part")
    return [dim.dim_value for dim in part.type.tensor_type.shape.dim]


@pytest.mark.parametrize("stored", [{"value_ints": [2]}, {"value": onnx.numpy_helper.from_array(np.array([2]))}])
def test_ordinary_steps_are(stored: dict[str, Any]) -> None:
    assert extents_of_part(sliced([], steps=2)) == [2]
    assert extents_of_part(sliced([helper.make_node("Constant", [], ["steps"], **stored)])) == [2]


def test_steps_that_are_not_followed_are_not_taken_for_1() -> None:
    """Models were refused, as the importer's shape was another one."""
    product = helper.make_node("Mul", ["half", "half"], ["steps"])
    assert extents_of_part(sliced([product], half=2)) == [0]


def test_constants_beside_slices_may_be_infinite() -> None:
    """The minus infinity of a mask was read as if it were steps: OverflowError for every model that slices by steps."""
    model = sliced([], steps=2)
    for name, number in {"low": -np.inf, "none": np.nan}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(number), name))
    assert extents_of_part(model) == [2]
