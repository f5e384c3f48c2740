"""A model's file that was compiled before is opened as a library, and only then."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from session.functions import Affine, expected, feed

import eqsat_layout
from eqsat_layout.readers.modules import write_module
from eqsat_layout.session.known_file import KnownFile

ROOT = Path(eqsat_layout.__file__).parents[1]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file, and a cache in which nothing is."""
    monkeypatch.setenv("EQSAT_LAYOUT_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "affine.json"
    write_module(Affine, path)
    return path


def session(path: Path, **options: Any) -> eqsat_layout.Session:
    """When it is written to disk."""
    made = eqsat_layout.Session(path, **options)
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    return made


def is_kept(path: Path, **options: Any) -> bool:
    return eqsat_layout.Session(path, **options)._file is not None


def test_it_is_opened_without_tvm_s_compiler(model: Path) -> None:
    """Reading it, and all that planning imports, took 3 s."""
    session(model)
    code = f"""
import sys, numpy as np, eqsat_layout
made = eqsat_layout.Session({str(model)!r})
made.run(None, {{s.name: np.ones([2 if e == "n" else e for e in s.shape], s.dtype) for s in made.inputs}})
print([name for name in ("egglog", "highspy", "onnx", "tvm") if name in sys.modules])
"""
    paths = {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | paths, capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


def test_it_does_and_says_the_same(model: Path, tmp_path: Path) -> None:
    said: list[list[str]] = [[], []]
    first, again = (session(model, notes=notes) for notes in said)
    assert (first._file, again._file is None) == (None, False)
    assert said[0] == said[1]
    assert (first.inputs, first.outputs) == (again.inputs, again.outputs)
    for one, other in zip(again.run(None, feed()), expected(feed()), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    assert again.plan.cost == first.plan.cost
    again.save(tmp_path / "again.so")
    assert eqsat_layout.Session(tmp_path / "again.so").inputs == first.inputs


def test_whatever_is_asked_otherwise_is_compiled_anew(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session(model, shapes={"x": (5, 4)})
    assert is_kept(model, shapes={"x": (5, 4)}, approx=True)
    assert not is_kept(model, shapes={"x": (6, 4)})
    assert not is_kept(model, shapes={"x": (5, 4)}, approx=False)
    assert not is_kept(model, shapes={"x": (5, 4)}, target={"kind": "llvm", "num-cores": 1})
    monkeypatch.setenv("TVM_NUM_THREADS", "3")
    assert not is_kept(model, shapes={"x": (5, 4)})


def test_a_file_is_known_by_what_it_holds(model: Path, tmp_path: Path) -> None:
    session(model)
    copy = tmp_path / "copy.json"
    copy.write_bytes(model.read_bytes())
    assert is_kept(copy)
    copy.write_bytes(model.read_bytes() + b"\n")
    assert not is_kept(copy)


def test_weights_beside_an_onnx_file_count(model: Path, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="the extra onnx has it")
    weight = onnx.numpy_helper.from_array(np.ones((64, 64), "float32"), "w")
    tensors = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (1, 64)) for name in "xy"]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "product", tensors[:1], tensors[1:], [weight]
    )
    made, path = onnx.helper.make_model(graph), tmp_path / "product.onnx"
    onnx.save(made, path, save_as_external_data=True, location="product.bin", size_threshold=0)
    session(path)
    assert is_kept(path)
    beside = tmp_path / "product.bin"
    beside.write_bytes(np.full((64, 64), 2, "float32").tobytes())
    again = session(path)
    assert again._file is None
    np.testing.assert_array_equal(again.run(None, {"x": np.ones((1, 64), "float32")})[0], np.full((1, 64), 128))


def test_a_library_that_was_damaged_on_disk_is_made_again(model: Path) -> None:
    session(model)
    kept = eqsat_layout.Session(model)._file
    assert kept is not None
    data = bytearray(kept.read_bytes())
    data[len(data) // 2] ^= 1
    kept.unlink()  # the one that this process runs stays as it is
    kept.write_bytes(data)
    assert not is_kept(model)


def test_a_library_that_can_t_be_opened_is_made_again(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a disk that is mounted without leave to run programs the system opens none."""
    session(model)

    def refused(path: str) -> Any:
        raise OSError(f"{path}: failed to map segment from shared object")

    with monkeypatch.context() as patched:
        patched.setattr("eqsat_layout.session.runtime.opened_library", refused)
        again = eqsat_layout.Session(model)
    assert again._file is None
    np.testing.assert_allclose(again.run(None, feed())[0], expected(feed())[0], rtol=1e-5, atol=1e-5)


def test_what_does_not_run_here_is_not_kept(model: Path) -> None:
    other = {"kind": "llvm", "mtriple": "aarch64-linux-gnu"}
    session(model, target=other)
    assert not is_kept(model, target=other)


def test_rules_count_by_what_they_say(model: Path, tmp_path: Path) -> None:
    rules = tmp_path / "own.egg"
    rules.write_text("(ruleset own)\n")
    session(model, rules=[rules])
    assert is_kept(model, rules=[rules])
    rules.write_text("(ruleset own2)\n")
    assert not is_kept(model, rules=[rules])


def test_a_file_that_changes_while_it_is_compiled_is_not_known(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was made of the weights before was kept as if it were of those after."""
    began = KnownFile.of(model, None, {})
    assert began is not None
    assert began.opened() is None
    os.utime(model)
    began.keep(eqsat_layout.compile(Affine), [])
    assert not is_kept(model)


def test_a_device_in_the_place_of_weights_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no end."""
    monkeypatch.setenv("EQSAT_LAYOUT_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "m.onnx"
    path.write_bytes(b"model")
    known = KnownFile.of(path, None, {})
    assert known is not None
    known.store.put(known._beside, [b'["w.bin"]'])
    (tmp_path / "w.bin").write_bytes(b"weights")
    assert known._key()
    (tmp_path / "w.bin").unlink()
    (tmp_path / "w.bin").symlink_to("/dev/zero")
    assert known._key() is None
