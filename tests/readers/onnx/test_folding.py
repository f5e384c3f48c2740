"""What of an ONNX graph is computed before it is read."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat_layout.readers.onnx.folding import LARGEST, MOST_FOLDED, folded

onnx = pytest.importorskip("onnx")


def test_weights_of_bytes_leave_shapes_to_be_computed() -> None:
    """They were counted as if they were computed, and a model that had many of them was refused for its shapes."""
    helper, kinds = onnx.helper, onnx.TensorProto
    side = int(LARGEST**0.5)
    weights = [f"w{number}" for number in range(MOST_FOLDED // (2 * LARGEST) + 1)]
    nodes = [helper.make_node("DequantizeLinear", ["bytes", "scale"], [name]) for name in weights]
    nodes += [helper.make_node("Shape", ["x"], ["shape"]), helper.make_node("ConstantOfShape", ["shape"], ["zeros"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kinds.FLOAT, [2, 3])],
        [helper.make_empty_tensor_value_info(name) for name in ("zeros", *weights)],
        [
            onnx.numpy_helper.from_array(np.zeros((side, side), "int8"), "bytes"),
            onnx.numpy_helper.from_array(np.array(0.5, "float32"), "scale"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    kinds_left = {node.op_type for node in folded(model).graph.node}
    assert "DequantizeLinear" in kinds_left
    assert "Shape" not in kinds_left
