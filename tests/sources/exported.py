"""One small model as exporters write it, and what it is given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

X = np.random.default_rng(0).standard_normal((2, 4)).astype("float32")


class Exported:
    """A model that reshapes by sizes that it looks up, as exporters of torch wrote them."""

    @staticmethod
    def onnx(batch: Any) -> Any:
        onnx = pytest.importorskip("onnx")
        helper, real = onnx.helper, onnx.TensorProto.FLOAT
        numbers = {"zero": np.int64(0), "one": np.int64(1), "axes": np.array([0]), "two": np.array([2]), "rest": [-1]}
        held = [onnx.numpy_helper.from_array(np.asarray(value, "int64"), name) for name, value in numbers.items()]
        nodes = [
            helper.make_node("Shape", ["x"], ["s0"]),
            helper.make_node("Gather", ["s0", "zero"], ["n"]),
            helper.make_node("Shape", ["x"], ["s1"]),
            helper.make_node("Gather", ["s1", "one"], ["c"]),
            helper.make_node("Unsqueeze", ["n", "axes"], ["n1"]),
            helper.make_node("Unsqueeze", ["c", "axes"], ["c1"]),
            helper.make_node("Div", ["c1", "two"], ["half"]),
            helper.make_node("Concat", ["n1", "two", "half", "rest"], ["shape"], axis=0),
            helper.make_node("Reshape", ["x", "shape"], ["y"], name="/net/Reshape"),
            helper.make_node("ConstantOfShape", ["two"], ["zeros"], value=helper.make_tensor("v", 7, [1], [1])),
            helper.make_node("Concat", ["zeros", "zeros", "zeros", "zeros"], ["pads"], axis=0),
            helper.make_node("Pad", ["y", "pads"], ["p"], name="/net/Pad"),
            helper.make_node("Relu", ["p"], ["z"], name="/net/Relu"),
        ]
        given = [helper.make_tensor_value_info("x", real, [batch, 4, 3])]
        made = [helper.make_tensor_value_info("z", real, None)]
        graph = helper.make_graph(nodes, "g", given, made, held)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
