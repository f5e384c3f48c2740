"""ONNX graphs that ask for too much, or for what nothing makes: one error, at once, that names the node."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat_layout
from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.modules import FileError, read_module
from eqsat_layout.readers.onnx.models import from_proto

onnx = pytest.importorskip("onnx")
helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT
value = helper.make_tensor_value_info
SECONDS = 10  # of the processor; without a bound they take minutes, or all memory

HUGE = np.array([10**6, 10**6])
MANY = 3000


def node(op: str, inputs: Sequence[str], outputs: Sequence[str] = ("y",), name: str = "bad", **attributes: Any) -> Any:
    return helper.make_node(op, inputs, outputs, name=name, **attributes)


def added(made: str) -> list[Any]:
    """The sum of a constant added to the input."""
    return [
        node("Cast", [made], ["f"], "cast", to=FLOAT),
        node("ReduceSum", ["f"], ["s"], "sum", keepdims=0),
        node("Add", ["x", "s"], ["y"], "add"),
    ]


def branch(nodes: Sequence[Any]) -> Any:
    return helper.make_graph(nodes, "branch", [], [value("y", FLOAT, None)])


def ranges(count: int, limit: int) -> list[Any]:
    one = [node("Range", ["a", f"limit{i}", "c"], [f"r{i}"], f"bad{i}") for i in range(count)]
    sums = [node("ReduceSum", [f"r{i}"], [f"q{i}"], f"sum{i}", keepdims=0) for i in range(count)]
    return [*one, *sums, node("Sum", [f"q{i}" for i in range(count)], ["q"], "all"), *added("q")]


def sparse() -> Any:
    one, place = (onnx.numpy_helper.from_array(np.zeros(1, kind), "k") for kind in ("float32", "int64"))
    return helper.make_sparse_tensor(one, place, [10**6, 10**6])


FROM_0 = {"a": np.array(0), "c": np.array(1)}
GRAPHS: dict[str, tuple[list[Any], dict[str, Any], str]] = {
    "a huge range": (
        [node("Range", ["a", "b", "c"], ["r"]), *added("r")],
        {**FROM_0, "b": np.array(10**12)},
        r"node 'bad' \(Range\): its result has 1000000000000 elements",
    ),
    "a range of gigabytes": (
        [node("Range", ["a", "b", "c"], ["r"]), *added("r")],
        {**FROM_0, "b": np.array(3 * 10**8)},
        r"node 'bad' \(Range\): with it, more than \d+ elements of constants would be computed",
    ),
    "a thousand ranges": (
        ranges(100, 10**6),
        {**FROM_0, **{f"limit{i}": np.array(10**6 - i) for i in range(100)}},
        r"node 'bad\d+' \(Range\): with it, more than",
    ),
    "a range that stands still": (
        [node("Range", ["a", "b", "z"], ["r"]), *added("r")],
        {**FROM_0, "b": np.array(9), "z": np.array(0)},
        r"node 'bad' \(Range\): ",
    ),
    "a product of ranges": (
        [
            node("Range", ["a", "b", "c"], ["r"], "range"),
            node("Unsqueeze", ["r", "c1"], ["u"], "column"),
            node("Mul", ["r", "u"], ["o"]),
            *added("o"),
        ],
        {**FROM_0, "b": np.array(10**6), "c1": np.array([1])},
        r"node 'bad' \(Mul\): its result has 1000000 x 1000000",
    ),
    "huge tiles": ([node("Tile", ["x", "n"])], {"n": HUGE * 10}, r"node 'bad' \(Tile\): its result has"),
    "tiles less than none": ([node("Tile", ["x", "n"])], {"n": np.array([-1, 2])}, "must not contain negative values"),
    "huge copies": (
        [node("Expand", ["k", "n"], ["r"]), *added("r")],
        {"k": np.ones(1), "n": HUGE},
        r"'bad' \(Expand\)",
    ),
    "huge constants": ([node("ConstantOfShape", ["n"], ["r"]), *added("r")], {"n": HUGE}, r"'bad' \(ConstantOfShape\)"),
    "a huge image": (
        [node("Resize", ["x4", "", "", "n"], mode="nearest")],
        {"x4": np.ones((1, 1, 2, 2), "float32"), "n": np.array([1, 1, 10**7, 10**7])},
        r"node 'bad' \(Resize\): its result has 1 x 1 x 10000000 x 10000000",
    ),
    "pads that leave nothing": ([node("Pad", ["x", "n"])], {"n": np.array([0, -9, 0, -9])}, r"\(Pad\).*below zero"),
    "a branch with a huge range": (
        [
            node(
                "If",
                ["yes"],
                then_branch=branch([node("Range", ["a", "b", "c"], ["r"], "inner"), *added("r")]),
                else_branch=branch([node("Relu", ["x"], name="other")]),
            )
        ],
        {**FROM_0, "b": np.array(10**12), "yes": np.array(True)},
        r"inner' \(Range\): its result has",
    ),
    "many parts": (
        [node("Split", ["x"], [f"s{i}" for i in range(MANY)], num_outputs=MANY), node("Relu", ["s0"], name="relu")],
        {},
        r"node 'bad' \(Split\) has 3000 results, more than 2048",
    ),
    "axes without end": ([node("Reshape", ["x", "n"])], {"n": np.array([1] * 999 + [6])}, r"\(Reshape\).*1000 axes"),
    "new axes without end": ([node("Unsqueeze", ["x", "n"])], {"n": np.arange(50_000)}, r"\(Unsqueeze\).*50002 axes"),
    "a sparse constant": (
        [node("Constant", [], ["k"], sparse_value=sparse()), node("Add", ["x", "k"], name="add")],
        {},
        r"node 'bad' \(Constant\) holds a sparse tensor",
    ),
    "a loop of nodes": (
        [node("Add", ["x", "b"], ["a"]), node("Add", ["a", "x"], ["b"], "two"), node("Relu", ["b"], name="relu")],
        {},
        r"node 'bad' \(Add\) reads 'b', which nothing makes before it",
    ),
    "a name that nothing makes": ([node("Relu", ["nowhere"])], {}, r"node 'bad' \(Relu\) reads 'nowhere'"),
    "a name in a branch that nothing makes": (
        [
            node(
                "If",
                ["yes"],
                then_branch=branch([node("Relu", ["nowhere"], name="inner")]),
                else_branch=branch([node("Relu", ["x"], name="other")]),
            )
        ],
        {"yes": np.array(True)},
        r"node 'inner' \(Relu\) reads 'nowhere'",
    ),
    "a name made twice": ([node("Relu", ["x"]), node("Exp", ["x"], name="two")], {}, r"'two' \(Exp\) makes 'y', which"),
    "one name for two results": (
        [node("Split", ["x"], ["y", "y"], axis=0, num_outputs=2)],
        {},
        r"'bad' \(Split\) makes 'y', which",
    ),
    "a result that nothing makes": ([node("Relu", ["x"], ["z"])], {}, "the result 'y' is made by no node"),
    "another's op of ONNX's name": (
        [node("Relu", ["x"], domain="com.example")],
        {},
        r"node 'bad' \(Relu\) is of the domain 'com.example', which is not known here",
    ),
    "an axis that is 0 in 32 bits": (
        [node("Concat", ["x", "x"], axis=1 << 32)],
        {},
        "axis=4294967296, which is not done",
    ),
    "a split into billions of parts": ([node("Split", ["x"], num_outputs=1 << 31, axis=1)], {}, "and has 1 results"),
    "a resize to billions": (
        [node("Reshape", ["x", "s"], ["r"], "first"), node("Resize", ["r", "", "", "z"])],
        {"s": np.array([1, 1, 2, 3]), "z": np.array([1, 1, (1 << 31) - 1, 3])},
        "is not done by rows",
    ),
    "windows that go backwards": (
        [node("Reshape", ["x", "s"], ["r"], "first"), node("MaxPool", ["r"], kernel_shape=[1, 1], strides=[-1, 1])],
        {"s": np.array([1, 1, 2, 3])},
        "strides must only contain positive values",
    ),
    "more than there are": (
        [node("TopK", ["x", "k"], ["y", "i"])],
        {"k": np.array([7])},
        "less than the requested k .*",
    ),
    "parts that are too short": (
        [node("Split", ["x", "s"], ["y", "z"], axis=1)],
        {"s": np.array([1, 1])},
        "of 'split'",
    ),
    "a type that there is not": ([node("Cast", ["x"], to=99)], {}, r"node 'bad' \(Cast\): "),
    "an op that there is not": ([node("Frobnicate", ["x"])], {}, "Frobnicate"),
}


@pytest.mark.parametrize("name", list(GRAPHS))
def test_a_graph_that_asks_for_too_much_is_refused_by_the_name_of_its_node(tmp_path: Path, name: str) -> None:
    nodes, constants, says = GRAPHS[name]
    given = [onnx.numpy_helper.from_array(np.asarray(array), key) for key, array in constants.items()]
    graph = helper.make_graph(nodes, "g", [value("x", FLOAT, [2, 3])], [value("y", FLOAT, None)], given)
    sets = [helper.make_opsetid("", 18), helper.make_opsetid("com.example", 1)]
    onnx.save(helper.make_model(graph, opset_imports=sets, ir_version=9), tmp_path / "m.onnx")
    start = time.process_time()
    with pytest.raises(FileError, match=rf"^\S*m\.onnx: .*{says}"):
        read_module(tmp_path / "m.onnx")
    assert time.process_time() - start < SECONDS


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (lambda model: setattr(model.opset_import[0], "version", 99), "of opset 99, and the package onnx .* knows"),
        (lambda model: setattr(model, "ir_version", 99), "of IR version 99"),
        (lambda model: model.graph.input.add().CopyFrom(model.graph.input[0]), "has two inputs 'x'"),
        (lambda model: model.graph.ClearField("output"), "has no outputs"),
        (
            lambda model: setattr(model.graph.input[0].type.tensor_type, "elem_type", 99),
            "'x' is of type 99, which ONNX does not know",
        ),
        (lambda model: model.graph.input[0].ClearField("type"), "the input 'x' has no type"),
    ],
    ids=["opset", "ir", "inputs", "outputs", "type", "no type"],
)
def test_a_graph_that_onnx_does_not_know_is_refused(changes: Any, says: str) -> None:
    """They were taken in silence; an op of a version that is not known may mean something else."""
    graph = helper.make_graph([node("Relu", ["x"])], "g", [value("x", FLOAT, [2])], [value("y", FLOAT, [2])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    changes(model)
    with pytest.raises(EqsatError, match=says):
        from_proto(model)


@pytest.mark.parametrize(
    ("odd", "says"), [("Relu", r"\(Re.xff.xfe\): ONNX has no op of this name"), ("own name", None), ("size", None)]
)
def test_a_text_that_is_none(tmp_path: Path, odd: str, says: str | None) -> None:
    """Of an op: "has_schema(): incompatible function arguments"; of a size: "cannot use a string pattern on bytes"."""
    one = helper.make_node("Relu", ["x"], ["y"], name="own name")
    graph = helper.make_graph([one], "g", [value("x", FLOAT, ["size"])], [value("y", FLOAT, None)])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    (tmp_path / "m.onnx").write_bytes(data.replace(odd.encode(), odd[:-2].encode() + b"\xff\xfe"))
    if says is None:
        read_module(tmp_path / "m.onnx")
        return
    with pytest.raises(FileError, match=says):
        read_module(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("op", "operands", "attribute"), [("Conv", ["x", "x"], "auto_pad"), ("Pad", ["x", "p"], "mode")]
)
def test_a_text_of_an_attribute_that_is_none_is_written_out(op: str, operands: list[str], attribute: str) -> None:
    """Said "'ascii' codec can't decode byte 0xff", and nothing of the attribute."""
    one = helper.make_node(op, operands, ["y"], **{attribute: b"\xff\xfe"})
    pads = onnx.numpy_helper.from_array(np.zeros(8, "int64"), "p")
    graph = helper.make_graph([one], "g", [value("x", FLOAT, [1, 2, 3, 3])], [value("y", FLOAT, None)], [pads])
    with pytest.raises(EqsatError, match=rf"{op}.*\\xff\\xfe"):
        from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9))


@pytest.mark.parametrize(
    "equation", ["i1j->ij", "i.j->ij", "..ij->ij", "i...j...->ij", "i;j->ij", "ij->j->i", "ij->ijj", b"\xff\xfe"]
)
def test_an_equation_of_anything_but_letters_is_refused(equation: Any) -> None:
    """ONNX's own inference never ended, and no interrupt came through."""
    one = helper.make_node("Einsum", ["x"], ["y"], equation=equation, name="sum")
    graph = helper.make_graph([one], "g", [value("x", FLOAT, [3, 3])], [value("y", FLOAT, None)])
    with pytest.raises(EqsatError, match=r"node 'sum' \(Einsum\) with equation=.* is not done"):
        from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9))


