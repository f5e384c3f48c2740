"""Archives, files elsewhere, trackers and databases: what they hold is looked at before anything follows it."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest

from eqsat_layout.readers.modules import FileError, read_module
from eqsat_layout.readers.onnx.external_data import UnsafeLocationError, check_location, check_locations
from eqsat_layout.readers.torch.archives import UnsafeArchiveError, checked_archive
from eqsat_layout.readers.torch.sizes import UnsafeSizeError, check_size_text


class Opener:
    """Runs code when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.canary),)


def zipped(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return data.getvalue()


def inputs(pickled: bytes) -> bytes:
    return zipped({"inputs/data.pkl": pickled, "inputs/version": b"3"})


def program(**changed: Any) -> dict[str, bytes]:
    """The members of an archive as torch.export writes one, with some changed."""
    config = json.dumps({"config": {"w": {"path_name": "weight_0", "use_pickle": False}}}).encode()
    node = {"target": "torch.ops.aten.relu.default", "inputs": [], "metadata": {}}
    size = {"as_expr": {"expr_str": "2*s0 + Max(1, s1)", "hint": None}}
    weight = {"parameter_name": "layers.0.a-b c/d.weight"}
    leaf = {"type": None, "context": None, "children_spec": []}
    results = json.dumps([1, {"type": "builtins.dict", "context": '["a", "b"]', "children_spec": [leaf, leaf]}])
    graph = {
        "graph_module": {"graph": {"nodes": [node], "sym_int_values": {"s": size}}},
        "range_constraints": {"s0": {}},
        "signature": {"parameter": weight, "in_spec": named_arguments("x"), "out_spec": results},
    }
    members = {
        "m/archive_format": b"pt2",
        "m/archive_version": b"0",
        "m/.data/serialization_id": b"1",
        "m/models/model.json": json.dumps(graph).encode(),
        "m/data/weights/model_weights_config.json": config,
        "m/data/weights/weight_0": b"\0" * 16,
        "m/data/constants/model_constants_config.json": b'{"config": {}}',
        "m/data/sample_inputs/model.pt": inputs(pickle.dumps(((1.0,), {}), protocol=2)),
    }
    return members | {f"m/{name}": content for name, content in changed.items()}


def graph_with(**node: Any) -> bytes:
    return json.dumps({"nodes": [{"target": "torch.ops.aten.relu.default", **node}]}).encode()


def computed(*operations: Any, first: Any = None) -> bytes:
    """Nodes that compute a size: one of two operands, or one after the other with what comes before twice."""
    if first is None:
        name, *operands = operations
        rows = [(name, [{"as_string" if isinstance(o, str) else "as_int": o} for o in operands], "s")]
    else:
        names = [first, *(f"s{i}" for i in range(len(operations)))]
        rows = [(o, [{"as_sym_int": {"as_name": names[i]}}] * 2, names[i + 1]) for i, o in enumerate(operations)]
    nodes = [
        {
            "target": f"_operator.{o}",
            "inputs": [{"arg": a} for a in inputs],
            "outputs": [{"as_sym_int": {"as_name": r}}],
        }
        for o, inputs, r in rows
    ]
    return json.dumps({"nodes": nodes}).encode()


IS_CODE = "is no name, and torch writes it into code"


def code_in_a_name(canary: Path) -> str:
    return f"x=__import__('os').mkdir({str(canary)!r})"


def named_arguments(*names: str) -> str:
    kinds = [{"type": "builtins.tuple"}, {"type": "builtins.dict", "context": json.dumps(names)}]
    return json.dumps([1, {"type": "builtins.tuple", "children_spec": kinds}])


def results_of(key: str, space: str | None = None) -> str:
    """A tree with an object that holds ``key``; as text in a text behind a ``space``."""
    holder = f'[{{"{key}": "antigravity:x"}}]'
    context = holder if space is None else json.dumps(space + json.dumps(space + holder))
    return f'[1, {{"type": "builtins.dict", "context": {context}, "children_spec": []}}]'


def test_an_honest_archive_is_copied_whole_but_for_its_pickles(tmp_path: Path) -> None:
    (tmp_path / "m.pt2").write_bytes(zipped(program()))
    checked_archive(tmp_path / "m.pt2", tmp_path / "copy.pt2")
    with zipfile.ZipFile(tmp_path / "copy.pt2") as copy:
        found = {name: copy.read(name) for name in copy.namelist()}
    assert found == program(**{"data/sample_inputs/model.pt": b""})


def test_guards_which_are_python_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "m.pt2").write_bytes(zipped(program(**{"models/model.json": b'{"guards_code": ["exit()"]}'})))
    checked_archive(tmp_path / "m.pt2", tmp_path / "copy.pt2")
    with zipfile.ZipFile(tmp_path / "copy.pt2") as copy:
        assert json.loads(copy.read("m/models/model.json")) == {"guards_code": []}


