"""Constants of a library lie in its file: right in every dtype, for all who read them, and not copied into memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import eqsat_layout
from eqsat_layout.targets.mapped_constants import LEAST

MEASURED = """
import json, sys
import numpy as np, eqsat_layout

def anonymous():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon"))

session = eqsat_layout.Session(sys.argv[1])
given = {session.inputs[0].name: np.ones(session.inputs[0].shape, "float32")}
before = anonymous()
session.run(None, given)
print(json.dumps([before, anonymous()]))
"""
MEBIBYTE = 1024
"""In the unit of ``/proc``."""


def constants_of(*values: Any) -> tvm.IRModule:
    """``main`` gives its operand plus one, and constants."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        given = [value if isinstance(value, relax.Expr) else relax.const(value, str(value.dtype)) for value in values]
        y = builder.emit(relax.op.add(x, relax.const(np.float32(1))))
        builder.emit_func_output(relax.Tuple([y, *given]))
    return builder.get()


def opened(mod: tvm.IRModule, path: Path) -> eqsat_layout.Session:
    eqsat_layout.Session(mod).save(path)
    return eqsat_layout.Session(path)


ONES = {"x": np.ones(4, "float32")}


def test_a_weight_is_not_copied_into_memory(tmp_path: Path) -> None:
    weight = np.ones((2048, 8192), "float32")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 2048), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.matmul(x, relax.const(weight))))
    eqsat_layout.Session(builder.get()).save(tmp_path / "weight.so")
    paths = {"PYTHONPATH": str(Path(eqsat_layout.__file__).parents[1])}
    command = [sys.executable, "-c", MEASURED, str(tmp_path / "weight.so")]
    before, after = json.loads(subprocess.run(command, env=os.environ | paths, capture_output=True, check=True).stdout)
    assert before < 48 * MEBIBYTE, "opening the library copied 64 MiB of weights"
    assert after - before < 16 * MEBIBYTE, "running it did"


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint8", "int32", "int64", "bool"])
def test_constants_of_every_dtype_come_back(dtype: str, tmp_path: Path) -> None:
    values = np.arange(2 * LEAST).reshape(2, 1, -1).astype(dtype)
    found = opened(constants_of(values, np.zeros((0, 3), dtype), values[0, 0, :5]), tmp_path / "constants.so")
    for _ in range(3):  # results are taken as they are from the third run on
        y, large, empty, small = found.run(None, ONES)
        np.testing.assert_array_equal(y, np.full(4, 2, "float32"))
        np.testing.assert_array_equal(large, values)
        np.testing.assert_array_equal(small, values[0, 0, :5])
        assert (large.dtype, empty.shape) == (values.dtype, (0, 3))
        large[...] = 0  # a user's own
        del large


def test_two_libraries_have_constants_of_their_own(tmp_path: Path) -> None:
    sessions = [opened(constants_of(np.full(LEAST, i, "int32")), tmp_path / f"{i}.so") for i in range(2)]
    for _ in range(2):
        for i, session in enumerate(sessions):
            assert (session.run(None, ONES)[1] == i).all()


def test_a_constant_that_is_read_twice_is_in_the_file_once(tmp_path: Path) -> None:
    value = relax.const(np.arange(1 << 20, dtype="int32"))
    found = opened(constants_of(value, value), tmp_path / "twice.so")
    assert (tmp_path / "twice.so").stat().st_size < 6 << 20
    for result in found.run(None, ONES)[1:]:
        np.testing.assert_array_equal(result, np.arange(1 << 20, dtype="int32"))


def test_equal_constants_are_in_the_file_once(tmp_path: Path) -> None:
    """A recurrent network of 24 steps, written out, had 24 copies of its weights, read from beyond the L2 cache."""
    ones, twos = np.full(1 << 18, 1, "float32"), np.full(1 << 18, 2, "float32")
    almost = ones.copy()
    almost[-1] = np.nextafter(np.float32(1), np.float32(2))
    values = [ones, ones.copy(), twos, almost, ones.reshape(512, 512), ones.view("int32").copy()]
    session = opened(constants_of(*values), tmp_path / "equal.so")
    size = (tmp_path / "equal.so").stat().st_size
    assert size < 5.5 * ones.nbytes
    for value, result in zip(values, session.run(None, ONES)[1:], strict=True):
        assert result.dtype == value.dtype
        np.testing.assert_array_equal(result, value)


def test_tvm_runs_the_library_and_threads_ask_for_constants_at_once(tmp_path: Path) -> None:
    values = np.arange(LEAST, dtype="int32")
    eqsat_layout.Session(constants_of(values)).save(tmp_path / "plain.so")
    library = tvm.runtime.load_module(str(tmp_path / "plain.so"))
    machines = [relax.VirtualMachine(library, tvm.cpu()) for _ in range(8)]
    found: list[Any] = [None] * len(machines)
    start = threading.Barrier(len(machines))

    def run(number: int) -> None:
        start.wait()
        found[number] = machines[number]["main"](tvm.runtime.tensor(ONES["x"]))[1].numpy()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(machines))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in found:
        np.testing.assert_array_equal(result, values)


def test_the_folder_for_what_is_temporary_may_be_called_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / 'a "folder"\\ of mine'
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    found = opened(constants_of(np.arange(LEAST)), tmp_path / "constants.so")
    np.testing.assert_array_equal(found.run(None, ONES)[1], np.arange(LEAST))
