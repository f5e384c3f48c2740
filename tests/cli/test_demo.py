"""The demo: one table, numbers that agree, and what to type next."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from eqsat_layout.cli.demo import Line, PlainDemoOptions, demo_table, run_plain_demo
from eqsat_layout.cli.demo_peers import onnx_runtime, stock_tvm, torch
from eqsat_layout.models import resnet50
from eqsat_layout.report.text import plain_text

SMALL = {"image": 32, "width": 16, "blocks": (1, 1, 1, 1), "repeat": 2}


def demo(**options: object) -> tuple[bool, str]:
    console = Console(record=True, width=100, file=io.StringIO())
    agrees = run_plain_demo(PlainDemoOptions(**{**SMALL, **options}), console)  # type: ignore[arg-type]
    return agrees, console.export_text()


def test_the_demo_runs_plain_resnet_beside_stock_tvm_and_says_what_to_type_next() -> None:
    agrees, text = demo()
    assert agrees
    for fact in (
        "eqsat_layout",
        "stock TVM",
        "times as long",
        "the numbers agree",
        "eqsat-layout compile model.onnx",
    ):
        assert fact in text, fact
    assert "TVM without us" not in text
    for name, package in (("ONNX Runtime", "onnxruntime"), ("torch", "torch")):
        if f"{package} is not installed" in text:
            assert f"run {name}" not in text  # it was "done", in some ms
    assert "ONNX Runtime" in text
    assert "torch" in text


def test_the_demo_can_stop_at_the_plan(tmp_path: Path) -> None:
    agrees, text = demo(run=False, html=tmp_path / "plan.html")
    assert agrees
    assert "modelled cost" in text
    assert "What changes" in text
    assert "times as long" not in text
    assert "ResNet-50" in (tmp_path / "plan.html").read_text(encoding="utf-8")


def test_numbers_that_differ_are_not_called_equal() -> None:
    assert Line("x", 1.0, 1, difference=0.9e-3).agrees(1.0)
    assert not Line("x", 1.0, 1, difference=1.1e-3).agrees(1.0)
    assert not Line("x", 1.0, 1, difference=float("nan")).agrees(1.0)


def test_what_is_not_installed_is_said() -> None:
    text = plain_text(demo_table([Line("eqsat_layout", 0.1, 3), Line("torch", missing="torch is not installed")]))
    assert "torch is not installed" in text


@pytest.mark.parametrize(("runner", "package"), [(onnx_runtime, "onnxruntime"), (torch, "torch")])
def test_other_runtimes_compute_the_same_network(runner: object, package: str) -> None:
    pytest.importorskip(package)
    mod = resnet50(batch=2, image=32, width=16, blocks=(1, 1, 1, 1))
    x = np.random.default_rng(0).standard_normal((2, 3, 32, 32), dtype=np.float32)
    np.testing.assert_allclose(runner(mod)(x), stock_tvm(mod)(x), rtol=1e-3, atol=1e-3)  # type: ignore[operator]


def test_python_m_is_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "eqsat_layout", "demo", "--help"], capture_output=True, text=True, check=True
    )
    assert "--layout" in done.stdout