ARCHIVES = {
    "no export": (lambda c: {"m/data.pkl": pickle.dumps(Opener(c))}, "pickled models"),
    "machine code": (lambda c: program(**{"data/aotinductor/model/code.so": b"\x7fELF"}), "no part of an exported"),
    "a custom object": (lambda c: program(**{"data/constants/custom_obj_0": b"PK"}), "no part of an exported"),
    "an opaque object": (lambda c: program(**{"data/constants/opaque_obj_0": pickle.dumps(Opener(c))}), "no part of"),
    "weights of former times": (lambda c: program(**{"data/weights/model.pt": pickle.dumps(Opener(c))}), "no part of"),
    "a pickled weight": (
        lambda c: program(**{"data/weights/model_weights_config.json": b'{"config": {"w": {"use_pickle": true}}}'}),
        "is a pickled object",
    ),
    "inputs that run code": (
        lambda c: program(
            **{"data/sample_inputs/model.pt": zipped({"i/data.pkl": pickle.dumps(Opener(c), protocol=2)})}
        ),
        "holds more than tensors",
    ),
    "inputs that run code, in the newest form": (
        lambda c: program(
            **{"data/sample_inputs/model.pt": zipped({"i/data.pkl": pickle.dumps(Opener(c), protocol=5)})}
        ),
        "holds more than tensors",
    ),
    "inputs of former times": (
        lambda c: program(**{"data/sample_inputs/model.pt": pickle.dumps(Opener(c))}),
        "not tensors as torch.save writes",
    ),
    "two pickles": (
        lambda c: program(**{"data/sample_inputs/model.pt": zipped({"i/data.pkl": b".", "j/data.pkl": b"."})}),
        "not as torch.save writes it",
    ),
    "inputs that are packed": (
        lambda c: program(
            **{"data/sample_inputs/model.pt": zipped({"i/data.pkl": b"N" * 100_000}, zipfile.ZIP_DEFLATED)}
        ),
        "not as torch.save writes it",
    ),
    "a function of Python": (
        lambda c: program(**{"models/model.json": graph_with(target="torch.serialization.os.system")}),
        "is no operator",
    ),
    "a library": (
        lambda c: program(**{"models/model.json": graph_with(target="torch.ops.load_library")}),
        "is no operator",
    ),
    "an operator's insides": (
        lambda c: program(**{"models/model.json": graph_with(target="torch.ops.__class__.x")}),
        "is no operator",
    ),
    "a function for an argument": (
        lambda c: program(
            **{"models/model.json": graph_with(inputs=[{"as_operator": "torch.serialization.os.system"}])}
        ),
        "is no operator",
    ),
    # torch writes names into the text of a function, and runs that
    "an operand that is code": (
        lambda c: program(**{"models/model.json": graph_with(name=code_in_a_name(c))}),
        IS_CODE,
    ),
    "a value that is code": (
        lambda c: program(**{"models/model.json": graph_with(tensor_values={code_in_a_name(c): {}})}),
        IS_CODE,
    ),
    "a size that is code": (lambda c: program(**{"models/model.json": graph_with(as_name=code_in_a_name(c))}), IS_CODE),
    "an argument that is code": (
        lambda c: program(**{"models/model.json": graph_with(forward_arg_names=["x", code_in_a_name(c)])}),
        IS_CODE,
    ),
    "an argument by name that is code": (
        lambda c: program(**{"models/model.json": graph_with(in_spec=named_arguments(code_in_a_name(c)))}),
        IS_CODE,
    ),
    "arguments without a form": (
        lambda c: program(**{"models/model.json": graph_with(in_spec="[1, 2]")}),
        "arguments are not described",
    ),
    "a size that calls": (
        lambda c: program(**{"models/model.json": graph_with(expr_str="__import__('os').mkdir('x')")}),
        "is no size",
    ),
    "a module to import": (
        lambda c: program(**{"models/model.json": graph_with(spec='{"default_factory_module": "antigravity"}')}),
        "names a Python module",
    ),
    "a module to import, in other letters": (
        lambda c: program(**{"models/model.json": graph_with(out_spec=results_of("default_factor\\u0079_module"))}),
        "names a Python module",
    ),
    "a module of an enumeration": (
        lambda c: program(**{"models/model.json": graph_with(out_spec=results_of('__enum__": 1, "fqn'))}),
        "names a Python module",
    ),
    "a module of an enumeration, in a text in a text": (
        lambda c: program(**{"models/model.json": graph_with(out_spec=results_of("__enum__", " "))}),
        "names a Python module",
    ),
    "a power without end": (lambda c: program(**{"models/model.json": computed("pow", 10, 10**8)}), "no small number"),
    "a text many times": (lambda c: program(**{"models/model.json": computed("mul", "a", 10**8)}), "is no size"),
    "products of products": (
        lambda c: program(**{"models/model.json": computed(*["mul"] * 8, first="s")}),
        "binary digits",
    ),
    # a carriage return ends a line of Python, and begins none that torch would indent
    "a weight that is code": (
        lambda c: program(**{"models/model.json": graph_with(parameter_name=f'w")\ropen({str(c)!r},"w")\rif 1:#')}),
        IS_CODE,
    ),
    "a module that is code": (lambda c: program(**{"models/model.json": graph_with(fqn='w")\nexit()#')}), IS_CODE),
    "no JSON": (lambda c: program(**{"models/model.json": b"["}), "not JSON"),
    "no folder": (lambda c: {"archive_format": b"pt2", "n/x": b""}, "no folder that holds everything"),
    "out of its folder": (lambda c: program(**{"../../x": b""}), "not as torch.export.save writes it"),
    "names that differ in case": (lambda c: program(**{"MODELS/model.json": b"{}"}), "two members of one name"),
}


