"""Constants are computed in another process, and whoever asks hears when that process ends."""

import tempfile
from typing import Any

import numpy as np
import pytest
from programs import program
from tvm import relax, te
from tvm.relax import op as R

import eqsat_layout
from eqsat_layout.errors import EqsatError
from eqsat_layout.passes.evaluate import evaluate


def test_constants_that_end_their_process_are_named() -> None:
    """Indices that a kernel computes of nothing but its loops are not looked at."""
    table = relax.const(np.ones((4, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        far = lambda x: te.compute((2, 8), lambda i, j: x[i + 10**12, j])  # noqa: E731
        builder.emit_func_output(builder.emit(relax.Tuple([builder.emit_te(far, table, primfunc_name_hint="far")])))
    with pytest.raises(EqsatError, match=r"constants can't be computed ahead \(far\)"):
        evaluate(builder.get())


def test_constants_at_indices_out_of_range_are_the_nearest_ones() -> None:
    """They ended the process that computes constants."""
    table = relax.const(np.arange(32, dtype="float32").reshape(4, 8))
    rows = relax.const(np.array([0, 10**9], "int64"))
    mod = program(lambda b, x: b.emit(R.add(x, b.emit(R.take(table, rows, axis=0)))), (2, 8))
    (found,) = eqsat_layout.Session(mod).run(None, {"x0": np.zeros((2, 8), "float32")})
    np.testing.assert_array_equal(found, np.arange(32, dtype="float32").reshape(4, 8)[[0, 3]])


def test_a_process_that_is_killed_leaves_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """It left one in /dev/shm, where containers have little room."""

    def refused(**_: Any) -> Any:
        raise OSError("no folder")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", refused)
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        made = builder.emit(R.add(relax.const(np.ones(3, "float32")), relax.const(np.ones(3, "float32"))))
        builder.emit_func_output(builder.emit(relax.Tuple([made])))
    np.testing.assert_array_equal(evaluate(builder.get())[0].numpy(), [2, 2, 2])
