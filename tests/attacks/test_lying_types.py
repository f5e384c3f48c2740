"""JSON that claims other types of its values than they have: refused as it is read, whatever lies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from eqsat_layout.readers.modules import FileError, read_module, write_module
from eqsat_layout.readers.text.script import read_script


@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def kernel(a: T.Buffer((4, 8), "float32"), n: T.Buffer((4,), "int8"), b: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            with T.sblock("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = T.Select(vi * 2 < 5, T.exp(a[vi, vj]) + T.float32(0.5), T.Cast("float32", n[vi]))

    @R.function(private=True)
    def inner(x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
        return x

    @R.function
    def main(x: R.Tensor((4, 8), "float32"), n: R.Tensor((4,), "int8"), p: R.Tensor((), "bool")):
        cls = Module
        with R.dataflow():
            pair = (x, n)
            first = pair[0]
            y = R.call_tir(cls.kernel, (first, n), out_ty=R.Tensor((4, 8), "float32"))
            z = R.add(y, R.const(np.ones((4, 8), "float32")))
            s = R.reshape(R.sum(z), R.shape([1]))
            R.output(z, s)
        u = cls.inner(z)
        if p:  # noqa: SIM108
            v = R.add(u, u)
        else:
            v = R.multiply(u, z)
        return (v, s)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("honest") / "m.json"
    write_module(Module, path)
    assert read_module(path)
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def types(nodes: list[Any], kind: str) -> list[int]:
    return [number for number, node in enumerate(nodes) if node["type"] == kind]


LIARS = {
    "ir.Tuple": "relax.TensorType",
    "ir.TupleGetItem": "relax.TensorType",
    "ir.GenericConst": "relax.TensorType",
    "ir.Call": "relax.TensorType",
    "ir.Var": "relax.ShapeType",
    "relax.expr.DataflowVar": "relax.TensorType",
    "relax.expr.If": "relax.TensorType",
    "relax.expr.SeqExpr": "relax.TensorType",
    "relax.expr.ShapeExpr": "relax.ShapeType",
    "relax.expr.Function": "relax.FuncType",
    "tirx.PrimFunc": "relax.TensorType",
    "ir.GlobalVar": "relax.FuncType",
    "ir.IntImm": "ir.PrimType",
    "ir.FloatImm": "ir.PrimType",
    "ir.TensorLoad": "ir.PrimType",
    "prim.Mul": "ir.PrimType",
    "prim.LT": "ir.PrimType",
    "prim.Select": "ir.PrimType",
}


def lies(graph: dict[str, Any], kind: str) -> list[str]:
    """The graph once for every node of the kind and type of the lie's kind that stands before it."""
    nodes, found = graph["nodes"], []
    for number in types(nodes, kind):
        honest = nodes[number]["data"]["ty"]
        for lie in types(nodes[:number], LIARS[kind]):
            nodes[number]["data"]["ty"] = lie
            if lie != honest:
                found.append(json.dumps(graph))
        nodes[number]["data"]["ty"] = honest
    return found


@pytest.mark.parametrize("kind", list(LIARS))
def test_a_type_that_lies_is_refused_as_it_is_read(graph: dict[str, Any], tmp_path: Path, kind: str) -> None:
    """What is read in spite of another type says the same as before, or has a literal of another width."""
    refused, texts = 0, lies(graph, kind)
    for text in texts[:: 1 + len(texts) // 60]:
        (tmp_path / "m.json").write_text(text)
        try:
            module = read_module(tmp_path / "m.json")
        except FileError:
            refused += 1
            continue
        if kind not in ("ir.IntImm", "ir.GlobalVar"):  # a name that nobody uses may be of any type
            tvm.ir.assert_structural_equal(module, Module)
    assert refused


def test_a_result_type_that_can_not_be_is_refused_in_a_text(tmp_path: Path) -> None:
    text = '@R.function\ndef main(x: R.Tensor((4,), "float32")) -> R.Tensor((9,), "float32"):\n    return x\n'
    (tmp_path / "m.py").write_text(text)
    with pytest.raises(FileError, match=r"main: its result is said to be R.Tensor\(\(9,\)"):
        read_module(tmp_path / "m.py")


def test_what_has_no_type_is_refused(tmp_path: Path) -> None:
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    function = relax.Function([x], relax.SeqExpr([], x), x.ty).with_attr("global_symbol", "main")
    (tmp_path / "m.json").write_text(tvm.ir.save_json(tvm.IRModule({"main": function})))
    with pytest.raises(FileError, match=r"main: an expression has no type; save what relax.transform.Normalize\(\)"):
        read_module(tmp_path / "m.json")


def test_a_split_into_a_thousand_million_parts_is_refused(tmp_path: Path) -> None:
    """Its variable is said to have seven: TVM made a type for each part all the same, for hours."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((21, 5), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            part = builder.emit_output(builder.emit(relax.op.split(x, 7, axis=0))[0])
        builder.emit_func_output(part)
    path = tmp_path / "m.json"
    write_module(builder.get(), path)
    loaded = json.loads(path.read_text())
    (told,) = [node for node in loaded["nodes"] if node["type"] == "relax.attrs.SplitAttrs"]
    number = loaded["nodes"][told["data"]["indices_or_sections"]]
    loaded["nodes"][number["data"]["value"]]["data"] = 1_000_000_000
    path.write_text(json.dumps(loaded))
    with pytest.raises(FileError, match="has 1000000000 parts, more than 16384"):
        read_module(path)


EINSUM = """# from tvm.script import ir as I
# from tvm.script import relax as R
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2,), dtype="float32")) -> R.Tensor((2,), dtype="float32"):
        with R.dataflow():
            gv: R.Tensor((2,), dtype="float32") = R.einsum((x,), subscripts="i->i")
            R.output(gv)
        return gv
"""


@pytest.mark.parametrize("suffix", ["py", "json"])
def test_a_result_of_an_einsum_has_no_letters_of_its_own(tmp_path: Path, suffix: str) -> None:
    """TVM ended the process (SIGSEGV) when it made a type of ``i->z``."""
    path = tmp_path / f"m.{suffix}"
    text = tvm.ir.save_json(read_script(EINSUM)) if suffix == "json" else EINSUM
    assert "i->i" in text
    path.write_text(text)
    read_module(path)
    path.write_text(text.replace("i->i", "i->z"))
    with pytest.raises(FileError, match="no operand of the einsum 'i->z' has 'z'"):
        read_module(path)