@pytest.mark.parametrize("name", list(ARCHIVES))
def test_an_archive_that_runs_code_is_refused(tmp_path: Path, name: str) -> None:
    make, says = ARCHIVES[name]
    canary = tmp_path / "canary"
    (tmp_path / "m.pt2").write_bytes(zipped(make(canary)))
    with pytest.raises((UnsafeArchiveError, UnsafeSizeError), match=says):
        checked_archive(tmp_path / "m.pt2", tmp_path / "copy.pt2")
    assert not canary.exists()


def test_a_pickle_of_many_steps_is_looked_through_one_by_one(tmp_path: Path) -> None:
    """All steps were listed first: 60 MB of them took 6 GB."""
    steps = inputs(b"N" * 30_000 + b".")
    (tmp_path / "m.pt2").write_bytes(zipped(program(**{"data/sample_inputs/model.pt": steps})))
    tracemalloc.start()
    try:
        checked_archive(tmp_path / "m.pt2", tmp_path / "copy.pt2")
        assert tracemalloc.get_traced_memory()[1] < 40 * len(steps)
    finally:
        tracemalloc.stop()


def test_a_packed_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.pt2").write_bytes(zipped(program(), zipfile.ZIP_DEFLATED))
    with pytest.raises(UnsafeArchiveError, match="not as torch"):
        checked_archive(tmp_path / "m.pt2", tmp_path / "copy.pt2")


@pytest.mark.parametrize("name", ["m.pt", "m.pth", "m.py", "m.json", "m.onnx", "m", "m.zip", "m.pkl"])
@pytest.mark.parametrize("how", ["archive", "pickle"])
def test_pickles_are_refused_whatever_they_are_called(tmp_path: Path, name: str, how: str) -> None:
    canary, pickled = tmp_path / "canary", pickle.dumps(Opener(tmp_path / "canary"), protocol=2)
    (tmp_path / name).write_bytes(zipped({"m/data.pkl": pickled}) if how == "archive" else pickled)
    with pytest.raises(FileError, match="a pickled model runs code when it is opened and is not read"):
        read_module(tmp_path / name)
    assert not canary.exists()


@pytest.mark.parametrize(
    "location", ["/etc/passwd", "../weights", "a/../../weights", "C:\\weights", "..\\weights", "", "link/x", "a\0b"]
)
def test_tensors_lie_beside_their_model(tmp_path: Path, location: str) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "link").symlink_to(tmp_path)
    with pytest.raises(UnsafeLocationError, match="not beside the model"):
        check_location(location, tmp_path / "model")
    check_location("weights.bin", tmp_path / "model")
    check_location("parts/weights.bin", tmp_path / "model")


