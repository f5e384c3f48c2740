"""A bundle for a lent card, made and run from end to end: the simulator is in the place of the card."""

from __future__ import annotations

import dataclasses
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from effort import but_for
from programs import constant, program
from targets.device_cases import conv, nn
from tvm import relax
from tvm.relax import op

import eqsat_layout
from bench.cuda import programs, run_bundle
from bench.cuda.bundles.cases import cases, made
from bench.cuda.bundles.data import Recipe, from_data, recipe_like
from bench.cuda.bundles.items import NETWORK, Item, read_manifest, write_manifest
from bench.cuda.bundles.kernels import fill, kernels
from bench.cuda.bundles.peers import peer_of
from bench.cuda.bundles.steps import compared, errors_of
from bench.cuda.bundles.write import Effort, Network, write_bundle
from eqsat_layout.cost.database import Database
from eqsat_layout.cost.measurements import KernelKey
from eqsat_layout.errors import EqsatError, TargetError
from eqsat_layout.targets.cuda.target import CudaTarget
from eqsat_layout.targets.registry import target as target_of

PRECISIONS = but_for(["float32", "float16"], ["float32"])  # cases of both are in each bundle


def network(_: int) -> Any:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(nn.relu(conv(builder, x, 0, 16)))
        return conv(builder, y, 1, 8)

    return program(body, (1, 8, 9, 7))


def test_a_bundle_runs_where_nothing_else_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the code that runs on a card. TVM is not there, nor the package but for what the bundle brings."""
    monkeypatch.setattr("eqsat_layout.targets.cuda.host.executable.machine_code", _texts)
    folder = tmp_path / "bundle"
    networks = [Network("tiny", network, precision, 1) for precision in PRECISIONS]
    effort = Effort(["softmax_float32", "lanes_float16"], plans=2, kernels=1, repeats=2, ceiling_turns=2)
    target = target_of({"kind": "cuda", "arch": "sm_90"})
    write_bundle(folder, networks, target, effort, say=lambda _: None)
    (folder / "tvm.py").write_text("raise ImportError('TVM is not here')")
    command = [sys.executable, "-m", "bench.cuda.run_bundle", "--json", "out.json"]
    command += ["--simulate", "--turns", "2", "--runs", "1"]
    done = subprocess.run(command, cwd=folder, env=_without_path(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((folder / "out.json").read_text())
    steps = result["steps"]
    assert [row["name"] for row in steps["ceilings"]] == ["copy", "mma_f16"]
    assert {row["name"]: row["right"] for row in steps["cases"]} == {"softmax_float32": True, "lanes_float16": True}
    assert [row["name"] for row in steps["networks"]] == [f"tiny_{precision}_1" for precision in PRECISIONS]
    assert all(row["right"] and row["seconds"] > 0 for row in steps["networks"])
    assert len({row["plan"] for row in steps["candidates"]}) >= 2 * len(PRECISIONS)
    assert all(row["right"] and row["seconds"] > 0 for row in steps["candidates"])
    assert steps["peers"]
    monkeypatch.setenv("EQSAT_LAYOUT_CACHE", str(tmp_path / "cache"))
    assert f"{len(steps['kernels'])} kernels of cuda sm_90 h100 simulator" in fill(result, Database(), target.version)
    for row in steps["kernels"]:  # a rehearsal says nothing of the card
        key = KernelKey(row["computation"], tuple(row["formats"]))
        known = [Database().read().kernel(t.name, t.version, key) for t in (target.at("simulator"), target)]
        assert [one and one.seconds for one in known] == [row["seconds"], None]
    assert not [row for rows in steps.values() for row in rows if "late" in row or "fails" in row]
    with pytest.raises(EqsatError, match="is not empty"):
        write_bundle(folder, networks, target, effort)


def test_the_next_plan_for_a_card_is_made_by_what_it_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product takes a second there in all layouts that were asked for."""
    monkeypatch.setenv("EQSAT_LAYOUT_CACHE", str(tmp_path))
    target = target_of({"kind": "cuda", "arch": "sm_90"})
    assert isinstance(target, CudaTarget)
    mod = program(lambda builder, x: builder.emit(op.matmul(x, constant(32, 24))), (16, 32))
    items = [item for item, _ in kernels(mod, target, {}, 3, 1, set(), print)]
    assert items
    rows = [{**item.said, "device": "NVIDIA H100 PCIe", "seconds": 1.0, "all": [1.0]} for item in items]
    result = {"simulated": False, "model": "h100", "steps": {"kernels": rows}}
    before = eqsat_layout.plan(mod, target)
    assert "another version" not in fill(result, Database(), target.version)
    for given in (target, target_of({"kind": "cuda", "arch": "sm_90", "model": "h100"})):
        assert eqsat_layout.plan(mod, given).cost > 1000 * before.cost
    assert eqsat_layout.plan(mod, {"kind": "cuda", "arch": "sm_80"}).cost < 10 * before.cost
    assert "1 of them are of another version" in fill({**result, "steps": {"kernels": rows[:1]}}, Database(), "0")
    with pytest.raises(EqsatError, match=r"'h100'.*A100"):
        fill({**result, "steps": {"kernels": [{**rows[0], "device": "NVIDIA A100-SXM4-80GB"}]}}, Database(), "")


