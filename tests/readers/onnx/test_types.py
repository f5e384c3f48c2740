"""Types of operands beside ONNX's own definitions, and names of nodes of every type."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper

import eqsat_layout
from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.onnx.models import from_proto


def model(nodes, result, **inputs):
    given = [helper.make_tensor_value_info(name, kind, [2, 3]) for name, kind in inputs.items()]
    results = [helper.make_tensor_value_info("y", result, [2, 3])]
    return helper.make_model(
        helper.make_graph(nodes, "g", given, results), ir_version=8, opset_imports=[helper.make_opsetid("", 17)]
    )


@pytest.mark.parametrize(
    ("op", "types", "said"),
    [
        ("Add", ("FLOAT", "INT64"), "its operands 'a', float32, and 'b', int64, have to be of one type"),
        ("Concat", ("FLOAT16", "FLOAT"), "its operands 'a', float16, and 'b', float32, have to be of one type"),
        ("And", ("FLOAT", "FLOAT"), "its operand 'a' is float32, which it does not take"),
        ("Gather", ("FLOAT", "DOUBLE"), "its operand 'b' is float64, which it does not take"),
    ],
)
def test_operands_of_types_that_an_op_does_not_take_are_named(op: str, types: tuple[str, str], said: str) -> None:
    """It was TVM's "Binary operators must have the same datatype", a type of the result that nobody had written, or an
    error of the build that named a variable ``gv``."""
    a, b = (getattr(TensorProto, kind) for kind in types)
    attributes = {"axis": 0} if op == "Concat" else {}
    with pytest.raises(EqsatError) as refused:
        eqsat_layout.Session(model([helper.make_node(op, ["a", "b"], ["y"], "this", **attributes)], a, a=a, b=b))
    assert f"node 'this' ({op}): {said}" in str(refused.value)


def test_nodes_of_booleans_and_integers_keep_their_names() -> None:
    """What TVM can't build of them was "relax.logical_and of gv", and plans called them so."""
    nodes = [
        helper.make_node("Greater", ["a", "b"], ["c"], "larger"),
        helper.make_node("Not", ["c"], ["d"], "not"),
        helper.make_node("Cast", ["d"], ["y"], "number", to=TensorProto.FLOAT),
    ]
    read = from_proto(model(nodes, TensorProto.FLOAT, a=TensorProto.FLOAT, b=TensorProto.FLOAT))
    names = [binding.var.name for binding in read.module["main"].body.blocks[0].bindings]
    assert names[:3] == ["larger", "not", "number"]
