"""Modules from files and back: nothing is lost, nothing is run, every refusal names the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, tirx

from eqsat_layout.readers.modules import FileError, default_output, module_text, read_module, write_module
from eqsat_layout.readers.naming import with_names
from eqsat_layout.readers.text.script import read_script

HEAD = """\
import tvm
from tvm.script import (
    ir as I,
    relax as R,
)

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
"""


def network(rows: object = 2) -> tvm.IRModule:
    """One function with a big and a small constant, a layout transform and an attribute."""
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((rows, 8, 4, 4), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit(relax.op.add(x, relax.const(np.arange(8, dtype="float32").reshape(1, 8, 1, 1) / 7)))
            y = bb.emit(relax.op.multiply(y, relax.const(np.float32(0.1))))
            y = bb.emit(relax.op.nn.softmax(y, axis=1))
            result = bb.emit_output(relax.op.permute_dims(y, [0, 2, 3, 1]))
        bb.emit_func_output(result)
    mod = bb.get()
    mod["main"] = mod["main"].with_attr("eqsat_layout.frozen", {"relax.nn.conv2d": ["NCHW16c", "OIHW16i16o"]})
    return mod


def batch_dropped() -> tvm.IRModule:
    """Layout transforms whose index map holds constants, which TVM prints in a form that it can't read."""
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 8, 1), "float32"))
    zero = tirx.IntImm("int64", 0)
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit(relax.op.layout_transform(x, lambda n, c, h: (zero, c // 4, c % 4, zero), pad_value=0.0))
            result = bb.emit_output(relax.op.layout_transform(y, lambda n, c, k, h: (zero, (c * 4 + k), n)))
        bb.emit_func_output(result)
    return bb.get()


MODULES = {
    "constant_in_index_map": batch_dropped,
    "relax": network,
    "symbolic": lambda: network(tirx.Var("n", "int64")),
    "call_tir": lambda: relax.transform.LegalizeOps()(network()),
    "symbolic_call_tir": lambda: relax.transform.LegalizeOps()(network(tirx.Var("n", "int64"))),
}


def refusal(path: Path) -> str:
    """The message for a file that must be refused: one line that starts with the file's name."""
    with pytest.raises(FileError) as caught:
        read_module(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message[len(str(path)) :]


def refused_script(tmp_path: Path, text: str) -> str:
    path = tmp_path / "model.py"
    path.write_text(text)
    return refusal(path)


@pytest.mark.parametrize("suffix", [".py", ".json"])
@pytest.mark.parametrize("name", list(MODULES))
def test_what_is_written_reads_back_equal(tmp_path: Path, name: str, suffix: str) -> None:
    mod = MODULES[name]()
    write_module(mod, tmp_path / f"m{suffix}")
    assert tvm_ffi.structural_equal(read_module(tmp_path / f"m{suffix}"), mod)
    if suffix == ".py":
        assert tvm_ffi.structural_equal(tvm.script.from_source((tmp_path / "m.py").read_text()), mod)


def test_text_may_have_imports_and_a_docstring(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text('"""My model."""\n' + HEAD + "        return R.add(x, x)\n")
    assert [var.name_hint for var in read_module(path).get_global_vars()] == ["main"]


def test_a_lone_function_becomes_a_module(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text("@R.function\ndef main(x: R.Tensor((2,), 'float32')):\n    return x\n")
    assert isinstance(read_module(path), tvm.IRModule)


def test_contents_tell_the_format_where_the_name_does_not(tmp_path: Path) -> None:
    mod = network()
    for suffix in (".py", ".json"):
        write_module(mod, tmp_path / f"m{suffix}")
        unnamed = (tmp_path / f"m{suffix}").rename(tmp_path / f"unnamed{suffix[1:]}")
        assert tvm_ffi.structural_equal(read_module(unnamed), mod)


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('pathlib').Path(CANARY).touch()",
        "open(CANARY, 'w')",
        "eval('open(CANARY, chr(119))')",
        "(lambda eval: eval)(open)(CANARY, 'w')",
        "[c for c in ().__class__.__base__.__subclasses__()]",
        "x.__class__.__init__.__globals__['__builtins__']['open'](CANARY, 'w')",
        "R.ir.tvm.get_global_func('runtime.whatever')",
        "R.parser.importlib.import_module('os')",
        "R.nn._ffi_api.conv2d",
        "R.emit_te(open, CANARY)",
        "tvm.get_global_func('runtime.whatever')",
        "getattr(R, 'ir')",
        "f'{open(CANARY)}'",
        "R.reshape(x, R.shape([\"__import__('pathlib').Path(CANARY).touch()\"]))",
    ],
)
def test_a_text_cannot_run_code(tmp_path: Path, expression: str) -> None:
    canary = tmp_path / "canary"
    message = refused_script(
        tmp_path, HEAD + "        return " + expression.replace("CANARY", repr(str(canary))) + "\n"
    )
    assert message.startswith(":11:")
    assert not canary.exists()


def test_a_quoted_extent_cannot_run_code(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    extent = f"__import__('pathlib').Path({str(canary)!r}).touch()"
    message = refused_script(tmp_path, HEAD.replace("(2, 3)", f'(2, "{extent}")') + "        return x\n")
    assert message.startswith(":10:30: uses the attribute 'touch'")
    assert not canary.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import os\n" + HEAD + "        return x\n", ":1:1: imports 'os'"),
        (HEAD + "        return x\nprint(1)\n", ":12:1: only TVMScript classes"),
        ("def main(x):\n    return x\n", ":1:1: function 'main' is not TVMScript: it has no decorator"),
        ("x = 1\n", ":1:1: only TVMScript"),
        (HEAD + "        return R.add(x\n", ":11: not Python: '(' was never closed"),
        (HEAD + "        return R.no_such_op(x)\n", ":11:16: uses R.no_such_op, which is no word of TVMScript"),
        (HEAD + "        return R.add(x, R.const([1, 2], 'float32'))\n", ":11:9: In relax.add, the first input shape"),
        (HEAD + "        return R.add(x, metadata['ir.GenericConst'][0])\n", ":1:1: was written without its constants"),
    ],
)
def test_a_bad_text_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    assert refused_script(tmp_path, text).startswith(message)


@pytest.mark.parametrize(
    ("name", "contents", "message"),
    [
        ("m.json", b"{", "not JSON as tvm.ir.save_json writes it"),
        ("m.json", b'{"root_index": 3, "nodes": []}', "invalid node index 3"),
        ("m.json", b'{"root_index": 0, "nodes": [{"type": "int", "data": 3}]}', "holds a int, not a Relax module"),
        ("m.py", b"", "the file is empty"),
        ("m.bin", b"\x00\x01", "not a format that is known here"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, name: str, contents: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(contents)
    assert message in refusal(tmp_path / name)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "nowhere.py") == ": No such file or directory"


@pytest.mark.parametrize(("name", "package"), [("m.onnx", "onnx"), ("m.pt2", "torch")])
def test_a_missing_package_is_named(tmp_path: Path, name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, package, None)  # what import finds where it is not installed
    (tmp_path / name).write_bytes(b"\x08\x07")
    assert refusal(tmp_path / name).endswith(f"needs the package {package!r}: pip install {package}")


def test_an_unknown_output_format_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="can write"):
        write_module(network(), tmp_path / "m.onnx")
    with pytest.raises(FileError, match="no folder"):
        write_module(network(), tmp_path / "none" / "m.py")
    assert list(tmp_path.iterdir()) == []


def test_a_text_that_would_lose_something_is_not_written(tmp_path: Path) -> None:
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    with bb.function("not a name", [x]):
        bb.emit_func_output(x)
    target = tmp_path / "m.py"
    target.write_text("old")
    with pytest.raises(FileError, match=r"write \.json"):
        write_module(bb.get(), target)
    assert target.read_text() == "old"
    write_module(bb.get(), tmp_path / "m.json")
    assert tvm_ffi.structural_equal(read_module(tmp_path / "m.json"), bb.get())


def test_the_output_goes_beside_the_input() -> None:
    assert default_output("a/net.py") == Path("a/net.optimized.py")
    assert default_output("a/net.json") == Path("a/net.optimized.json")
    assert default_output("a/net.onnx") == Path("a/net.optimized.json")


def test_onnx_is_read(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    tensor = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph([node], "g", [tensor("x", kind, [2, 3])], [tensor("y", kind, [2, 3])])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "m.onnx")
    assert "R.nn.relu" in read_module(tmp_path / "m.onnx").script()


def test_a_torch_export_archive_is_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    example = torch.ones(2, 3)
    torch._dynamo.mark_dynamic(example, 0)  # torch pickles tensors with attributes of their own in another way
    program = torch.export.export(torch.nn.ReLU(), (example,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    torch.export.save(program, tmp_path / "m.pt2")
    assert "R.nn.relu" in read_module(tmp_path / "m.pt2").script()


@pytest.mark.parametrize("name", ["0", "2a", "if", "metadata", "float", "é"])
def test_a_name_that_is_no_word_of_python_is_written_as_another_one(name: str) -> None:
    """A layer of ``torch.nn.Sequential`` is called ``0``; a module with one was refused as Relax text."""
    size = tirx.Var(name, "int64")
    x = relax.Var(name, relax.TensorType((size, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.relu(x))
            result = builder.emit_output(relax.op.add(y, y))
        builder.emit_func_output(result)
    module = with_names(builder.get(), {y: name})
    assert tvm_ffi.structural_equal(read_script(module_text(module)), module)
