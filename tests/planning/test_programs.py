"""What is the same program, so that it is compiled once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eqsat_layout.models import resnet50
from eqsat_layout.planning.programs import KnownPrograms
from eqsat_layout.system.store import ArtefactStore
from eqsat_layout.targets.registry import target


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"approx": True, "candidates": True, "validate": False, "fallback": False}, id="what is usual"),
        pytest.param({"rules": None, "time_limit": None}, id="none"),
        pytest.param({"rules": []}, id="no rules"),
        pytest.param({"notes": []}, id="notes"),
    ],
)
def test_options_that_say_nothing_give_the_same_program(tmp_path: Path, options: dict[str, Any]) -> None:
    """`compile` of the command line says ``approx=True``, and `run` compiled the same model again."""
    programs, mod = (
        KnownPrograms(target(), ArtefactStore(tmp_path, 1 << 20)),
        resnet50(image=32, width=8, blocks=(1, 1, 1, 1)),
    )
    assert programs.key(mod, options) == programs.key(mod, {}) is not None
    assert programs.key(mod, {"approx": False}) != programs.key(mod, {})
    assert programs.key(mod, {"candidates": False}) != programs.key(mod, {})
    assert programs.key(mod, {"time_limit": 0}) != programs.key(mod, {})