def test_weights_of_a_seed_give_results_of_ordinary_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of ResNet-50 in halves were NaN, and whatever a card had given would have been wrong."""
    monkeypatch.setattr("eqsat_layout.targets.cuda.host.executable.machine_code", _texts)

    def growing(_: int) -> Any:
        def body(builder: Any, x: Any) -> Any:
            for seed in range(3):
                x = builder.emit(nn.relu(conv(builder, x, seed, 16)))
            return x

        return program(body, (1, 16, 9, 7))

    networks = [Network("growing", growing, "float16", 1)]
    write_bundle(tmp_path / "b", networks, target_of("cuda"), Effort([], 0, ceiling_turns=2), say=lambda _: None)
    (item,) = (one for one in read_manifest(tmp_path / "b")[1] if one.kind == NETWORK)
    (expected,) = item.expected(tmp_path / "b") or []
    assert item.said["damped"] < 1
    assert 0 < np.abs(expected).max() <= 1e3


def test_a_network_without_numbers_of_a_seed_gives_what_it_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums of thousands are of no ordinary size, and nothing makes them less; what is not finite is left out alone."""
    monkeypatch.setattr("eqsat_layout.targets.cuda.host.executable.machine_code", _texts)

    def summed(factor: float) -> Callable[[int], Any]:
        def body(builder: Any, x: Any) -> Any:
            return builder.emit(op.sum(builder.emit(op.multiply(nn.relu(x), relax.const(np.float32(factor))))))

        return lambda _: program(body, (64, 90))

    networks = [Network(name, summed(factor), "float32", 1) for name, factor in (("vast", 1e38), ("large", 1.0))]
    with pytest.raises(EqsatError, match="is without vast_float32_1"):
        write_bundle(tmp_path / "b", networks, target_of("cuda"), Effort([], 0, ceiling_turns=2), say=lambda _: None)
    assert [one.name for one in read_manifest(tmp_path / "b")[1] if one.kind == NETWORK] == ["large_float32_1"]


def _without_path() -> dict[str, str]:
    """The package is found where the script lies only."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def test_a_kernel_that_fails_takes_only_its_own_row_with_it(tmp_path: Path) -> None:
    """A fault leaves the driver's context of a process of no use."""
    target = target_of({"kind": "cuda", "arch": "sm_90"})
    found = []
    for case in cases(["softmax_float32", "mean_float32", "max_pool_float32"]):
        item, program, expected = made(case, target)
        sources = dict(program.sources)
        if case.name == "mean_float32":
            (name,) = sources
            begin = sources[name].rindex("{\n", 0, sources[name].index(";", sources[name].rindex(") {"))) + 1
            sources[name] = sources[name][:begin] + " __trap(); " + sources[name][begin:]
        known = {name: text.encode() for name, text in sources.items()}
        item.written(tmp_path, dataclasses.replace(program, sources=sources, known=known), expected)
        found.append(item)
    write_manifest(tmp_path, {}, found)
    asked = ["--folder", str(tmp_path), "--simulate", "--steps", "cases", "--json", str(tmp_path / "out.json")]
    assert run_bundle.main([*asked, "--seconds", "0"]) == 0
    assert all(row["late"] for row in json.loads((tmp_path / "out.json").read_text())["steps"]["cases"])
    assert run_bundle.main([*asked, "--go-on"]) == 1
    rows = json.loads((tmp_path / "out.json").read_text())["steps"]["cases"]
    assert [(row["name"], row["right"]) for row in rows] == [
        ("softmax_float32", True),
        ("mean_float32", False),
        ("max_pool_float32", True),
    ]
    assert "trap" in rows[1]["fails"]
    assert run_bundle.main([*asked, "--go-on", "--seconds", "0"]) == 1  # nothing is left to do
    assert json.loads((tmp_path / "out.json").read_text())["steps"]["cases"] == rows


