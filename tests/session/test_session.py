"""A session from outside: what it takes, what it gives, how it refuses, and that it comes back from a library."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from session.functions import Affine, expected, feed, function_of, identity
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.support import cc

import eqsat_layout
from eqsat_layout.errors import EqsatError, InputError, MalformedModuleError, TargetError
from eqsat_layout.readers.modules import write_module
from eqsat_layout.session.interface import TELLS, TensorSpec


@pytest.fixture(scope="module")
def affine() -> eqsat_layout.Session:
    return eqsat_layout.Session(Affine)


@pytest.fixture(scope="module")
def library(affine: eqsat_layout.Session, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "affine.so"
    affine.save(path)
    return path


def test_a_library_that_can_not_be_linked_is_an_error_of_the_package(
    affine: eqsat_layout.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk was TVM's RuntimeError of many lines."""

    def full(*_: Any, **__: Any) -> None:
        raise RuntimeError("Compilation error:\nld: No space left on device\n\nCommand line: g++ -shared")

    monkeypatch.setattr(cc, "create_shared", full)
    with pytest.raises(EqsatError, match=r"affine\.so: can't be linked: .*ld: No space left on device$"):
        affine.save(tmp_path / "affine.so")
    assert not list(tmp_path.iterdir())


def printed(code: str, folder: Path) -> str:
    """What a new process prints."""
    (folder / "run.py").write_text(textwrap.dedent(code))
    root = str(Path(eqsat_layout.__file__).parents[1])
    command = [sys.executable, str(folder / "run.py")]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": root}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_session_says_what_it_takes_and_gives(affine: eqsat_layout.Session) -> None:
    assert affine.inputs == (
        TensorSpec("x", ("n", 4), "float32"),
        TensorSpec("w", (4, 3), "float32"),
        TensorSpec("b", ("n", 3), "float32"),
    )
    assert [(spec.name, spec.shape) for spec in affine.outputs] == [("output0", ("n", 3)), ("output1", ("n", 4))]
    assert "x: float32 (n, 4)" in repr(affine)


@pytest.mark.parametrize("rows", [1, 5])
def test_all_outputs_or_those_that_are_named(affine: eqsat_layout.Session, rows: int) -> None:
    given = feed(rows)
    y, z = expected(given)
    for wanted, names in (([y, z], None), ([z], ["output1"]), ([z, y, z], ["output1", "output0", "output1"])):
        got = affine.run(names, given)
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_results_can_be_written_to(affine: eqsat_layout.Session) -> None:
    """NumPy before 2.3 shows memory of others as arrays that can't be."""
    for _ in range(3):
        for result in affine.run(None, feed()):
            result += 1


def test_the_plan_is_that_of_what_was_compiled(affine: eqsat_layout.Session) -> None:
    assert affine.plan.cost <= affine.plan.input_cost
    assert affine.plan.stats.ops == 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"x": np.zeros((5, 4))}, "input 'x': expected float32 (n, 4), got float64 (5, 4)"),
        ({"x": np.zeros((5,), "float32")}, "input 'x': expected float32 (n, 4), got float32 (5,)"),
        ({"x": np.zeros((5, 3), "float32")}, "input 'x': expected float32 (n, 4), got float32 (5, 3): axis 1 is 4"),
        (
            {"b": np.zeros((6, 3), "float32")},
            "input 'b': expected float32 (n, 3), got float32 (6, 3): n is 5 by axis 0 of 'x'",
        ),
        ({"ww": np.zeros((4, 3), "float32")}, "there is no input 'ww'; did you mean 'w'? there are 'x', 'w', 'b'"),
        ({"x": [[1.0], [1.0, 2.0]]}, "input 'x': expected float32 (n, 4), got no array"),
        ({"x": object()}, "input 'x': expected float32 (n, 4), got object ()"),
        ({"x": tvm.runtime.tensor(np.zeros((5, 4)))}, "input 'x': expected float32 (n, 4), got float64 (5, 4)"),
    ],
)
def test_a_wrong_input_is_named_with_what_was_expected_and_what_came(
    affine: eqsat_layout.Session, change: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError) as error:
        affine.run(None, feed() | change)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_input_output_or_dictionary_is_named(affine: eqsat_layout.Session) -> None:
    given = feed()
    del given["w"]
    with pytest.raises(InputError, match=r"^input 'w' is missing: float32 \(4, 3\)$"):
        affine.run(None, given)
    with pytest.raises(InputError, match="no output 'output'; did you mean 'output"):
        affine.run(["output"], feed())
    with pytest.raises(InputError, match="dictionary by names, got ndarray"):
        affine.run(None, feed()["x"])  # type: ignore[arg-type]


