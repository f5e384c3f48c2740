"""What a session is given by name: paths of all kinds, libraries of other machines; what can't be pickled."""

from __future__ import annotations

import copy
import os
import pickle
import platform
from pathlib import Path

import numpy as np
import pytest
from tvm import relax

import eqsat_layout
from eqsat_layout.cli.common import check_outputs
from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.modules import write_module
from eqsat_layout.session.library import check_library_path


def doubling(rows: object = 2) -> object:
    x = relax.Var("x", relax.TensorType((rows, 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.op.add(x, x))
        builder.emit_func_output(y)
    return builder.get()


@pytest.mark.parametrize("given", ["", "net\0.json"])
@pytest.mark.parametrize("take", [eqsat_layout.Session, eqsat_layout.plan])
def test_what_no_file_is_called_is_refused(take: object, given: str) -> None:
    """The empty name was called a directory, a zero in it was a ValueError."""
    with pytest.raises(EqsatError, match="is no path of a file"):
        take(given)


@pytest.mark.parametrize("suffix", [".onnx", ".so", ".py"])
def test_a_name_that_is_too_long_is_refused(tmp_path: Path, suffix: str) -> None:
    """It was an OSError, as was a file in a folder that is closed to its user."""
    given = tmp_path / ("net" * 999 + suffix)
    for use in (eqsat_layout.Session, eqsat_layout.plan, lambda path: check_outputs([path])):
        with pytest.raises(EqsatError, match=r"File name too long|is compiled already"):
            use(given)
    with pytest.raises(EqsatError, match=r"File name too long|name ends in"):
        check_library_path(given, ".so")


@pytest.mark.skipif(os.geteuid() == 0, reason="no folder is closed to root")
def test_a_file_in_a_closed_folder_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o600)
    with pytest.raises(EqsatError, match="Permission denied"):
        eqsat_layout.Session(tmp_path / "net.onnx")


@pytest.mark.parametrize("name", ["NET.JSON", "мой net ü.Json", "net.PY"])
def test_suffixes_are_read_in_capitals_too(tmp_path: Path, name: str) -> None:
    plain = tmp_path / f"plain{Path(name).suffix.lower()}"
    write_module(doubling(), plain)
    path = plain.rename(tmp_path / name)
    (got,) = eqsat_layout.Session(path).run(None, {"x": np.ones((2, 3), "float32")})
    assert (got == 2).all()


def test_sizes_may_be_numbers_of_numpy() -> None:
    """They were no sizes."""
    from tvm import tirx

    module = doubling(tirx.Var("n", "int64"))
    assert eqsat_layout.Session(module, shapes={"x": (np.int64(2), 3)}).inputs[0].shape == (2, 3)


def test_a_session_says_that_it_can_t_be_pickled() -> None:
    """TVM said that a module does not support SaveToBytes."""
    session = eqsat_layout.Session(doubling())
    for take in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match=r"save\(\) it, and open the library in the other process"):
            take(session)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="sets of instructions are looked at on x86 only")
def test_a_library_for_instructions_that_this_machine_has_not_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first run ended the process."""
    path = tmp_path / "net.so"
    eqsat_layout.Session(doubling(), target={"kind": "llvm", "mcpu": "sapphirerapids"}).save(path)
    monkeypatch.setattr("eqsat_layout.session.library._instructions", lambda: frozenset({"avx", "avx2", "fma", "f16c"}))
    with pytest.raises(EqsatError, match=r"net\.so: is for a processor with .*avx512f.*does not have"):
        eqsat_layout.Session(path)
