"""What a reader must look at lies where few look: keys that come twice, tensors in functions, names nearly known."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eqsat_layout.readers.modules import FileError, read_module
from eqsat_layout.tuning.remote import _place

VERSION = {"tvm_version": "0.27.0.post1"}
CALLS = '{"type": "ir.EnvFunc", "data": "runtime.SystemLib"}'
EMPTY = '{"type": "ffi.Map", "data": []}'


HONEST = f"[{EMPTY}, {EMPTY}]"
OTHER = f"[{CALLS}, {EMPTY}]"


@pytest.mark.parametrize(
    "nodes",
    [
        f'{OTHER}, "nodes": {HONEST}',
        f'{HONEST}, "nodes": {OTHER}',
        f'[{CALLS[:-1]}, "type": "ffi.String"}}, {EMPTY}]',
    ],
)
def test_of_a_key_that_comes_twice_tvm_reads_what_was_checked(tmp_path: Path, nodes: str) -> None:
    path = tmp_path / "m.json"
    path.write_text(f'{{"root_index": 1, "nodes": {nodes}, "metadata": {json.dumps(VERSION)}}}')
    with pytest.raises(FileError, match=r"holds a Map, not a Relax module|calls 'runtime.SystemLib'"):
        read_module(path)


@pytest.mark.parametrize(
    "kind", ["ir.EnvFunc\0", "ir.EnvFunc ", "\ud800", "ffi.Function", "ffi.OpaquePyObject", "", "x" * 10**6]
)
def test_types_that_a_module_has_no_part_of_are_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "m.json"
    nodes = [{"type": kind, "data": {}}, {"type": "ffi.Map", "data": []}]
    path.write_text(json.dumps({"root_index": 1, "nodes": nodes, "metadata": VERSION}))
    with pytest.raises(FileError, match="which is no part of a module"):
        read_module(path)


def stored(
    code: int = 2, bits: int = 32, shape: tuple[int, ...] = (4,), size: int = 16, axes: int | None = None
) -> str:
    head = struct.pack("<QQiiiBBH", 0xDD5E40F096B4A13F, 0, 1, 0, len(shape) if axes is None else axes, code, bits, 1)
    return base64.b64encode(head + struct.pack(f"<{len(shape)}qq", *shape, size) + b"\0" * 16).decode()


@pytest.mark.parametrize(
    "data",
    [
        stored(bits=0),
        stored(code=99, bits=7),
        stored(axes=-1),
        stored(axes=1 << 30),
        stored(shape=(-4,), size=-16),
        stored(shape=(1 << 62, 4)),
        stored(shape=(1 << 40,), size=1 << 42),
    ],
)
def test_tensors_that_can_not_be_are_refused(tmp_path: Path, data: str) -> None:
    path = tmp_path / "m.json"
    nodes = [
        {"type": "ffi.Tensor", "data": data},
        {"type": "ffi.String", "data": "k"},
        {"type": "ffi.Map", "data": [1, 0]},
    ]
    path.write_text(json.dumps({"root_index": 2, "nodes": nodes, "metadata": VERSION}))
    with pytest.raises(FileError, match=r"holds something else|Invalid DLTensor"):
        read_module(path)


@pytest.mark.parametrize(
    "place", [("127.0.0.1\0evil", 1), ("a\nb", 1), ("a" * 10**5, 1), ("h", 70000), ("h", 0), ("", 1)]
)
def test_what_a_tracker_lends_is_at_a_place(place: tuple[str, int]) -> None:
    with pytest.raises(ValueError, match="names no place"):
        _place(*place)


def in_a_function(onnx: Any, secret: Any) -> Any:
    constant = onnx.helper.make_node("Constant", [], ["c"], value=secret)
    add = onnx.helper.make_node("Add", ["a", "c"], ["b"])
    own = onnx.helper.make_function("me", "f", ["a"], ["b"], [constant, add], [onnx.helper.make_opsetid("", 18)])
    model = of_nodes(onnx, onnx.helper.make_node("f", ["x"], ["y"], domain="me"))
    model.functions.append(own)
    model.opset_import.append(onnx.helper.make_opsetid("me", 1))
    return model


def sparse(onnx: Any, secret: Any) -> Any:
    found = onnx.SparseTensorProto(dims=[2, 3])
    found.values.CopyFrom(secret)
    found.values.dims[:] = [6]
    found.indices.CopyFrom(onnx.helper.make_tensor("i", onnx.TensorProto.INT64, [6], list(range(6))))
    return found


def in_a_sparse_one(onnx: Any, secret: Any) -> Any:
    model = of_nodes(onnx, onnx.helper.make_node("Add", ["x", "w"], ["y"]))
    model.graph.sparse_initializer.append(sparse(onnx, secret))
    return model


def in_a_sparse_attribute(onnx: Any, secret: Any) -> Any:
    constant = onnx.helper.make_node("Constant", [], ["s"], sparse_value=sparse(onnx, secret))
    return of_nodes(onnx, constant, onnx.helper.make_node("Add", ["x", "s"], ["y"]))


def in_what_trains(onnx: Any, secret: Any) -> Any:
    model = of_nodes(onnx, onnx.helper.make_node("Relu", ["x"], ["y"]))
    model.training_info.add().algorithm.initializer.append(secret)
    return model


def of_nodes(onnx: Any, *nodes: Any) -> Any:
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 3]) for name in "xy")
    graph = onnx.helper.make_graph(list(nodes), "g", [x], [y])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])


@pytest.mark.parametrize("where", [in_a_function, in_a_sparse_one, in_a_sparse_attribute, in_what_trains])
def test_a_tensor_of_another_file_is_found_wherever_it_stands(tmp_path: Path, where: Callable[[Any, Any], Any]) -> None:
    onnx = pytest.importorskip("onnx")
    secret = onnx.TensorProto(name="w", data_type=1, dims=[2, 3], data_location=1)
    secret.external_data.add(key="location", value="../secret")
    (tmp_path / "secret").write_bytes(b"\0" * 24)
    (tmp_path / "model").mkdir()
    path = tmp_path / "model" / "m.onnx"
    path.write_bytes(where(onnx, secret).SerializeToString())
    with pytest.raises(FileError, match=r"'../secret', which is not beside the model"):
        read_module(path)
