"""Sessions of programs for devices: they run where one is, and are saved as data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from compare import assert_close
from programs import program
from targets.device_cases import SIZE, chain
from targets.opencl.running import context

import eqsat_layout
from eqsat_layout.errors import EqsatError, TargetError

POCL = {"kind": "opencl", "profile": "pocl"}
CUDA = {"kind": "cuda", "arch": "sm_80"}


def feed() -> dict[str, np.ndarray]:
    return {"x0": np.random.default_rng(0).standard_normal(SIZE).astype("float32")}


def test_a_session_runs_on_a_device_and_opens_what_it_saved(tmp_path: Path) -> None:
    context()
    mod = program(chain, SIZE)
    (expected,) = eqsat_layout.Session(mod).run(None, feed())
    session = eqsat_layout.Session(mod, target=POCL)
    path = tmp_path / "net.program"
    session.save(path)
    for one in (session, eqsat_layout.Session(path)):
        assert [spec.name for spec in one.inputs] == ["x0"]
        (got,) = one.run(None, feed())
        assert_close(got, expected)


def test_a_program_for_another_machine_is_saved_and_says_why_it_does_not_run(tmp_path: Path) -> None:
    session = eqsat_layout.Session(program(chain, SIZE), target=CUDA)
    session.save(tmp_path / "net.program")
    opened = eqsat_layout.Session(tmp_path / "net.program")
    assert opened.outputs == session.outputs
    with pytest.raises(TargetError, match=r"cuda-bindings|no CUDA compiler|cuInit|NVIDIA display driver"):
        opened.run(None, feed())


def test_names_of_files(tmp_path: Path) -> None:
    session = eqsat_layout.Session(program(chain, SIZE), target=CUDA)
    with pytest.raises(EqsatError, match=r"a program for a device's name ends in \.program"):
        session.save(tmp_path / "net.so")
    (tmp_path / "other.program").write_bytes(b"no program")
    with pytest.raises(EqsatError, match=r"other\.program: this is no program"):
        eqsat_layout.Session(tmp_path / "other.program")
