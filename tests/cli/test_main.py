"""The command line from outside: what it writes, what it prints, how it refuses."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
import tvm
import tvm_ffi
import typer
from rich.console import Console
from tvm import relax
from typer.testing import CliRunner, Result

from eqsat_layout.cli import main
from eqsat_layout.cli.demo_layout import Comparison, DemoOptions, freeze_convolutions, run_demo, weight_layout
from eqsat_layout.cli.main import app
from eqsat_layout.errors import LayoutError
from eqsat_layout.models import resnet50
from eqsat_layout.readers.modules import read_module, write_module


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_sigterm_is_an_orderly_end() -> None:
    """Constants that were being computed stayed in shared memory, for ever."""
    stopped = typer.Typer()
    stopped.command()(lambda: signal.raise_signal(signal.SIGTERM))
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with patch.object(main, "app", stopped), patch.object(sys, "argv", ["x"]), pytest.raises(SystemExit) as ended:
            main.main()
    finally:
        assert signal.signal(signal.SIGTERM, before) is signal.SIG_IGN
    assert ended.value.code == 128 + signal.SIGTERM


def refused(*arguments: object) -> str:
    """The one line on standard error of a call that must end with exit code 2."""
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr.removeprefix("eqsat-layout: ").strip()


def test_the_page_on_the_command_line_names_every_option() -> None:
    page = Path(__file__).parents[2] / "docs" / "command-line.md"
    synopsis = re.sub(r"\n +", " ", page.read_text(encoding="utf-8").split("```")[1])
    said = {line.split()[1]: set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", line)) for line in synopsis.splitlines()[1:]}
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert set(said) == set(commands)
    for name, command in commands.items():
        options = [p for p in command.params if p.param_type_name == "option" and p.name not in ("debug", "help")]
        spellings = [{*option.opts, *option.secondary_opts} for option in options]
        assert all(own & said[name] for own in spellings), name
        assert said[name] <= set().union(*spellings), name


def two_transforms() -> tvm.IRModule:
    """x to NCHW4c and back: nothing but work to drop."""
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 8, 4, 4), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit(relax.op.layout_transform(x, lambda n, c, h, w: (n, c // 4, h, w, c % 4)))
            y = bb.emit(relax.op.nn.relu(y))
            y = bb.emit(relax.op.layout_transform(y, lambda n, c, h, w, b: (n, c * 4 + b, h, w)))
            result = bb.emit_output(y)
        bb.emit_func_output(result)
    return bb.get()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    write_module(two_transforms(), path)
    return path


@pytest.mark.parametrize("suffix", [".py", ".json"])
def test_optimize_writes_the_better_module(model: Path, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"better{suffix}"
    result = call("optimize", model, "-o", out, "--target", "llvm")
    assert result.exit_code == 0, result.output
    text = read_module(out).script()
    assert "R.nn.relu" in text
    assert "layout_transform" not in text
    assert "modelled cost" in result.output


def test_optimize_writes_beside_the_input_and_leaves_it(model: Path) -> None:
    before = model.read_bytes()
    assert call("optimize", model).exit_code == 0
    assert model.read_bytes() == before
    assert "R.nn.relu" in model.with_name("model.optimized.py").read_text()


def test_optimize_takes_desired_layouts_and_a_json_target(tmp_path: Path) -> None:
    path = tmp_path / "net.json"
    write_module(resnet50(image=32, width=16, blocks=(1, 1, 1, 1)), path)
    layouts = "relax.nn.conv2d=NHWC,OHWI"
    result = call("optimize", path, "--desired-layout", layouts, "--target", '{"kind": "llvm"}', "--time-limit", 20)
    assert result.exit_code == 0, result.output
    text = read_module(tmp_path / "net.optimized.json").script()
    assert 'data_layout="NHWC"' in text
    assert 'data_layout="NCHW"' not in text
    assert text.count("R.permute_dims(") == 1  # of the input


@pytest.mark.parametrize("name", ["plan.json", "plan.txt"])
def test_optimize_writes_the_plan(model: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert call("optimize", model, "--plan", path).exit_code == 0
    text = path.read_text()
    if name.endswith(".json"):
        plan = json.loads(text)
        assert plan["changed"] is True
        assert plan["cost_s"] < plan["input_cost_s"]
        assert (len(plan["input_transforms"]), plan["transforms"]) == (2, [])
    else:
        assert text.startswith("Layout plan\n")
        assert "\x1b" not in text


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    assert refused("optimize", tmp_path / "no.py") == f"{tmp_path / 'no.py'}: No such file or directory"


@pytest.mark.parametrize("command", ["compile", "optimize", "plan"])
def test_an_empty_name_is_one_line(command: str) -> None:
    """Which typer takes for the folder: "PosixPath('.') has an empty name"."""
    assert refused(command, "") == ".: Is a directory"


def test_a_broken_file_is_one_line_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("@R.function\ndef main(x: R.Tensor((2,), 'float32')):\n    return R.nothing(x)\n")
    assert refused("optimize", path).startswith(f"{path}:3:12: ")


def test_the_input_is_never_overwritten(model: Path) -> None:
    before = model.read_bytes()
    assert "never overwritten" in refused("optimize", model, "-o", model)
    assert "never overwritten" in refused("optimize", model, "--plan", model)
    assert model.read_bytes() == before


def test_module_and_plan_need_two_names(model: Path, tmp_path: Path) -> None:
    assert "named for two outputs" in refused(
        "optimize", model, "-o", tmp_path / "a.json", "--plan", tmp_path / "a.json"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "out.onnx"], "out.onnx: can write .py"),
        (["-o", "nowhere/out.py"], "no folder"),
        (["--desired-layout", "relax.nn.conv2d"], "expected OP=LAYOUT"),
        (["--desired-layout", "relax.nn.conv2d=NHWC,"], "expected OP=LAYOUT"),
        (["--target", "{kind"], "not JSON"),
        (["--target", "no-such-target"], "no-such-target"),
        (["--rules", "missing.egg"], "missing.egg"),
    ],
)
def test_wrong_arguments_are_one_line(model: Path, arguments: list[str], message: str) -> None:
    assert message in refused("optimize", model, *arguments)
    assert [path.name for path in model.parent.iterdir()] == [model.name]


@pytest.mark.parametrize("command", [["tune", "--seconds", "0"], ["calibrate", "--quick"]])
def test_a_database_that_can_not_be_written_is_refused_at_once(tmp_path: Path, command: list[str]) -> None:
    """`tune` said that it had stored there what it measured, `calibrate` measured first."""
    (tmp_path / "file").write_text("")
    with patch("eqsat_layout.cli.calibrate.calibrate", side_effect=AssertionError("was measured")):
        assert "file/measurements.v1.jsonl: can't write" in refused(*command, "-o", tmp_path / "file")


@pytest.mark.parametrize("command", ["run", "bench"])
def test_a_seed_below_zero_is_refused(model: Path, command: str) -> None:
    result = call(command, model, "--seed", "-1")
    assert result.exit_code == 2
    assert "--seed" in result.stderr


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "eqsat_layout.cli.main", "optimize", "--debug", str(tmp_path / "no.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "Traceback" in done.stderr


def test_help_needs_no_tvm() -> None:
    code = "import sys; from eqsat_layout.cli.main import app; print('tvm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
    assert "optimize" in call("--help").output


def small_demo(**options: object) -> tuple[bool, str]:
    console = Console(record=True, width=100, file=io.StringIO())
    base = {"layout": "NCHW4c", "image": 32, "width": 16, "blocks": (1, 1, 1, 1), "repeat": 1}
    agrees, _ = run_demo(DemoOptions(**{**base, **options}), console)  # type: ignore[arg-type]
    return agrees, console.export_text()


def test_the_demo_agrees_with_the_unoptimised_build_and_says_so() -> None:
    agrees, text = small_demo()
    assert agrees
    for fact in ("NCHW4c, weights OIHW4i4o", "layout transforms", "lower bound", "measured, one run", "compile"):
        assert fact in text, fact
    assert "the numbers agree: maximum absolute difference" in text


def test_the_demo_can_stop_at_the_plan() -> None:
    agrees, text = small_demo(run=False)
    assert agrees
    assert "modelled cost" in text
    assert "compile" not in text
    assert "measured" not in text


def test_numbers_that_differ_are_not_called_equal() -> None:
    assert Comparison(1.0, 1.0, difference=0.9e-3, magnitude=1.0).agrees
    assert not Comparison(1.0, 1.0, difference=1.1e-3, magnitude=1.0).agrees
    assert not Comparison(1.0, 1.0, difference=float("nan"), magnitude=1.0).agrees


@pytest.mark.parametrize(
    ("layout", "weight"),
    [("NCHW16c", "OIHW16i16o"), ("NCHW", "OIHW"), ("NHWC", "OHWI"), ("NHWC8c", "OHWI8i8o")],
)
def test_the_weights_layout_follows_the_datas(layout: str, weight: str) -> None:
    assert weight_layout(layout) == weight


@pytest.mark.parametrize("layout", ["NCHWc", "NCDHW", "NCHW4h", "NCHW4c2c", ""])
def test_a_layout_that_is_none_of_a_convolution_is_refused(layout: str) -> None:
    with pytest.raises(LayoutError):
        weight_layout(layout)


def test_freezing_does_not_touch_the_input() -> None:
    mod = resnet50(image=32, width=16, blocks=(1, 1, 1, 1))
    frozen = freeze_convolutions(mod, "NCHW4c")
    assert "eqsat_layout.frozen" not in dict(mod["main"].attrs)
    wanted = {"relax.nn.conv2d": ["NCHW4c", "OIHW4i4o"]}
    assert tvm_ffi.structural_equal(frozen["main"], mod["main"].with_attr("eqsat_layout.frozen", wanted))


def test_a_shell_completes_commands_however_the_command_line_was_started() -> None:
    """Started as a module, it looked for a variable that no shell can set."""
    asked = {"_EQSAT_LAYOUT_COMPLETE": "complete_bash", "COMP_WORDS": "eqsat-layout pl", "COMP_CWORD": "1"}
    command = [sys.executable, "-m", "eqsat_layout"]
    run = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, check=False)
    assert run.stdout.split() == ["plan"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
def test_a_full_disk_behind_the_output_is_said_in_a_line() -> None:
    """A traceback of rich."""
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "eqsat_layout", "--help"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "eqsat-layout: can't write what there is to say: No space left on device\n"


@pytest.mark.parametrize(
    "code",
    [
        "from eqsat_layout.cli.common import errors, make_console\nwith errors(False): make_console().print('x')",
        "import sys; from eqsat_layout.cli.main import main\nsys.argv[1:] = ['--help']; main()",
    ],
    ids=["report", "help"],
)
def test_a_reader_that_has_seen_enough_is_no_failure_of_the_program(code: str) -> None:
    """`eqsat-layout fuzz | head`, and `--help | head`, ended with exit code 1, which says that a rule is wrong."""
    read, write = os.pipe()
    os.close(read)
    run = subprocess.run([sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (run.returncode, run.stderr) == (141, b"")