def test_a_library_is_a_session_again(affine: eqsat_layout.Session, library: Path) -> None:
    again = eqsat_layout.Session(library)
    assert (again.inputs, again.outputs) == (affine.inputs, affine.outputs)
    for one, other in zip(again.run(None, feed()), affine.run(None, feed()), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(InputError, match="n is 5 by axis 0 of 'x'"):
        again.run(None, feed() | {"b": np.zeros((6, 3), "float32")})
    with pytest.raises(EqsatError, match="holds no plan"):
        _ = again.plan
    with pytest.raises(EqsatError, match="compiled already, so shapes= comes too late"):
        eqsat_layout.Session(library, shapes={"x": (1, 4)})
    with pytest.raises(EqsatError, match="compiled already"):
        eqsat_layout.optimize(library)


def test_a_library_runs_in_another_process(library: Path, tmp_path: Path) -> None:
    code = f"""
        import numpy as np, eqsat_layout
        session = eqsat_layout.Session({str(library)!r})
        given = {{s.name: np.ones([2 if e == "n" else e for e in s.shape], s.dtype) for s in session.inputs}}
        print([one.tolist() for one in session.run(None, given)])
    """
    assert printed(code, tmp_path) == str([[[5.0] * 3] * 2, [[1.0] * 4] * 2])


def test_a_library_is_opened_without_what_plans_and_reads(library: Path, tmp_path: Path) -> None:
    code = f"""
        import sys, numpy as np, eqsat_layout
        session = eqsat_layout.Session({str(library)!r})
        given = {{s.name: np.ones([2 if e == "n" else e for e in s.shape], s.dtype) for s in session.inputs}}
        first = session.run(None, given)
        print([m for m in ("egglog", "highspy", "onnx", "tvm") if m in sys.modules])
        import tvm  # the compiler may come later
        assert all((a == b).all() for a, b in zip(first, session.run(None, given)))
        assert eqsat_layout.Session({str(library)!r}).outputs == session.outputs
    """
    assert printed(code, tmp_path) == "[]"


def test_a_library_that_calls_the_runtime_to_sort_is_opened_without_the_compiler(tmp_path: Path) -> None:
    mod = function_of(lambda emit, x: emit(R.sort(x, axis=0)), (4,))
    eqsat_layout.Session(mod).save(tmp_path / "sorting.so")
    code = f"""
        import sys, numpy as np, eqsat_layout
        session = eqsat_layout.Session({str(tmp_path / "sorting.so")!r})
        print(session.run(None, {{"x": np.array([3, 1, 4, 2], "float32")}})[0].tolist(), "tvm" in sys.modules)
    """
    assert printed(code, tmp_path) == "[1.0, 2.0, 3.0, 4.0] False"


def test_a_library_that_calls_python_functions_of_tvm_s_brings_them(tmp_path: Path) -> None:
    """So does the second session of such a file: it ended in a RuntimeError."""
    mod = function_of(lambda emit, x: emit(R.nonzero(x)), (4,))
    eqsat_layout.Session(mod).save(tmp_path / "counting.so")
    code = f"""
        import numpy as np, eqsat_layout
        session = eqsat_layout.Session({str(tmp_path / "counting.so")!r})
        print(session.run(None, {{"x": np.array([3, 0, 4, 0], "float32")}})[0].tolist())
    """
    assert printed(code, tmp_path) == "[[0, 2]]"


@pytest.mark.parametrize(("given", "used"), [(None, "10000"), ("7", "7")])
def test_idle_threads_soon_sleep(
    monkeypatch: pytest.MonkeyPatch, library: Path, tmp_path: Path, given: str | None, used: str
) -> None:
    """TVM's spun for the time of ten runs after each."""
    monkeypatch.delenv("TVM_THREAD_POOL_SPIN_COUNT", raising=False)
    if given is not None:
        monkeypatch.setenv("TVM_THREAD_POOL_SPIN_COUNT", given)
    code = f"""
        import os, eqsat_layout
        eqsat_layout.Session({str(library)!r})
        print(os.environ["TVM_THREAD_POOL_SPIN_COUNT"])
    """
    assert printed(code, tmp_path) == used


def test_a_library_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "one.so"
    sessions = []
    for factor in (2.0, 3.0):
        mod = function_of(lambda emit, x, f=factor: emit(R.multiply(x, R.const(f, "float32"))), (4,))
        eqsat_layout.Session(mod).save(path)
        sessions.append(eqsat_layout.Session(path))
    results = [session.run(None, {"x": np.ones(4, "float32")})[0].tolist() for session in sessions]
    assert results == [[2.0] * 4, [3.0] * 4]
    assert [one.name for one in tmp_path.iterdir()] == ["one.so"]


def test_what_is_no_library_of_a_session_is_refused(tmp_path: Path, affine: eqsat_layout.Session) -> None:
    with pytest.raises(EqsatError, match=r"nothing\.so: there is no such file"):
        eqsat_layout.Session(tmp_path / "nothing.so")
    (tmp_path / "text.so").write_text("not code")
    with pytest.raises(EqsatError, match=r"text\.so: can't be loaded"):
        eqsat_layout.Session(tmp_path / "text.so")
    eqsat_layout.compile(Affine).export_library(str(tmp_path / "bare.so"))
    with pytest.raises(EqsatError, match=r"bare\.so: can't be loaded: it .* was not written by Session\.save"):
        eqsat_layout.Session(tmp_path / "bare.so")
    with pytest.raises(EqsatError, match=r"model\.txt: a library's name ends in"):
        affine.save(tmp_path / "model.txt")
    with pytest.raises(EqsatError, match="No such file"):
        affine.save(tmp_path / "nowhere" / "model.so")


@pytest.mark.parametrize("suffix", [".py", ".json"])
def test_a_path_is_a_source_for_all(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"affine{suffix}"
    write_module(Affine, path)
    shapes = {"x": (5, None)}
    np.testing.assert_allclose(eqsat_layout.Session(str(path)).run(None, feed())[0], expected(feed())[0], rtol=1e-5)
    assert eqsat_layout.Session(path, shapes=shapes).inputs[2].shape == (5, 3)
    assert eqsat_layout.plan(path, shapes=shapes).stats.ops == 3
    assert [int(e) for e in eqsat_layout.optimize(path, shapes=shapes)["main"].params[2].ty.shape] == [5, 3]
    machine = relax.VirtualMachine(eqsat_layout.compile(path, shapes=shapes), tvm.cpu())
    got = machine["main"](*map(tvm.runtime.tensor, feed().values()))
    np.testing.assert_allclose(got[0].numpy(), expected(feed())[0], rtol=1e-5)


def test_what_is_no_source_is_refused() -> None:
    for call in (eqsat_layout.Session, eqsat_layout.optimize, eqsat_layout.plan, eqsat_layout.compile):
        with pytest.raises(MalformedModuleError, match=r"expected a tvm\.IRModule, a path, .* got int"):
            call(3)
        with pytest.raises(EqsatError, match=r"nothing\.onnx: No such file"):
            call("nothing.onnx")
        with pytest.raises(TypeError, match="'shape'; did you mean 'shapes'"):
            call("nothing.onnx", shape={})
        with pytest.raises(EqsatError, match=r"inputs= are what an nn\.Module is traced with"):
            call(Affine, inputs=(1,))


def test_a_module_that_is_no_function_of_tensors_is_refused() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.ShapeType(ndim=2))
    with builder.function("main", [x]):
        builder.emit_func_output(x)
    with pytest.raises(MalformedModuleError, match=r"a session runs functions of tensors: input 'x' is R\.Shape"):
        eqsat_layout.Session(builder.get())
    taken = Affine.clone()
    taken[TELLS] = Affine["main"].with_attr("global_symbol", TELLS)
    with pytest.raises(MalformedModuleError, match=f"has a function {TELLS} already"):
        eqsat_layout.Session(taken)


def test_a_given_module_is_left_as_it_is() -> None:
    before = Affine.script()
    eqsat_layout.Session(Affine, shapes={"x": (2, 4)}, candidates=False)
    assert Affine.script() == before


def test_threads_share_a_session(affine: eqsat_layout.Session) -> None:
    given = [feed(rows=1 + i % 7, seed=i) for i in range(48)]
    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(lambda one: affine.run(None, one), given))
    for one, got in zip(given, found, strict=True):
        for mine, wanted in zip(got, expected(one), strict=True):
            np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-6)


