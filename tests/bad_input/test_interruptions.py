"""Plans that are interrupted wherever the user's code is called."""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path
from typing import Any

import pytest
import tvm
from bad_input.rows import two_convolutions
from compare import assert_same_results

import eqsat_layout
from eqsat_layout.cost.model import Roofline
from eqsat_layout.errors import EqsatError


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
@pytest.mark.parametrize("where", ["flows", "candidates", "cost_model", "desired_layouts"])
def test_an_interrupted_plan_leaves_everything_usable(
    where: str, error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def interrupted(*_: Any, **__: Any) -> Any:
        raise error

    class Costs(Roofline):
        run = interrupted

    given: dict[str, Any] = {
        "flows": {"relax.nn.relu": interrupted},
        "candidates": {"relax.nn.relu": interrupted},
        "cost_model": Costs(),
        "desired_layouts": {"relax.nn.relu": interrupted},
    }
    mod = two_convolutions()
    before = tvm.ir.save_json(mod)
    expected = (error, EqsatError) if issubclass(error, Exception) else error
    with pytest.raises(expected):
        eqsat_layout.plan(mod, **{where: given[where]})
    assert not list(tmp_path.iterdir())
    assert tvm.ir.save_json(mod) == before
    assert gc.isenabled()
    assert_same_results(mod, eqsat_layout.optimize(mod))
