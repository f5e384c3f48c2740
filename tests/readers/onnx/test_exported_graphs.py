"""Graphs as people export them, that were refused or stopped in TVM's own words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat_layout
from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.modules import read_model
from eqsat_layout.readers.onnx.models import from_proto

onnx = pytest.importorskip("onnx")
helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT
node, RNG = helper.make_node, np.random.default_rng(0)


def model(
    nodes: Sequence[Any],
    inputs: dict[str, Sequence[Any]],
    constants: dict[str, Any] | None = None,
    functions: Sequence[Any] = (),
    domains: Sequence[str] = (),
) -> Any:
    """All inputs and the result ``y`` are of float32."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [onnx.numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    sets = [helper.make_opsetid("", 23), *(helper.make_opsetid(name, 1) for name in domains)]
    return helper.make_model(graph, opset_imports=sets, functions=list(functions), ir_version=11)


@pytest.mark.parametrize("domain", ["own", "ai.onnx"])
def test_a_function_may_hold_what_onnx_writes_in_other_ops(domain: str) -> None:
    """``Celu`` in a function was an op that nothing converts, and so was any function of the domain ``ai.onnx``."""
    sets = [helper.make_opsetid("", 23)]
    function = helper.make_function(domain, "Own", ["a"], ["b"], [node("Celu", ["a"], ["b"], alpha=2.0)], sets)
    domains = [domain] if domain == "own" else []
    read = from_proto(model([node("Own", ["x"], ["y"], domain=domain)], {"x": [3, 4]}, {}, [function], domains))
    assert read.inputs == ("x",)


def test_the_largest_along_an_open_axis() -> None:
    """``Hardmax`` was refused in the words of a mismatched type of TVM's."""
    session = eqsat_layout.Session(model([node("Hardmax", ["x"], ["y"])], {"x": ["n", "m"]}))
    (made,) = session.run(None, {"x": np.array([[1, 3, 3], [2, 0, 1]], "float32")})
    assert made.tolist() == [[0, 1, 0], [1, 0, 0]]


def test_rotary_embedding_of_an_open_batch() -> None:
    """Its definition splits the last axis into all and nothing: counted from the end, TVM could not build that."""
    tables = {"c": np.ones((4, 2), "float32"), "s": np.zeros((4, 2), "float32")}
    places = node("Constant", [], ["p"], value=onnx.numpy_helper.from_array(np.zeros((2, 3), "int64")))
    turned = node("RotaryEmbedding", ["x", "c", "s", "p"], ["y"], num_heads=2)
    x = RNG.standard_normal((2, 3, 8), "float32")
    (made,) = eqsat_layout.Session(model([places, turned], {"x": ["n", 3, 8]}, tables)).run(None, {"x": x})
    assert np.array_equal(made, x), "an angle of 0"


def test_attention_of_an_open_batch_whose_heads_share_keys() -> None:
    """Its definition asks by Not and And whether there are fewer heads of keys, and these were values."""
    shapes = {"q": ["n", 5, 16], "k": ["n", 5, 8], "v": ["n", 5, 8]}
    read = from_proto(model([node("Attention", [*shapes], ["y"], q_num_heads=4, kv_num_heads=2)], shapes))
    assert "tensor_to_shape" not in read.module.script()


STEP: dict[str, Any] = {
    "x": RNG.standard_normal((1, 2, 3), "float32"),
    "h": RNG.standard_normal((1, 2, 4), "float32"),
    "c": RNG.standard_normal((1, 2, 4), "float32"),
}


def sums(gates: int, constants: dict[str, Any]) -> Any:
    """Of one step, those of each gate."""
    given = STEP["x"][0] @ constants["w"][0].T + STEP["h"][0] @ constants["r"][0].T
    return np.split(given, gates, axis=1)


def weights(gates: int) -> dict[str, Any]:
    return {
        "w": RNG.standard_normal((1, 4 * gates, 3), "float32"),
        "r": RNG.standard_normal((1, 4 * gates, 4), "float32"),
    }


