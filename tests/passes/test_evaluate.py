"""Constants are computed in another process, and whoever asks hears when that process ends."""

import numpy as np
import pytest
from programs import program
from tvm import relax
from tvm.relax import op as R

import eqsat_layout
from eqsat_layout.errors import EqsatError


def test_constants_that_end_their_process_are_named() -> None:
    table = relax.const(np.ones((4, 8), "float32"))
    rows = relax.const(np.array([0, 10**12], "int64"))
    mod = program(lambda b, x: b.emit(R.add(x, b.emit(R.take(table, rows, axis=0)))), (2, 8))
    with pytest.raises(EqsatError, match=r"constants can't be computed ahead \(take\)"):
        eqsat_layout.optimize(mod)
