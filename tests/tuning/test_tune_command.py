"""The command: a net is tuned within its time, interrupted, killed, and goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tuning.small_programs import contractions, convolution, product, stored
from typer.testing import CliRunner

from eqsat_layout.cli.main import app
from eqsat_layout.cost.database import Database
from eqsat_layout.models import resnet50
from eqsat_layout.planning.plan_space import PlanSpace
from eqsat_layout.readers.modules import write_module
from eqsat_layout.targets.registry import target
from eqsat_layout.tuning.tune import tune

# ---- the command -----------------------------------------------------------------------------------------------------


def test_a_net_is_tuned_within_its_time(tmp_path: Path) -> None:
    mod = resnet50(1, 32, 10, width=16, blocks=(1,))
    report = tune(mod, database=tmp_path, seconds=1.5)
    assert report.failures == ()
    assert report.seconds < 30
    assert report.measured + report.left >= len(contractions(PlanSpace(mod, target(), {}))) >= 8


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "net.json"
    write_module(convolution(1), path)
    return path


def call(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["tune", *map(str, arguments)])


def start(model: Path, directory: Path, kernels: int) -> subprocess.Popen[str]:
    """The command as a process of its own that has measured some kernels."""
    command = [sys.executable, "-m", "eqsat_layout.cli.main", "tune", str(model), "--database", str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    end = time.monotonic() + 60
    while count_lines(directory) < kernels:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)
    return process


def count_lines(directory: Path) -> int:
    path = Database(directory).path
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_the_command_is_interrupted_killed_and_goes_on(model: Path, tmp_path: Path) -> None:
    process = start(model, tmp_path, 2)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=60)
    first = stored(tmp_path)
    assert process.returncode == 130, printed
    assert "Interrupted: what was measured is kept" in printed
    assert "Traceback" not in printed
    assert any(line.split()[:3] == ["kernels", "measured", str(len(first))] for line in printed.splitlines()), printed

    process = start(model, tmp_path, len(first) + 1)
    process.kill()
    process.communicate(timeout=60)
    second = stored(tmp_path)
    assert second[: len(first)] == first

    result = call(model, "-o", tmp_path, "--seconds", 0)
    assert result.exit_code == 0, result.output
    assert any(line.split()[:3] == ["known", "before", str(len(second))] for line in result.output.splitlines())
    report = tune(convolution(1), database=tmp_path)
    third = stored(tmp_path)
    assert third[: len(second)] == second
    assert len(set(third)) == len(third) == len(second) + report.measured
    assert report.left == 0


def test_the_command_prints_what_was_done(tmp_path: Path) -> None:
    path = tmp_path / "net.json"
    write_module(product(), path)
    result = call(path, "--database", tmp_path / "cache")
    assert result.exit_code == 0, result.output
    rows = {line.strip()[:18].strip(): line.split() for line in result.output.splitlines()}
    found = stored(tmp_path / "cache")
    assert rows["kernels measured"][2] == str(len(found))
    assert rows["left"][1] == "0"
    for word in (target().name, "plan before", "plan now", "all of its kernels are measured", str(tmp_path / "cache")):
        assert word in result.output.replace("\n", ""), word


def test_the_command_takes_the_demo_s_model_where_none_is_given(tmp_path: Path) -> None:
    result = call("-o", tmp_path / "cache", "--seconds", 0)
    assert result.exit_code == 0, result.output
    assert "ResNet-50, 1x3x224x224" in result.output
    assert "are only modelled" in result.output
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--key", "phone"], "give --tracker HOST:PORT too"),
        (["--tracker", "here"], "the address of an RPC tracker is HOST:PORT, not 'here'"),
        (["--tracker", "here:123456", "--key", "k"], "the address of an RPC tracker is HOST:PORT"),
        (["--tracker", "localhost:9190"], "which device of the RPC tracker at localhost:9190? give its key"),
        (["--tracker", "127.0.0.1:1", "--key", "k"], "no RPC tracker answers at 127.0.0.1:1: "),
        (["no-such-file.json"], "no-such-file.json: No such file or directory"),
    ],
)
def test_the_command_refuses_in_one_line(model: Path, tmp_path: Path, arguments: list[str], words: str) -> None:
    file = [] if arguments[0].endswith(".json") else [model]
    result = call(*file, "-o", tmp_path, *arguments)
    assert result.exit_code == 2, result.output
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