def step(op: str, constants: dict[str, Any], **attributes: Any) -> Any:
    names = ["x", "h", "c"] if op == "LSTM" else ["x", "h"]
    given = ["x", "w", "r", "", "", *names[1:]]
    read = model([node(op, given, ["", "y"], **attributes)], {name: STEP[name].shape for name in names}, constants)
    return eqsat_layout.Session(read).run(None, {name: STEP[name] for name in names})[0][0]


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def test_an_lstm_may_clip_and_couple_its_gates() -> None:
    """What ONNX Runtime gives: the cell itself is not clipped."""
    constants = weights(4)
    entry, out, _, new = (np.clip(one, -0.3, 0.3) for one in sums(4, constants))
    cell = (1 - sigmoid(entry)) * STEP["c"][0] + sigmoid(entry) * np.tanh(new)
    made = step("LSTM", constants, clip=0.3, input_forget=1)
    assert np.allclose(made, sigmoid(out) * np.tanh(cell), atol=1e-5)


def test_a_gru_may_have_other_activations() -> None:
    constants = weights(3)
    keep, reset, _ = (np.clip(0.3 * one + 0.5, 0, 1) for one in sums(3, constants))
    products = STEP["x"][0] @ constants["w"][0, 8:].T + (reset * STEP["h"][0]) @ constants["r"][0, 8:].T
    new = np.where(products < 0, 0.1 * products, products)
    made = step("GRU", constants, activations=["HardSigmoid", "LeakyRelu"], activation_alpha=[0.3, 0.1])
    assert np.allclose(made, (1 - keep) * new + keep * STEP["h"][0], atol=1e-5)


def test_an_attribute_that_an_op_does_not_have_is_refused() -> None:
    """It was left out in silence: a convolution with ``dilation`` for ``dilations`` had none."""
    weight = {"w": np.zeros((2, 3, 3, 3), "float32")}
    bad = model([node("Conv", ["x", "w"], ["y"], name="bad", dilation=[2, 2])], {"x": [1, 3, 8, 8]}, weight)
    with pytest.raises(EqsatError, match=r"node 'bad' \(Conv\) has an attribute 'dilation', .* mean 'dilations'"):
        from_proto(bad)


def test_notes_of_tools_are_no_attributes() -> None:
    """ONNX's checker and ONNX Runtime pass over names that begin with two underscores."""
    made = model([node("Relu", ["x"], ["y"], __origin="layer 3")], {"x": [1, 3]}, {})
    onnx.checker.check_node(made.graph.node[0], onnx.checker.DEFAULT_CONTEXT)
    from_proto(made)


@pytest.mark.parametrize("by_attribute", [False, True])
def test_a_function_of_another_version_than_its_model(by_attribute: bool) -> None:
    """A bare ValueError of the inliner; and where ONNX's converter sees an attribute of the function's, it takes 0."""
    turned = node("Unsqueeze", ["a"], ["b"], axes=[1])
    if by_attribute:
        turned.attribute[0].CopyFrom(onnx.AttributeProto(name="axes", ref_attr_name="at", type=7))
    function = helper.make_function("own", "F", ["a"], ["b"], [turned], [helper.make_opsetid("", 9)], ["at"])
    given = model([node("F", ["x"], ["y"], domain="own", at=[1])], {"x": [3, 4]}, {}, [function], ["own"])
    if by_attribute:
        with pytest.raises(EqsatError, match="function 'F' is of opset 9"):
            from_proto(given)
        return
    assert [int(size) for size in from_proto(given).module["main"].ret_ty.shape] == [3, 1, 4]


def test_nodes_of_one_name_are_told_apart_and_those_without_called_by_their_result() -> None:
    """Both were ``same`` in the plan; an error called the other "a node without a name"."""
    read = from_proto(
        model([node("Relu", ["x"], ["t"], name="same"), node("Exp", ["t"], ["y"], name="same")], {"x": [3, 4]})
    )
    assert {"same_t", "same_y"} <= set(read.module.script().replace(":", " ").split())
    with pytest.raises(EqsatError, match=r"the node of 'y' \(RandomUniformLike\)"):
        from_proto(model([node("RandomUniformLike", ["x"], ["y"])], {"x": [3, 4]}))


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 27, reason="the op is of version 27")
def test_definitions_that_depend_on_which_operands_are_left_out() -> None:
    """``LinearAttention`` and this one, with an operand left out in the middle: "nothing here converts this op"."""
    shapes = {"x": [2, 4, 8], "past": [2, 4, 3]}
    held = {"w": RNG.standard_normal((4, 1, 4), "float32")}
    given = model([node("CausalConvWithState", ["x", "w", "", "past"], ["y", "state"])], shapes, held)
    given.opset_import[0].version = 27
    assert [int(size) for size in from_proto(given).module["main"].ret_ty.shape] == [2, 4, 8]