@pytest.mark.parametrize(
    ("arch", "card", "runs"),
    [("sm_90a", "sm_90", True), ("sm_90a", "sm_100", False), ("sm_80", "sm_89", True), ("sm_89", "sm_86", False)],
)
def test_code_for_another_card_is_refused_before_anything_runs(
    arch: str,
    card: str,
    runs: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    success = SimpleNamespace(CUDA_SUCCESS=0)
    driver = SimpleNamespace(CUresult=success, cuDriverGetVersion=lambda: (0, 13000))
    monkeypatch.setattr(run_bundle, "driver_of", lambda: driver)
    monkeypatch.setattr(run_bundle, "described_here", lambda driver: (card, "driver:"))
    write_manifest(tmp_path, {"arch": arch}, [])
    asked = ["--folder", str(tmp_path), "--json", str(tmp_path / "out.json"), "--steps", "cases"]
    if runs:
        assert run_bundle.main(asked) == 0
        return
    with pytest.raises(SystemExit):
        run_bundle.main(asked)
    assert f"is for {arch}, and the card here is of {card}" in capsys.readouterr().err


def test_what_hangs_ends_with_all_that_it_began() -> None:
    command = ["bash", "-c", "sleep 60 & echo $!; wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        child = os.pidfd_open(int(process.stdout.readline()))
        run_bundle.end(process)
    ended, _, _ = select.select([child], [], [], 30)  # half of what it would sleep for
    os.close(child)
    assert ended


def test_a_peer_that_is_not_there_says_so() -> None:
    row = peer_of("torch eager", {"network": "mine.onnx", "precision": "float32"}, 1, 1, on_cpu=True)
    assert row["network"] == "mine.onnx"
    assert "why" in row


def _texts(sources: Any, _arch: str) -> list[Any]:
    """The suite needs no compiler of CUDA's: the simulator takes the text."""
    return [type("Compiled", (), {"cubin": source.encode()}) for source in sources]


def test_a_wrong_result_is_wrong() -> None:
    item = Item("case", "case", (), (), 1e-3)
    expected = [np.ones(4)]
    assert compared(item, [np.full(4, 1.0001)], expected)["right"]
    assert not compared(item, [np.full(4, 1.01)], expected)["right"]
    assert not compared(item, [np.full(4, np.nan)], expected)["right"]
    assert compared(item, [np.ones(4)], None)["right"] is None


def test_numbers_of_a_seed_are_the_same_everywhere() -> None:
    recipe = Recipe((3,), "float32", 7)
    np.testing.assert_array_equal(recipe.array(), np.array([-0.23645678, -1.2741644, -0.00346243149], "float32"))
    many = Recipe((3 << 20,), "float32", 7, mean=2.0, deviation=0.5).array()
    assert abs(many.mean() - 2.0) < 1e-3
    assert abs(many.std() - 0.5) < 1e-3
    assert abs(np.corrcoef(many[:-1], many[1:])[0, 1]) < 1e-2
    again = from_data(json.loads(json.dumps(recipe.to_data())))
    np.testing.assert_array_equal(again.array(), recipe.array())
    alike = recipe_like(many, 3).array()
    assert abs(alike.mean() - many.mean()) < 1e-2
    assert alike.min() >= many.min()


def test_sums_of_sanitizers_are_read() -> None:
    assert errors_of("========= ERROR SUMMARY: 3 errors\n========= ERROR SUMMARY: 1 error") == 4
    assert errors_of("========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)") == 2
    assert errors_of("killed") is None


def test_a_function_that_was_not_called_has_no_time() -> None:
    from targets.cuda.simulating import compiled

    from eqsat_layout.soundness.cuda.driver import simulated

    device = simulated(compiled(network(1)))
    with pytest.raises(TargetError, match="main has not been called"):
        device.seconds()
    device(np.ones((1, 8, 9, 7), "float32"))
    assert device.seconds(2) > 0


def test_a_bundle_that_was_not_finished_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_bundle.main(["--folder", str(tmp_path), "--simulate"])
    assert "was not finished: there is no manifest.json" in capsys.readouterr().err


def test_cases_that_are_not_there_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bundle had no cases then, which nobody would have seen before a card was lent."""
    monkeypatch.setattr(sys, "argv", ["programs", "--bundle", str(tmp_path / "bundle"), "--cases", "matmul"])
    with pytest.raises(SystemExit):
        programs.main()
    assert "invalid choice: 'matmul' (choose from 'matmul_float32'" in capsys.readouterr().err
    assert not (tmp_path / "bundle").exists()
