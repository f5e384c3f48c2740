"""Sizes that are equal though they are written in two ways, and sizes that a model works out for its resizes."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx.reference
from onnx import TensorProto, helper

import eqsat_layout
from eqsat_layout.errors import EqsatError, InputError


def _decoder() -> onnx.ModelProto:
    """Convolutions that halve an image, and a resize to ``(h - 1) / 4 + 1``, as torch's exporter writes the sizes of a
    head that meets a skip connection; then the sum of both, beside the head."""
    numbers = {
        "two": np.array([2], "int64"),
        "one": np.array([1], "int64"),
        "four": np.array([4], "int64"),
        "kernel": np.full((1, 1, 1, 1), 0.5, "float32"),
    }
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["half"], strides=[2, 2], name="half"),
        helper.make_node("Conv", ["half", "kernel"], ["quarter"], strides=[2, 2], name="quarter"),
        helper.make_node("Conv", ["quarter", "kernel"], ["eighth"], strides=[2, 2], name="eighth"),
        helper.make_node("Shape", ["x"], ["b"], start=0, end=2),
        helper.make_node("Shape", ["x"], ["sides"], start=2, end=4),
        helper.make_node("Sub", ["sides", "one"], ["less"]),
        helper.make_node("Div", ["less", "four"], ["few"]),
        helper.make_node("Add", ["few", "one"], ["wanted"]),
        helper.make_node("Concat", ["b", "wanted"], ["sizes"], axis=0),
        helper.make_node("Resize", ["eighth", "", "", "sizes"], ["large"], mode="linear", name="resize"),
        helper.make_node("Conv", ["large", "kernel"], ["head"], name="head"),
        helper.make_node("Add", ["quarter", "head"], ["sum"], name="sum"),
        helper.make_node("Concat", ["sum", "large"], ["y"], axis=1, name="concat"),
    ]
    graph = helper.make_graph(
        nodes,
        "decoder",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 1, "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", 2, "p", "q"])],
        [onnx.numpy_helper.from_array(array, name) for name, array in numbers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def test_a_size_that_is_written_in_two_ways_is_one_size() -> None:
    """``Conv`` of a resize of dynamic sizes had no shape, and the sum with a skip connection had none either."""
    model = _decoder()
    session = eqsat_layout.Session(model)
    assert session.outputs[0].shape is not None
    reference = onnx.reference.ReferenceEvaluator(model)
    for height, width in ((16, 16), (21, 9)):
        x = np.random.default_rng(0).standard_normal((2, 1, height, width)).astype("float32")
        np.testing.assert_allclose(
            session.run(None, {"x": x})[0], reference.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5
        )


def _sum_of_ends(op: str) -> onnx.ModelProto:
    """Of ``x`` without its first element and of ``y``, whose sizes have nothing to do with one another."""
    nodes = [
        helper.make_node("Slice", ["x", "one", "most"], ["rest"]),
        helper.make_node(op, ["rest", "y"], ["z"], name="both", **({"axis": 1} if op == "Concat" else {})),
        helper.make_node("Relu", ["z"], ["r"]),
    ]
    ends = {"one": np.array([1], "int64"), "most": np.array([2**63 - 1], "int64")}
    graph = helper.make_graph(
        nodes,
        "ends",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2]),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m", 2]),
        ],
        [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in ends.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize("op", ["Add", "Concat"])
def test_sizes_that_turn_out_to_differ_are_an_error_of_the_run(op: str) -> None:
    session = eqsat_layout.Session(_sum_of_ends(op))
    x, y = np.ones((4, 2), "float32"), np.ones((3, 2), "float32")
    assert session.run(None, {"x": x, "y": y})[0].shape == ((3, 2) if op == "Add" else (3, 4))
    for rows in (2, 1, 4):
        with pytest.raises(InputError, match="the inputs do not fit together"):
            session.run(None, {"x": x, "y": np.ones((rows, 2), "float32")})


def _sliced(starts: list[int], ends: list[int] | None, axes: list[int], steps: list[int]) -> onnx.ModelProto:
    """``ends``: None for the size of the first axis, as a model works it out."""
    numbers = {"starts": starts, "axes": axes, "steps": steps, "none": [0], "one": [1]} | (
        {"ends": ends} if ends else {}
    )
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Slice", ["s", "none", "one"], ["ends"])]
    nodes = [] if ends else nodes
    graph = helper.make_graph(
        [*nodes, helper.make_node("Slice", ["x", "starts", "ends", "axes", "steps"], ["y"], name="slice")],
        "sliced",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "m"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.array(value, "int64"), name) for name, value in numbers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


_MOST = 2**63 - 1


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ([-2], None, [0], [1]),  # gave n + 2 rows: what lies behind the data
        ([1, -3], [_MOST, -1], [0, 1], [1, 1]),
        ([-1], [-_MOST], [0], [-1]),  # ended in an error of TVM's
        ([4, 1], [0, _MOST], [0, 1], [-2, 2]),
    ],
)
def test_slices_along_symbols_begin_and_end_where_onnx_says(
    starts: list[int], ends: list[int] | None, axes: list[int], steps: list[int]
) -> None:
    model = _sliced(starts, ends, axes, steps)
    session, reference = eqsat_layout.Session(model), onnx.reference.ReferenceEvaluator(model)
    for shape in ((5, 7), (1, 2), (3, 3)):
        x = np.arange(shape[0] * shape[1], dtype="float32").reshape(shape)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], reference.run(None, {"x": x})[0])


def test_boxes_that_are_kept_are_as_many_rows_as_there_are() -> None:
    """Whatever is made of the boxes said that all of them were kept."""
    numbers = {
        "most": np.array([_MOST], "int64"),
        "overlap": np.array([0.3], "float32"),
        "least": np.array([0.2], "float32"),
        "place": np.array([2], "int64"),
        "none": np.array([0], "int64"),
        "one": np.array([1], "int64"),
    }
    nodes = [
        helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["kept"]),
        helper.make_node("Gather", ["kept", "place"], ["column"], axis=1),
        helper.make_node("Squeeze", ["column", "one"], ["rows"]),
        helper.make_node("Squeeze", ["boxes", "none"], ["all"]),
        helper.make_node("Gather", ["all", "rows"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "boxes",
        [
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [1, 9, 4]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 1, 9]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in numbers.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    session = eqsat_layout.Session(model)
    corners = np.array([[0, 0], [0, 0.1], [2, 2], [4, 0], [4, 0.2], [6, 6], [8, 8], [8, 8.1], [0, 8]], "float32")
    feed = {
        "boxes": np.concatenate([corners, corners + 1], axis=1)[None],
        "scores": np.linspace(0.1, 0.9, 9, dtype="float32")[None, None],
    }
    assert session.outputs[0].shape is None or session.outputs[0].shape[0] != 9
    np.testing.assert_array_equal(
        session.run(None, feed)[0], onnx.reference.ReferenceEvaluator(model).run(None, feed)[0]
    )


def _of_any_boxes(most: int) -> onnx.ModelProto:
    numbers = {
        "most": np.array([most], "int64"),
        "overlap": np.array([0.3], "float32"),
        "least": np.array([0.2], "float32"),
    }
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores", *numbers], ["kept"])
    graph = helper.make_graph(
        [node],
        "boxes",
        [
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [1, "n", 4]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 2, "n"]),
        ],
        [helper.make_tensor_value_info("kept", TensorProto.INT64, None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in numbers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize("most", [12, _MOST])
def test_boxes_are_kept_of_as_many_as_a_run_gives(most: int) -> None:
    """There were rows of zeros for those that are not kept; all of them were refused (torchvision's detectors), as TVM
    put what is cut from the room for them before it was known how many they are."""
    model = _of_any_boxes(most)
    session, evaluator = eqsat_layout.Session(model), onnx.reference.ReferenceEvaluator(model)
    rng = np.random.default_rng(0)
    for count in (1, 30, 0):
        corners = rng.uniform(0, 10, (1, count, 2)).astype("float32")
        feed = {
            "boxes": np.concatenate([corners, corners + 3], axis=2),
            "scores": rng.uniform(0, 1, (1, 2, count)).astype("float32"),
        }
        expected = evaluator.run(None, feed)[0] if count else np.zeros((0, 3), "int64")
        np.testing.assert_array_equal(session.run(None, feed)[0], expected)


def test_a_shape_that_is_a_number_is_refused_by_its_node() -> None:
    """ "shape must be a tuple/list or a Relax shape expression"."""
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "size"], ["y"], name="this")],
        "scalar",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.array(4), "size")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    with pytest.raises(EqsatError, match=r"node 'this' \(Reshape\): a shape is a vector"):
        eqsat_layout.Session(model)


@pytest.mark.parametrize(
    ("op", "operands", "why"),
    [
        ("Reshape", ["x", "size"], r"requires the input new shape .*; known at run time only: operand 1 \(size\)"),
        ("OneHot", ["size", "one", "x"], r"as many places as is known at run time only \(one\) is not done"),
        ("Expand", ["x", "size"], r"to a shape that is known at run time only \(size\) is not done"),
        ("MatMul", ["x", "w"], r"Incompatible dimensions .*\(operands: \[2\], \[3\]\)"),
    ],
)
def test_a_node_that_is_not_done_says_of_what(op: str, operands: list[str], why: str) -> None:
    """A TypeError of TVM's alone; "Function 0x55 is annotated as pure"; and ``T.int64(2)``."""
    kinds = {
        "x": (TensorProto.FLOAT, [2]),
        "w": (TensorProto.FLOAT, [3]),
        "size": (TensorProto.INT64, [2]),
        "one": (TensorProto.INT64, [1]),
    }
    graph = helper.make_graph(
        [helper.make_node(op, operands, ["y"], name="this")],
        "refused",
        [helper.make_tensor_value_info(name, *kinds[name]) for name in operands],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    with pytest.raises(EqsatError, match=rf"node 'this' \({op}\): .*{why}"):
        eqsat_layout.Session(model)


def _of_a_size(op: str) -> onnx.ModelProto:
    """The size of the second axis as a float, and ``op`` of it: sizes alone were taken for vectors, or by no op."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "one"], ["k"]),
        helper.make_node("Cast", ["k"], ["f"], to=TensorProto.FLOAT),
        helper.make_node(op, ["f"], ["g"]),
        helper.make_node("Div", ["x", "g"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "size",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "m"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "m"])],
        [onnx.numpy_helper.from_array(np.array(1, "int64"), "one")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize("op", ["Sqrt", "Floor"])
def test_a_size_alone_is_a_number_without_axes(op: str) -> None:
    model = _of_a_size(op)
    x = np.random.default_rng(1).standard_normal((2, 5)).astype("float32")
    np.testing.assert_allclose(
        eqsat_layout.Session(model).run(None, {"x": x})[0],
        onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})[0],
        rtol=1e-6,
    )


def test_branches_of_different_extents_give_a_tensor_of_some_extents() -> None:
    """torchvision's detectors keep no box at all in one branch: what was made of the result had no shape."""
    numbers = {"half": np.array([[0.5, 0.5]], "float32"), "two": np.array([2.0, 2.0], "float32")}
    kind = TensorProto.FLOAT
    branches = [
        helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(result, kind, None)])
        for name, result, nodes in (
            ("all", "a", [helper.make_node("Identity", ["x"], ["a"])]),
            ("one", "b", [helper.make_node("Identity", ["half"], ["b"])]),
        )
    ]
    nodes = [
        helper.make_node("If", ["c"], ["r"], then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("Mul", ["r", "two"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "branches",
        [helper.make_tensor_value_info("c", TensorProto.BOOL, []), helper.make_tensor_value_info("x", kind, ["n", 2])],
        [helper.make_tensor_value_info("y", kind, None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in numbers.items()],
    )
    session = eqsat_layout.Session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    x = np.ones((3, 2), "float32")
    assert session.run(None, {"c": np.array(True), "x": x})[0].tolist() == [[2.0, 2.0]] * 3
    assert session.run(None, {"c": np.array(False), "x": x})[0].tolist() == [[1.0, 1.0]]


def _of_one_node(
    op: str, shapes: dict[str, list[str | int]], outputs: int = 1, **attributes: object
) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    names = [f"o{at}" for at in range(outputs)]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]
    lengths = attributes.pop("lengths", None)
    constants = [] if lengths is None else [onnx.numpy_helper.from_array(np.array(lengths), "lengths")]
    node = helper.make_node(op, [*shapes, *(one.name for one in constants)], names, **attributes)
    graph = helper.make_graph([node], "one", inputs, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize(
    ("model", "fits", "does_not"),
    [
        (
            _of_one_node("Einsum", {"x": ["a", "b"], "y": ["c", "d"]}, equation="ij,jk->ik"),
            [(2, 4), (4, 5)],
            [(2, 3), (4, 5)],
        ),
        (
            _of_one_node("Einsum", {"x": ["a", "b"], "y": ["c", "d"]}, equation="ij,ij->ij"),
            [(2, 6), (2, 6)],
            [(2, 6), (3, 4)],  # as many elements
        ),
        (
            _of_one_node("Einsum", {"x": ["q", "a", "b"], "y": [4, "d"]}, equation="...ij, jk"),
            [(2, 3, 4), (4, 5)],
            [(2, 3, 5), (4, 5)],
        ),
        (_of_one_node("Einsum", {"x": ["a", "b"]}, equation="ii->i"), [(3, 3)], [(3, 4)]),
        (_of_one_node("Split", {"x": ["n", 3]}, 2, axis=0, lengths=[2, 3]), [(5, 3)], [(6, 3)]),
        (_of_one_node("Split", {"x": ["n", 3]}, 2, axis=0), [(4, 3)], [(5, 3)]),
        (_of_one_node("Add", {"x": ["a"], "y": ["b"]}), [(4,), (4,)], [(4,), (2,)]),
        (
            _of_one_node("Concat", {"x": ["a", "b"], "y": ["c", "d"]}, axis=0),
            [(2, 3), (4, 3)],
            [(2, 3), (4, 5)],
        ),
    ],
    ids=["sum", "each axis", "number", "diagonal", "parts", "equal parts", "operands", "concat"],
)
def test_open_sizes_that_do_not_fit_are_refused(
    model: onnx.ModelProto, fits: list[tuple[int, ...]], does_not: list[tuple[int, ...]]
) -> None:
    """``Einsum`` and ``Split`` gave numbers of some elements; ``Add`` of two open sizes could not be built."""
    session = eqsat_layout.Session(model)
    reference = onnx.reference.ReferenceEvaluator(model)
    rng = np.random.default_rng(0)
    feed = {one.name: rng.random(shape, "float32") for one, shape in zip(session.inputs, fits, strict=True)}
    for got, want in zip(session.run(None, feed), reference.run(None, feed), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)
    wrong = {one.name: rng.random(shape, "float32") for one, shape in zip(session.inputs, does_not, strict=True)}
    with pytest.raises(InputError, match="do not fit together: where 'x' is"):
        session.run(None, wrong)