def test_tensors_are_read_through_the_links_of_a_hub(tmp_path: Path) -> None:
    """A cache of models holds links to files beside each other; onnx refuses those of tensors."""
    weights = {"w": np.arange(4, dtype="float32"), "v": np.arange(4, 8, dtype="float32")}
    nodes = [node("Add", ["x", "w"], ["m"]), node("Mul", ["m", "v"], ["y"])]
    given = model(nodes, {"x": [4]}, weights)
    blobs, view = tmp_path / "blobs", tmp_path / "snapshots" / "main"
    for folder in (blobs, view):
        folder.mkdir(parents=True)
    onnx.save(given, blobs / "model.onnx", save_as_external_data=True, size_threshold=0, location="model.onnx_data")
    for name in ("model.onnx", "model.onnx_data"):
        (blobs / name).rename(blobs / f"of_{name}")
        (view / name).symlink_to(f"../../blobs/of_{name}")
    x = np.ones(4, "float32")
    (got,) = eqsat_layout.Session(view / "model.onnx").run(None, {"x": x})
    np.testing.assert_array_equal(got, (x + weights["w"]) * weights["v"])
    (view / "model.onnx_data").unlink()
    (tmp_path / "secret").write_bytes(bytes(32))
    (view / "model.onnx_data").symlink_to("../../secret")
    with pytest.raises(EqsatError, match=r"'model\.onnx_data', which is not beside the model"):
        read_model(view / "model.onnx")


def test_tensors_beside_what_a_model_leads_to(tmp_path: Path) -> None:
    """The model alone is a link: "there is no such file"."""
    weights = np.arange(4, dtype="float32")
    given = model([node("Add", ["x", "w"], ["y"])], {"x": [4]}, {"w": weights})
    for folder in ("home", "view"):
        (tmp_path / folder).mkdir()
    onnx.save(given, tmp_path / "home" / "m.onnx", save_as_external_data=True, size_threshold=0, location="w.bin")
    link = tmp_path / "view" / "m.onnx"
    link.symlink_to("../home/m.onnx")
    for _ in range(2):  # the second one is from the store, if that is kept
        (got,) = eqsat_layout.Session(link).run(None, {"x": np.ones(4, "float32")})
        np.testing.assert_array_equal(got, weights + 1)
    (tmp_path / "view" / "w.bin").write_bytes((weights * 2).tobytes())
    (got,) = eqsat_layout.Session(link).run(None, {"x": np.ones(4, "float32")})
    np.testing.assert_array_equal(got, weights * 2 + 1)


def test_tensors_in_a_file_that_is_not_there_or_was_not_loaded(tmp_path: Path) -> None:
    """ONNX said of both that the file "is not regular file"; of a model in memory it looked in the working folder."""
    given = model([node("Add", ["x", "w"], ["y"])], {"x": [4]}, {"w": np.ones(4, "float32")})
    path = tmp_path / "model.onnx"
    onnx.save(given, path, save_as_external_data=True, size_threshold=0, location="w.bin")
    with pytest.raises(EqsatError, match=r"tensor 'w' is in the file 'w\.bin', which was not loaded"):
        from_proto(onnx.load(path, load_external_data=False))
    (tmp_path / "w.bin").unlink()
    elsewhere = onnx.TensorProto(name="v", dims=[4], data_type=1, data_location=onnx.TensorProto.EXTERNAL)
    elsewhere.external_data.add(key="location", value="v.bin")
    inner = model([node("Constant", [], ["w"], value=elsewhere), node("Add", ["x", "w"], ["y"])], {"x": [4]}, {})
    with pytest.raises(EqsatError, match=r"tensor 'v' is in the file 'v\.bin', which was not loaded"):
        from_proto(inner)
    with pytest.raises(EqsatError, match=r"its tensor 'w' is in 'w\.bin' beside it: there is no such file"):
        read_model(path)
