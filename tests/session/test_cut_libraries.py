"""A library that is not whole is refused before the system opens it, and ends the process."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest
from tvm_ffi import core

from eqsat_layout.errors import EqsatError
from eqsat_layout.session.library import _check_whole, opened


def test_a_library_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    whole = Path(core.__file__)
    assert whole.suffix == ".so", sysconfig.get_platform()
    _check_whole(whole)
    data = whole.read_bytes()
    for size in (100, 5000, len(data) // 2):
        cut = tmp_path / f"cut{size}.so"
        cut.write_bytes(data[:size])
        with pytest.raises(EqsatError, match=f"cut{size}.so: can't be loaded: it is cut off"):
            opened(cut)
