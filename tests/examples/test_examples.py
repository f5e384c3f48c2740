"""Every example runs in an interpreter of its own and finds what it promises."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def missing(path: Path) -> list[str]:
    """The packages that it imports and that are not installed here."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    imported += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    packages = {name.partition(".")[0] for name in imported}
    return sorted(name for name in packages if importlib.util.find_spec(name) is None)


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in EXAMPLES])
def test_it_runs(path: Path, tmp_path: Path) -> None:
    if missing(path):
        pytest.skip(f"needs {' and '.join(missing(path))}")
    if path.stem == "torch_model" and "eqsat_layout" not in entry_points(group="torch_dynamo_backends").names:
        pytest.skip("torch finds the backend of an installed package only")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(path)], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip()


def test_there_is_one_for_each_thing_that_one_starts_with() -> None:
    wanted = {"onnx_model", "torch_model", "other_process", "dynamic_shapes", "tune_kernels", "own_rule"}
    assert wanted <= {path.stem for path in EXAMPLES}
