"""Sizes that a program says it is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm.script import ir as I
from tvm.script import relax as R

import eqsat_layout
from eqsat_layout.errors import InputError


@I.ir_module
class Ranged:
    @R.function
    def main(x: R.Tensor((2, "n"), "float32"), y: R.Tensor(("m", "n"), "float32")):
        R.func_attr({"tir_var_lower_bound": {"n": 4, "m": 0}, "tir_var_upper_bound": {"n": 12}})
        with R.dataflow():
            z = R.concat((x, y), axis=0)
            R.output(z)
        return z


def feed(n: int) -> dict[str, Any]:
    return {"x": np.ones((2, n), "float32"), "y": np.zeros((1, n), "float32")}


@pytest.mark.parametrize("saved", [False, True])
def test_a_size_outside_of_its_range_is_an_error(tmp_path: Path, saved: bool) -> None:
    """It ran: what the program does there was left out, and memory may be planned for the largest size."""
    session = eqsat_layout.Session(Ranged, candidates=False)
    if saved:
        session.save(tmp_path / "ranged.so")
        session = eqsat_layout.Session(tmp_path / "ranged.so")
    for n in (4, 12):
        assert session.run(None, feed(n))[0].shape == (3, n)
    for n in (3, 13):
        with pytest.raises(InputError, match=rf"'x': expected .* got float32 \(2, {n}\).* n is 4 to 12"):
            session.run(None, feed(n))


@pytest.mark.parametrize("size", [13, [8, 13]])
def test_sizes_that_are_asked_for_lie_in_their_range(size: Any) -> None:
    with pytest.raises(InputError, match="axis 1 of 'x' is 13, and the program is for sizes where n is 4 to 12"):
        eqsat_layout.plan(Ranged, shapes={"x": (2, size)}, candidates=False)


def test_a_program_made_for_some_sizes_keeps_its_ranges() -> None:
    session = eqsat_layout.Session(Ranged, shapes={"x": (2, [8])}, candidates=False)
    assert session.run(None, feed(8))[0].shape == (3, 8)
    with pytest.raises(InputError, match="n is 4 to 12"):
        session.run(None, feed(13))
