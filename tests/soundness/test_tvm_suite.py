"""The harvest of TVM's tests, of which some end the process that runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.soundness.tvm_suite.harvest import harvest, lost_files, modules

MODULE = """
    @I.ir_module
    class {}:
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            return R.{}(x)
"""
BEGIN = """
import os
import tvm
from tvm.script import ir as I, relax as R

def test_begin():
"""
LEAVES = BEGIN + MODULE.format("Left", "abs") + "    tvm.get_global_func('vm.builtin.register_py_func')('f', print)\n"
DIES = BEGIN + MODULE.format("Met", "exp") + "    os.abort()\n\ndef test_end():\n" + MODULE.format("Unmet", "log")


@pytest.mark.parametrize(
    ("text", "said", "names"),
    [
        (LEAVES, [], ["test_x.py::test_begin Left"]),
        (
            DIES,
            [("test_x.py", "the process ended with SIGABRT, in test_begin or later")],
            ["test_x.py::test_begin Met", "test_x.py::test_end Unmet"],
        ),
    ],
    ids=["at its end", "midway"],
)
def test_a_test_file_that_ends_its_process_is_harvested(
    tmp_path: Path, text: str, said: list[tuple[str, str]], names: list[str]
) -> None:
    """TVM frees Python functions of its registry after Python has ended, which is SIGSEGV; what stands behind a test
    that dies was lost."""
    tests = tmp_path / "tests" / "python"
    tests.mkdir(parents=True)
    (tests / "test_x.py").write_text(text)
    harvest(tmp_path, tmp_path / "found", lambda _: None)
    assert lost_files(tmp_path / "found") == said
    assert sorted(name for module in modules(tmp_path / "found") for name in module.names) == names
