"""What TVM's C++ warns of is not shown to the users of commands; all else is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from eqsat_layout.cli.native_warnings import without_tvm_warnings


def test_tvm_warnings_are_left_out_and_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    """Fuzzing one rule wrote hundreds of lines of them around its ten lines of report."""
    with without_tvm_warnings():
        os.write(2, b"[11:38:04] /project/src/s_tir/data_layout.cc:306: Warning: src layout is invalid.\n")
        os.write(2, b"thread panicked\n")
        subprocess.run([sys.executable, "-c", "import os; os.write(2, b'from a child\\n')"], check=True)
        with open(2, "w", closefd=False) as stderr:  # pytest's sys.stderr goes past the descriptor, and may be first
            print("Warning: of ours", file=stderr)
    os.write(2, b"[11:38:04] after.cc:1: Warning: later\n")
    assert capfd.readouterr().err.splitlines() == [
        "thread panicked",
        "from a child",
        "Warning: of ours",
        "[11:38:04] after.cc:1: Warning: later",
    ]


def test_what_is_raised_goes_through(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), without_tvm_warnings():
        fail_after(b"no end of line")
    assert capfd.readouterr().err == "no end of line"


def fail_after(said: bytes) -> None:
    os.write(2, said)
    raise KeyError
