"""An ONNX model: opened, looked at, run. Needs ``pip install "eqsat-layout[onnx]"``."""

import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import eqsat_layout


def small_model(path: Path) -> None:
    """A convolution, its bias and a ReLU."""
    weight = np.random.default_rng(0).standard_normal((32, 16, 3, 3), dtype=np.float32) * 0.1
    nodes = [
        helper.make_node("Conv", ["image", "weight", "bias"], ["features"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["features"], ["answer"], name="relu"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 16, 32, 32])],
        [helper.make_tensor_value_info("answer", TensorProto.FLOAT, ["batch", 32, 32, 32])],
        [numpy_helper.from_array(weight, "weight"), numpy_helper.from_array(np.zeros(32, "float32"), "bias")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)


with tempfile.TemporaryDirectory() as folder:
    small_model(Path(folder) / "small.onnx")
    # The batch is symbolic in the file. A program that is compiled for its sizes is faster than one for all sizes.
    session = eqsat_layout.Session(Path(folder) / "small.onnx", shapes={"image": (1, 16, 32, 32)})

print("inputs ", [(port.name, port.shape, port.dtype) for port in session.inputs])
print("outputs", [(port.name, port.shape, port.dtype) for port in session.outputs])
(answer,) = session.run(None, {"image": np.ones((1, 16, 32, 32), "float32")})
print(answer.shape, "of which positive:", int((answer > 0).sum()))
assert answer.shape == (1, 32, 32, 32)
assert (answer >= 0).all()

print(session.plan)  # what was chosen, and what that saves by the cost model
