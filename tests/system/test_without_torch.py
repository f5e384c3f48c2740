"""Where torch is installed, TVM does not import it before anybody else does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from session.functions import Affine

import eqsat_layout

ROOT = Path(eqsat_layout.__file__).parents[1]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A package ``torch`` that leaves a file for each process that imports it."""
    (tmp_path / "torch").mkdir()
    note = f"import os, pathlib; pathlib.Path({str(tmp_path)!r}, f'imported{{os.getpid()}}').touch()"
    (tmp_path / "torch" / "__init__.py").write_text(note)
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    return os.environ | {
        "PYTHONPATH": paths,
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1",
    }


def run(code: str, environment: dict[str, str]) -> None:
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, cwd=ROOT)


def imported(environment: dict[str, str]) -> list[Path]:
    return [*Path(environment["PYTHONPATH"].split(os.pathsep)[0]).glob("imported*")]


def test_a_library_is_opened_and_run_without_torch(environment: dict[str, str], tmp_path: Path) -> None:
    """Where torch was installed that took 3 s and 180 MB of each process."""
    eqsat_layout.Session(Affine).save(tmp_path / "affine.so")
    run(
        f"""
import numpy as np, eqsat_layout
session = eqsat_layout.Session({str(tmp_path / "affine.so")!r})
session.run(None, {{s.name: np.ones([2 if e == "n" else e for e in s.shape], s.dtype) for s in session.inputs}})
""",
        environment,
    )
    assert not imported(environment)


def test_a_model_is_compiled_without_torch_in_this_process_and_in_its_workers(
    environment: dict[str, str], tmp_path: Path
) -> None:
    from eqsat_layout.readers.modules import write_module

    write_module(Affine, tmp_path / "affine.json")
    run(f"import eqsat_layout; eqsat_layout.Session({str(tmp_path / 'affine.json')!r})", environment)
    run(f"from eqsat_layout.cli.main import app; app(['compile', {str(tmp_path / 'affine.json')!r}])", environment)
    assert (tmp_path / "affine.so").exists()
    assert not imported(environment)


def test_others_import_torch_meanwhile(environment: dict[str, str]) -> None:
    run("from eqsat_layout.system.without_torch import without_torch\nwith without_torch(): import torch", environment)
    assert len(imported(environment)) == 1


def test_tensors_of_a_torch_that_comes_later_are_taken(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the group bench has it")
    eqsat_layout.Session(Affine).save(tmp_path / "affine.so")
    run(
        f"""
import sys, numpy as np, eqsat_layout
session = eqsat_layout.Session({str(tmp_path / "affine.so")!r})
assert "torch" not in sys.modules
import torch
given = {{s.name: torch.ones([2 if e == "n" else e for e in s.shape]) for s in session.inputs}}
for i in range(3):
    y, x = session.run(None, given)
    np.testing.assert_array_equal(y, np.full((2, 3), 5, "float32"))
    assert torch.from_dlpack(x).shape == (2, 4)
""",
        dict(os.environ),
    )