def test_a_refused_op_whose_definition_is_of_a_later_version_is_named(tmp_path: Path) -> None:
    """Relu has one since 18: "maximum recursion depth exceeded"."""
    graph = helper.make_graph([node("Relu", ["x"])], "g", [value("x", FLOAT, [10**12])], [value("y", FLOAT, None)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    with pytest.raises(FileError, match=r"node 'bad' \(Relu\): its result has 10+ elements"):
        read_module(tmp_path / "m.onnx")


def test_a_tensor_without_its_data_is_refused_by_its_name(tmp_path: Path) -> None:
    tensor = onnx.numpy_helper.from_array(np.ones((2, 3), "float32"), "k")
    tensor.raw_data = b"1234"
    graph = helper.make_graph(
        [node("Add", ["x", "k"])], "g", [value("x", FLOAT, [2, 3])], [value("y", FLOAT, None)], [tensor]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "m.onnx")
    with pytest.raises(FileError, match=r"m\.onnx: tensor 'k': "):
        read_module(tmp_path / "m.onnx")


def test_what_a_long_chain_of_shapes_came_from_is_not_kept(tmp_path: Path) -> None:
    """onnxscript keeps the names of all values that one came from: the square of a chain's length."""
    pytest.importorskip("onnxscript")
    from eqsat_layout.readers.onnx.folding import folded

    length = 1000
    chain = [node("Add", [f"t{i}", "zero"], [f"t{i + 1}"], f"add{i}") for i in range(length)]
    graph = helper.make_graph(
        [node("Shape", ["x"], ["t0"], "shape"), *chain, node("Reshape", ["x", f"t{length}"], name="reshape")],
        "g",
        [value("x", FLOAT, [2, 3])],
        [value("y", FLOAT, None)],
        [onnx.numpy_helper.from_array(np.array(0), "zero")],
    )
    model = folded(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    assert model.ByteSize() < 100_000
    assert not any(one.op_type == "Add" for one in model.graph.node)


def test_what_is_refused_half_way_leaves_nothing_on_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    """TVM warned of "BlockBuilder destroyed with remaining blocks!", also where a second way to read it was found."""
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[2,3] x, int64[1] k) => (float[2,3] y) {
        z = Relu(x)
        y = CumSum(z, k)
    }"""
    with pytest.raises(EqsatError, match="CumSum"):
        eqsat_layout.plan(onnx.parser.parse_model(text))
    gc.collect()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"dims": [-1], "data_type": FLOAT}, r"has an extent below zero: \[-1\]"),
        ({"dims": [4], "data_type": 99}, "is of type 99, which ONNX does not know"),
        ({"dims": [4]}, "is of type 0, which ONNX does not know"),
    ],
)
@pytest.mark.parametrize("place", ["weight", "attribute"])
def test_a_stored_tensor_is_one(said: dict[str, Any], says: str, place: str) -> None:
    """A negative size was taken for as many as there are; of a type that is none the error did not speak."""
    tensor = onnx.TensorProto(name="w", raw_data=bytes(16), **said)
    nodes = [helper.make_node("Relu", ["w"], ["y"])]
    if place == "attribute":
        constant = helper.make_node("Constant", [], ["w"])
        constant.attribute.add(name="value", type=onnx.AttributeProto.TENSOR, t=tensor)
        nodes.insert(0, constant)
    weights = [tensor] if place == "weight" else []
    model = helper.make_model(helper.make_graph(nodes, "g", [], [value("y", FLOAT, (4,))], weights))
    with pytest.raises(EqsatError, match=f"tensor 'w' {says}"):
        from_proto(model)
