"""Files of other kinds, and ops that TVM can't write: each is a clear error, and none hangs or ends the process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from programs import program
from tvm.relax import op as R

import eqsat_layout
from eqsat_layout.cli.run import _loaded
from eqsat_layout.errors import EqsatError, InputError, RuleError, TargetError
from eqsat_layout.targets.opencl.host.executable import OpenClProgram


@pytest.mark.parametrize("head", [b"", b"\xff" * 8 + b"{}", (100_000).to_bytes(8, "little") + b"[" * 100_000])
def test_what_is_no_program_says_so_and_names_the_file(tmp_path: Path, head: bytes) -> None:
    (tmp_path / "m.program").write_bytes(head)
    with pytest.raises(EqsatError, match=r"m.program: this is no eqsat_layout program for opencl: "):
        OpenClProgram.load(tmp_path / "m.program")


def test_a_program_is_read_of_a_file_only(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, why in ((tmp_path, "is no file"), (tmp_path / "pipe", "is no file"), (tmp_path / "none", "No such file")):
        with pytest.raises(EqsatError, match=f"{path}: {why}"):
            OpenClProgram.load(path)


@pytest.mark.parametrize(("shape", "says"), [("(1000000000000,)", "larger than memory"), ("(" * 9000, "is no array")])
def test_an_array_that_can_not_be_is_refused(tmp_path: Path, shape: str, says: str) -> None:
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head)
    with pytest.raises(InputError, match=f"x.npy: .*{says}"):
        _loaded(tmp_path / "x.npy")
    os.mkfifo(tmp_path / "pipe.npy")
    with pytest.raises(InputError, match="a pipe or a device"):
        _loaded(tmp_path / "pipe.npy")


@pytest.mark.parametrize("action", ["(grow (/ 1 0))", "(grow (* 9223372036854775807 2))"])
def test_a_rule_that_egglog_stops_at_is_named_with_its_place(tmp_path: Path, action: str) -> None:
    rules = tmp_path / "mine.egg"
    rules.write_text(f"(relation grow (i64))\n(rule ((want y f)) ({action}) :ruleset flow)\n")
    mod = program(lambda b, x: b.emit(R.permute_dims(b.emit(R.nn.relu(x)), [1, 0])), (2, 3))
    with pytest.raises(RuleError, match=r"mine.egg:2:27: stops egglog: "):
        eqsat_layout.optimize(mod, rules=[rules])


def test_an_op_that_tvm_can_not_write_is_an_error_that_names_it() -> None:
    with pytest.raises(TargetError, match=r"TVM can't build .*Index out of range. size: 1, got index 99"):
        eqsat_layout.compile(program(lambda b, x: b.emit(R.cumsum(x, axis=99)), (2,)))
