"""The harvest of TVM's tests, of which some end the process that runs them; and what is said of what is left out."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import tvm
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R

from bench.soundness.tvm_suite.attempt import outcome_of
from bench.soundness.tvm_suite.bounded import Bounded, LateError
from bench.soundness.tvm_suite.calls import program_of
from bench.soundness.tvm_suite.harvest import Module, files_without_modules, harvest, left_out, lost_files, modules
from bench.soundness.tvm_suite.record import Outcome, table_of, unrun, wrong

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
FUNCTION = """
    @R.function
    def alone(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        return R.sin(x)
"""
CALL = """
    from tvm import relax
    from tvm.ir import VDevice
    assert isinstance(VDevice, type)  # where this version has it elsewhere
    relax.BlockBuilder().normalize(relax.op.cos(relax.Var("x", relax.TensorType([2], "float32"))))
"""
LEAVES = BEGIN + MODULE.format("Left", "abs") + "    tvm.get_global_func('vm.builtin.register_py_func')('f', print)\n"
DIES = BEGIN + MODULE.format("Met", "exp") + "    os.abort()\n\ndef test_end():\n" + MODULE.format("Unmet", "log")


@pytest.mark.parametrize(
    ("text", "said", "names"),
    [
        (LEAVES, [], ["test_x.py::test_begin Left"]),
        (BEGIN + FUNCTION + CALL, [], ["test_x.py::test_begin alone", "test_x.py::test_begin call"]),
        (
            DIES,
            [("test_x.py", "the process ended with SIGABRT, in test_begin or later")],
            ["test_x.py::test_begin Met", "test_x.py::test_end Unmet"],
        ),
    ],
    ids=["at its end", "a function and a call", "midway"],
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


LEAVES_OUT = (
    BEGIN
    + MODULE.format("Ill", "no_such")
    + """
@pytest.mark.skip("needs a card")
def test_skipped():
    pass
"""
).replace("import os", "import os, pytest")
LACKS = "import no_such_package" + (BEGIN + FUNCTION).replace("import ir as I", "import no_such_name, ir as I")


def test_what_is_left_out_of_the_harvest_is_said(tmp_path: Path) -> None:
    """Modules that are too large or can't be parsed, tests that are skipped, and files that can't be imported were left
    out in silence."""
    tests = tmp_path / "tests" / "python"
    tests.mkdir(parents=True)
    (tests / "test_lacks.py").write_text(LACKS)
    (tests / "test_leaves.py").write_text(LEAVES_OUT)
    harvest(tmp_path, tmp_path / "found", lambda _: None)
    assert lost_files(tmp_path / "found") == []
    found = {what[0]: why for why, what in left_out(tmp_path / "found")}
    assert found == {
        "test_lacks.py": "its tests can't be collected: ModuleNotFoundError: No module named 'no_such_package'",
        "test_leaves.py::test_begin Ill": "it can't be parsed: module 'tvm.relax.script' has no attribute 'no_such'",
        "test_leaves.py::test_skipped": "needs a card",
    }
    assert files_without_modules(tmp_path / "found") == ["test_leaves.py"]
    assert [module.name for module in modules(tmp_path / "found")] == ["test_lacks.py::test_begin alone"]


def test_each_module_of_the_record_is_counted_with_its_reason() -> None:
    """``not run`` was a number without reasons, and what stock TVM runs and ours refuses was no fault."""
    outcomes = [
        Outcome("a", "", "stock", "not run", "main: stock TVM can't run it: no function 'f'"),
        Outcome("b", "", "stock", "not run", "f: stock TVM can't run it: an assertion; g: the same"),
        Outcome("c", "", "stock", "not run", "g: nothing is known of the values of its parameter 'x': R.Any"),
        Outcome("d", "", "stock", "equal", "g: stock TVM can't run it: Always fails"),
        Outcome("d", "", "compile", "refused alone", ""),
    ]
    cells = [list(column.cells) for column in unrun(outcomes).columns[:2]]
    assert dict(zip(*cells, strict=True)) == {
        "stock TVM can't run it": "2",
        "nothing is known of the values of its parameter": "1",
        "stock TVM can't run it (of some functions)": "1",
    }
    assert list(wrong(outcomes, [])) == outcomes[-1:]
    table = table_of(outcomes, [], ["stock", "compile"], 5)
    assert list(table.columns[-1].cells) == ["1", "4"]


def test_who_waits_for_a_core_does_not_hang() -> None:
    """Seconds on the clock were counted: on a busy machine each module was late, and its process had to start again."""
    process = Bounded(0.3)
    assert process.call(time.sleep, 1.0) is None
    with pytest.raises(LateError, match="it took longer"):
        process.call(sum, range(10**12))


def test_the_first_modules_are_a_sample_of_all_files(tmp_path: Path) -> None:
    """A third of the modules are of two files: who ran a part saw those, and of small files nothing."""
    entries = [{"file": file, "test": "t", "name": "n", "module": f"{i}"} for i, file in enumerate("aaabb")]
    (tmp_path / "names.jsonl").write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    assert [module.path.stem for module in modules(tmp_path)] == ["0", "3", "1", "4", "2"]


def test_a_call_of_variable_shapes_and_devices_is_a_program() -> None:
    """One in ten was none: variables in types were defined nowhere, and devices were not the module's, so that neither
    stock TVM nor ours built it."""
    builder, shape = relax.BlockBuilder(), relax.Var("s", relax.ShapeType(ndim=2))
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    y = relax.Var("y", relax.TensorType((3,), "float32", relax.VDevice("llvm")))
    n = tirx.Var("n", "int64")
    for call in (relax.op.reshape(x, shape), relax.op.exp(y), relax.op.zeros((n, n), "int32")):
        mod = program_of(builder.normalize(call), builder.normalize)
        relax.analysis.well_formed(mod)
        tvm.compile(mod, "llvm")


@I.ir_module
class Divides:
    @R.function(private=True)
    def main(x: R.Any, y: R.Tensor((64,), "int32")) -> R.Tensor((64,), "int32"):
        q = R.floor_divide(y, y)
        return q


def test_private_functions_of_any_value_that_divide_are_run(tmp_path: Path) -> None:
    """Of these stock TVM said nothing: none is public, a value may be anything, and 0 / 0 ends the process."""
    path = tmp_path / "module.json"
    path.write_text(tvm.ir.save_json(Divides))
    outcome, _ = outcome_of(Bounded(30), Module(path, ["x::y z"]), "stock", 0, 0)
    assert (outcome.kind, outcome.text, outcome.lost) == ("equal", "", 1)
