"""The commands from a model to answers, from outside."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import psutil
import pytest
from tvm.script import ir as I
from tvm.script import relax as R
from typer.testing import CliRunner, Result

import eqsat_layout
from eqsat_layout.cli.bench import BenchOptions, bench_table, run_bench
from eqsat_layout.cli.common import make_console, parse_assumed, parse_shapes
from eqsat_layout.cli.engines import OWN
from eqsat_layout.cli.main import app
from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.modules import write_module
from eqsat_layout.report.text import plain_text
from eqsat_layout.session.session import Session


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def done(*arguments: object) -> str:
    result = call(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def refused(*arguments: object) -> str:
    """The one line on standard error of a call that must end with exit code 2."""
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr.removeprefix("eqsat-layout: ").strip()


@I.ir_module
class Net:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), i: R.Tensor((3,), "int64")) -> R.Tuple(
        R.Tensor((3, 4), "float32"), R.Tensor(("n", 4), "float32")
    ):
        with R.dataflow():
            y = R.take(x, i, axis=0)
            z = R.nn.relu(x)
            R.output(y, z)
        return (y, z)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "net.py"
    write_module(Net, path)
    return path


@pytest.fixture(scope="module")
def library(model: Path) -> Path:
    output = done("compile", model)
    assert "float32 (n, 4)" in output
    return model.with_suffix(".so")


def test_compile_writes_a_library_that_is_a_session(library: Path) -> None:
    assert [spec.shape for spec in eqsat_layout.Session(library).inputs] == [("n", 4), (3,)]


def test_an_option_that_is_none_does_not_come_too_late(library: Path) -> None:
    """`bench model.so` said that shapes= comes too late, which nobody gave."""
    assert eqsat_layout.Session(library, shapes=None, precision=None).outputs
    with pytest.raises(EqsatError, match="so approx= comes too late"):
        eqsat_layout.Session(library, shapes=None, approx=False)


def test_compile_says_that_there_is_no_such_folder_before_it_compiles(model: Path, tmp_path: Path) -> None:
    with patch.object(Session, "__init__", side_effect=AssertionError("compiled")):
        assert "No such file" in refused("compile", model, "-o", tmp_path / "none" / "a.so")


def test_run_takes_and_gives_arrays_in_files(library: Path, tmp_path: Path) -> None:
    x, i = np.arange(-4, 4, dtype="float32").reshape(2, 4), np.array([1, 0, 1])
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "i.npy", i)
    given = ["--input", f"i={tmp_path / 'i.npy'}", "--input", f"x={tmp_path / 'x.npy'}"]
    output = done("run", library, *given, "--output", f"output0={tmp_path / 'y.npy'}")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), x[i])
    assert "float32 (3, 4)" in output
    assert "float32 (2, 4)" in output


def test_run_makes_inputs_of_the_asked_sizes(library: Path) -> None:
    first, second = (done("run", library, "--shape", "x=7,?", "--seed", seed) for seed in (0, 1))
    assert "float32 (7, 4)" in first
    assert "random" in first
    assert first.splitlines()[-2:] != second.splitlines()[-2:]


def test_an_input_that_is_refused_is_closed(library: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "several.npz", x=np.zeros(2))
    (tmp_path / "torn.npz").write_bytes((tmp_path / "several.npz").read_bytes()[:40])
    for path in (tmp_path / "several.npz", tmp_path / "torn.npz"):
        result = call("run", library, "--input", f"x={path}")  # its exception holds the frames that opened the file
        assert result.exit_code == 2
        assert all(open_file.path != str(path) for open_file in psutil.Process().open_files())


def test_run_compiles_a_model_and_says_what_does_not_fit(model: Path, library: Path, tmp_path: Path) -> None:
    assert "float32 (5, 4)" in done("run", model, "--shape", "x=5,4")
    np.save(tmp_path / "x.npy", np.zeros((2, 4)))
    (tmp_path / "text.npy").write_text("text")
    x = tmp_path / "x.npy"
    assert "say which, NAME=FILE; there are x, i" in refused("run", library, "--input", x)
    assert refused("run", library, "--input", f"x={x}") == "input 'x': expected float32 (n, 4), got float64 (2, 4)"
    assert "'x' is given twice" in refused("run", library, "--input", f"x={x}", "--input", f"x={x}")
    assert "no array as numpy.save" in refused("run", library, "--input", f"x={tmp_path / 'text.npy'}")
    np.savez(tmp_path / "several.npz", x=np.zeros(2))
    assert "is an archive of arrays" in refused("run", library, "--input", f"x={tmp_path / 'several.npz'}")
    assert "No such file" in refused("run", library, "--input", f"x={tmp_path / 'none.npy'}")
    assert "No such file" in refused("run", library, "--output", f"output0={tmp_path / 'a' / 'y.npy'}")
    assert "no input 'y'" in refused("run", library, "--shape", "y=1")
    assert "axis 1 of 'x' is 4, got 5" in refused("run", library, "--shape", "x=7,5")
    assert "no output 'y'" in refused("run", library, "--output", f"y={tmp_path / 'y.npy'}")
    assert "no input 'z'" in refused("run", library, "--input", f"z={x}")
    assert "there is no such file" in refused("run", tmp_path / "none.so")


def test_run_reads_arrays_before_it_compiles(model: Path, tmp_path: Path) -> None:
    """A file that holds no array was refused after minutes of compiling."""
    (tmp_path / "text.npy").write_text("text")
    with patch.object(Session, "__init__", side_effect=AssertionError("compiled")):
        assert "no array as numpy.save" in refused("run", model, "--input", f"x={tmp_path / 'text.npy'}")


def test_an_array_of_python_objects_is_not_unpickled(library: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([object()], dtype=object), allow_pickle=True)
    assert "no array as numpy.save" in refused("run", library, "--input", f"x={tmp_path / 'x.npy'}")


@pytest.mark.parametrize(
    "arguments",
    [["run", "--output", "output0=FOLDER"], ["run", "--input", "x=FOLDER/no"], ["plan", "--html", "FOLDER"],
     ["plan", "-o", "FOLDER/no/plan.json"], ["compile", "-o", "FOLDER/is.so"], ["optimize", "--plan", "FOLDER"]],
)  # fmt: skip
def test_files_that_can_not_be_are_refused_before_anything_is_computed(
    model: Path, tmp_path: Path, arguments: list[str]
) -> None:
    (tmp_path / "is.so").mkdir()
    command, *rest = (text.replace("FOLDER", str(tmp_path)) for text in arguments)
    with patch("eqsat_layout.sources.source.read_model", side_effect=AssertionError("was read")):
        assert "directory" in refused(command, model, *rest)


def test_a_folder_as_an_input_is_said_to_be_one(library: Path, tmp_path: Path) -> None:
    assert "Is a directory" in refused("run", library, "--input", f"x={tmp_path}")
    assert refused("run", library, "--input", "x=") == "--input 'x=': expected [NAME=]FILE"


@pytest.mark.parametrize("command", ["plan", "optimize", "compile", "tune"])
def test_a_target_that_is_none_is_refused_before_the_model_is_read(command: str, tmp_path: Path) -> None:
    assert "unknown target 'nothing'" in refused(command, tmp_path / "none.onnx", "--target", "nothing")


def test_a_rule_file_without_rules_is_said_to_hold_none(tmp_path: Path) -> None:
    (tmp_path / "empty.egg").write_text("; nothing\n")
    assert "empty.egg: there is no rule in it" in refused("fuzz", tmp_path / "empty.egg")


def test_plan_writes_no_module(model: Path, tmp_path: Path) -> None:
    before = sorted(model.parent.iterdir())
    output = done("plan", model, "--shape", "x=6,4", "-o", tmp_path / "plan.json", "--explain")
    assert "modelled cost" in output
    assert "main is unchanged" in output
    assert json.loads((tmp_path / "plan.json").read_text())["stats"]["ops"] == 2
    assert sorted(model.parent.iterdir()) == before


def test_optimize_binds_shapes_and_says_what_to_build_with(model: Path, tmp_path: Path) -> None:
    output = done("optimize", model, "-o", tmp_path / "better.py", "--shape", "x=6,4")
    assert "x: R.Tensor((6, 4)" in (tmp_path / "better.py").read_text()
    assert "tvm.compile has no schedules" in output
    assert "44 times" in output


@I.ir_module
class Product:
    @R.function
    def main(x: R.Tensor((64, 64), "float32"), w: R.Tensor((64, 64), "float32")) -> R.Tensor((64, 64), "float32"):
        with R.dataflow():
            y = R.matmul(x, w)
            R.output(y)
        return y


def test_products_in_half_precision(tmp_path: Path) -> None:
    model = tmp_path / "product.py"
    write_module(Product, model)
    done("optimize", model, "-o", tmp_path / "better.py", "--precision", "float16")
    assert "float16" in (tmp_path / "better.py").read_text()
    x, w = (np.random.default_rng(seed).standard_normal((64, 64)).astype("float32") for seed in (0, 1))
    done("compile", model, "--precision", "float16")
    (got,) = eqsat_layout.Session(model.with_suffix(".so")).run(None, {"x": x, "w": w})
    assert 0 < np.max(np.abs(got - x @ w)) < 0.2
    done("plan", model, "--precision", "float16", "-o", tmp_path / "plan.json")
    assert json.loads((tmp_path / "plan.json").read_text())["stats"]["ops"] > 1
    figures = run_bench(BenchOptions(model, ("torch",), None, rounds=1, seed=0, precision="float16"), make_console())
    assert list(figures) == [OWN]
    for command in ("compile", "plan", "optimize", "bench", "tune"):
        assert "precision 'float8' is not known; did you mean" in refused(command, model, "--precision", "float8")


@pytest.mark.parametrize("text", ["x", "=1", "x=1,", "x=a", "x=-1", "x=1-", "x=1-2|3", "x=1.5"])
def test_a_shape_that_is_none_is_refused(model: Path, text: str) -> None:
    assert refused("plan", model, "--shape", text) == f"--shape '{text}': expected NAME=SIZE[,SIZE...]"


def test_shapes_are_read_by_input() -> None:
    assert parse_shapes(["a=b=1, 3,?", "s="]) == {"a=b": (1, 3, None), "s": ()}
    assert parse_shapes(["x=1|8,3"]) == {"x": ((1, 8), 3)}
    assert parse_shapes(["x=1-32,3"]) == {"x": (range(1, 33), 3)}
    assert parse_shapes([]) is None


@pytest.mark.parametrize("parse", [parse_shapes, parse_assumed])
def test_a_size_of_thousands_of_digits_is_no_size(parse: Callable[[list[str]], object]) -> None:
    """Python makes no number of it: a traceback."""
    with pytest.raises(EqsatError, match="expected NAME=SIZE"):
        parse([f"x={'9' * 5000}"])


def test_outputs_are_refused_before_anything_is_compiled(model: Path, tmp_path: Path) -> None:
    assert "a library's name ends in" in refused("compile", model, "-o", tmp_path / "model.onnx")
    assert "never overwritten" in refused("compile", model, "-o", model)


def test_bench_times_what_is_there_and_names_what_is_left_out(model: Path) -> None:
    output = done("bench", model, "--shape", "x=3,4", "--rounds", "1", "--against", "onnxruntime", "torch")
    assert OWN in output
    assert "left out: onnxruntime: takes .onnx files" in output
    assert "left out: torch: takes .pt2 files" in output
    assert "openvino" not in output


def test_bench_refuses_engines_that_nobody_knows(model: Path, tmp_path: Path) -> None:
    assert "no engine 'openvin'; did you mean 'openvino'?" in refused("bench", model, "--against", "openvin")
    assert "engines come after --against" in refused("bench", model, "openvino")
    assert "No such file" in refused("bench", tmp_path / "none.py", "--against", "torch")


def test_bench_compares_results_with_other_engines(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper, real = onnx.helper, onnx.TensorProto.FLOAT
    given = [helper.make_tensor_value_info("x", real, ["n", 4])]
    made = [helper.make_tensor_value_info("y", real, ["n", 4])]
    graph = helper.make_graph([helper.make_node("Sigmoid", ["x"], ["y"])], "g", given, made)
    model: Any = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    options = BenchOptions(tmp_path / "model.onnx", ("onnxruntime",), {"x": (3, 4)}, 2, 0)
    figures = run_bench(options, make_console())
    assert len(figures["onnxruntime"].rounds) == 2
    assert 0 < figures["onnxruntime"].magnitude < 1
    assert figures["onnxruntime"].difference < 1e-5
    assert "onnxruntime" in plain_text(bench_table(figures))


def test_bench_says_why_our_own_engine_can_not_run_a_file(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("x = 1\n")
    with pytest.raises(EqsatError, match=r"model\.py"):
        run_bench(BenchOptions(tmp_path / "model.py", (), None, 1, 0), make_console())


def test_run_never_overwrites_what_it_reads(model: Path, tmp_path: Path) -> None:
    array = tmp_path / "x.npy"
    np.save(array, np.ones((2, 4), "float32"))
    np.save(tmp_path / "i.npy", np.zeros(3, "int64"))
    given = ("--input", f"x={array}", "--input", f"i={tmp_path / 'i.npy'}")
    name = Session(model).outputs[1].name
    assert "this is the input" in refused("run", model, *given, "--output", f"{name}={array}")
    assert np.load(array).sum() == 8
    assert "this is the input" in refused("run", model, *given, "--output", f"{name}={model}")
    both = [f"{spec.name}={tmp_path / 'y.npy'}" for spec in Session(model).outputs]
    assert "named for two outputs" in refused("run", model, *given, "--output", both[0], "--output", both[1])


def test_optimize_refuses_sizes_that_are_made_of_themselves(tmp_path: Path) -> None:
    """It wrote a module that TVM ends the process at."""
    (tmp_path / "m.py").write_text(
        "from tvm.script import ir as I\nfrom tvm.script import tirx as T\nfrom tvm.script import relax as R\n"
        "@I.ir_module\nclass Module:\n    @R.function\n"
        '    def main(x: R.Tensor(("n",), dtype="float32")) -> R.Tensor(dtype="float32", ndim=1):\n'
        "        n = T.int64()\n        with R.dataflow():\n            y = R.concat((x, x), axis=0)\n"
        '            z = R.match_cast(y, R.Tensor((n,), dtype="float32"))\n            R.output(z)\n        return z\n'
    )
    assert "made of n itself" in refused("optimize", tmp_path / "m.py")
    assert not (tmp_path / "m.optimized.py").exists()


def test_standard_output_that_takes_no_more_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """``eqsat-layout run net.so > file`` on a full disk ended with a traceback."""
    from eqsat_layout.cli.common import make_console

    with open("/dev/full", "w") as full:
        monkeypatch.setattr("sys.stdout", full)
        with pytest.raises(EqsatError, match="standard output: No space left on device"):
            make_console().print("anything")


def test_a_standard_output_that_is_closed_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """``eqsat-layout plan model.onnx >&-``: it ended in a traceback."""
    monkeypatch.setattr("sys.stdout", None)
    make_console().print("a plan")