@pytest.mark.parametrize("said", [{}, {"offset": "16"}, {"offset": "0", "length": str(1 << 40)}])
def test_a_tensor_is_no_larger_than_its_elements(tmp_path: Path, said: dict[str, str]) -> None:
    """A file with holes takes no place on disk, and all of it was read."""
    onnx = pytest.importorskip("onnx")
    with (tmp_path / "w").open("wb") as file:
        file.truncate(1 << 40)
    tensor = onnx.TensorProto(name="w", dims=[4], data_type=1, data_location=1)
    for key, value in {"location": "w", **said}.items():
        tensor.external_data.add(key=key, value=value)
    model = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [tensor]))
    with pytest.raises(UnsafeLocationError, match=r"'w' is said to be \d+ bytes of 'w'"):
        check_locations(model, tmp_path)
    del tensor.external_data[:]
    for key, value in {"location": "w", "offset": "0", "length": "16"}.items():
        tensor.external_data.add(key=key, value=value)
    check_locations(onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [tensor])), tmp_path)


@pytest.mark.parametrize("key", ["offset", "length"])
@pytest.mark.parametrize("text", [" 1099511627776", "-1", "+16", "1_099_511_627_776", "\uff11\uff16", "", "9" * 30])
def test_a_number_of_bytes_is_digits(tmp_path: Path, key: str, text: str) -> None:
    """What :func:`int` reads and a check of digits does not was taken for 0, and then read: all of a terabyte."""
    onnx = pytest.importorskip("onnx")
    (tmp_path / "w").write_bytes(bytes(16))
    tensor = onnx.TensorProto(name="w", dims=[4], data_type=1, data_location=1)
    for name, value in {"location": "w", key: text}.items():
        tensor.external_data.add(key=name, value=value)
    model = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [tensor]))
    with pytest.raises(UnsafeLocationError, match=f"the {key} of its tensor 'w' is said to be"):
        check_locations(model, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "open('x')",
        "s0.__class__",
        "S('x')",
        "10**10**10",
        "(lambda: 1)()",
        "[s0]",
        "__import__",
        "a if b else c",
        "9" * 30,
        "Pow(3, 99999999)",
        "Pow(3, Pow(9, 9))",
        "Lambda(s0, s0)",
        "Poly(s0)",
    ],
)
def test_a_size_is_arithmetic(text: str) -> None:
    with pytest.raises(UnsafeSizeError):
        check_size_text(text, "here")
    symbol = "Symbol('s77', positive=True, integer=True)"  # as torch 2.13 writes them
    for size in (
        "s0",
        "2*s0 + 1",
        "FloorDiv(s0, 2)",
        "s77**2 - 1",
        "Pow(s0, Integer(2))",
        "Eq(s0, 1)",
        symbol,
        f"Mul(Integer(2), {symbol})",
    ):
        check_size_text(size, "here")


def test_what_torch_misses_in_an_archive_is_in_the_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    whole, part = tmp_path / "whole.pt2", tmp_path / "part.pt2"
    torch.export.save(torch.export.export(torch.nn.Linear(3, 2), (torch.ones(1, 3),)), whole)
    with zipfile.ZipFile(whole) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    lost = next(name for name in members if name.endswith("archive_version"))
    part.write_bytes(zipped({name: data for name, data in members.items() if name != lost}))
    with pytest.raises(FileError, match="archive_version: file not found"):
        read_module(part)
    assert "Traceback" not in capfd.readouterr().err


def test_members_that_lie_in_one_another_are_refused(tmp_path: Path) -> None:
    """A copy of all was made: of 16 MiB with 400 of them, 6 GiB on the disk."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for name, content in program().items():
            archive.writestr(name, content)
        start = archive.start_dir
    data, told = b"\0" * 5000, []
    for number in range(20, 0, -1):  # each is the content of the next one
        name, sum_ = f"m/data/weights/weight_{number}".encode(), zlib.crc32(data)
        told.append((name, sum_, len(data)))
        data = (
            struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 0, 0, 33, sum_, len(data), len(data), len(name), 0) + name + data
        )
    honest = whole.getvalue()
    listed = honest[start : honest.rindex(b"PK\5\6")]
    place = start
    for name, sum_, size in reversed(told):
        numbers = (20, 3, 20, 0, 0, 0, 0, 33, sum_, size, size, len(name), 0, 0, 0, 0, 0, place)
        listed += struct.pack("<4s4B4H3I5H2I", b"PK\1\2", *numbers) + name
        place += 30 + len(name)
    count = len(program()) + len(told)
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, len(listed), start + len(data), 0)
    path = tmp_path / "m.pt2"
    path.write_bytes(honest[:start] + data + listed + end)
    with pytest.raises(UnsafeArchiveError, match="they lie in one another"):
        checked_archive(path, tmp_path / "copy.pt2")