def test_results_stay_as_they_are_when_a_session_runs_again(affine: eqsat_layout.Session) -> None:
    kept = [affine.run(None, feed(seed=seed)) for seed in range(4)]
    for seed, got in enumerate(kept):
        np.testing.assert_allclose(got[0], expected(feed(seed=seed))[0], rtol=1e-5, atol=1e-6)


def test_results_are_not_copied_once_they_are_known_to_be_new(affine: eqsat_layout.Session) -> None:
    last = [affine.run(None, feed()) for _ in range(3)][-1]
    assert [one.base is not None for one in last] == [True, True]
    assert all(one.flags.writeable for one in last)


@pytest.mark.parametrize("use", [eqsat_layout.Session, eqsat_layout.optimize, eqsat_layout.compile, eqsat_layout.plan])
def test_a_target_that_is_none_is_refused_before_a_model_is_read(use: Any, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="unknown target 'nothing'"):
        use(tmp_path / "none.onnx", target="nothing")


def test_a_name_of_an_output_is_no_list_of_them() -> None:
    with pytest.raises(InputError, match="a list of names, got 'output0'"):
        identity((4,), "float32").run("output0", {"x": np.zeros(4, "float32")})


def test_a_second_session_of_the_same_comes_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_LAYOUT_CACHE", str(tmp_path))
    path = tmp_path / "affine.json"
    write_module(Affine, path)
    first = eqsat_layout.Session(path, shapes={"x": (5, 4)}).run(None, feed())
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    monkeypatch.setattr("eqsat_layout.planning.compile_anew.compile_anew", None)
    again = eqsat_layout.Session(path, shapes={"x": (5, 4)}).run(None, feed())
    np.testing.assert_array_equal(first[0], again[0])


@I.ir_module
class Windows:
    @R.function
    def main(x: R.Tensor((1, 1, "h", "w"), "float32")):
        with R.dataflow():
            windows = R.nn.conv2d(x, R.ones((1, 1, 3, 3), "float32"))
            y = R.sum(windows, axis=[2, 3])
            R.output(y)
        return y


@pytest.mark.parametrize("saved", [False, True])
def test_data_smaller_than_a_window_is_an_error(tmp_path: Path, saved: bool) -> None:
    """The product of two extents below zero is none: numbers that nobody computed came back."""
    session = eqsat_layout.Session(Windows)
    if saved:
        session.save(tmp_path / "windows.so")
        session = eqsat_layout.Session(tmp_path / "windows.so")
    assert session.run(None, {"x": np.ones((1, 1, 3, 4), "float32")})[0].tolist() == [[18.0]]
    for h, w in ((1, 1), (1, 9)):
        with pytest.raises(InputError, match=r"too small.* h is 1.* h - 2 is -1"):
            session.run(None, {"x": np.ones((1, 1, h, w), "float32")})
