"""What is the same program, so that it is compiled once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import eqsat_layout
from eqsat_layout.models import resnet50
from eqsat_layout.notes import Notes
from eqsat_layout.planning.programs import KnownPrograms
from eqsat_layout.system.frames import head_of
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


def test_a_file_that_was_compiled_is_found_by_its_contents(tmp_path: Path) -> None:
    """torch takes seconds to read what it exported, at every start."""
    own, mod, path = target(), resnet50(image=32, width=8, blocks=(1, 1, 1, 1)), tmp_path / "model.pt2"
    programs, notes = KnownPrograms(own, ArtefactStore(tmp_path, 1 << 30)), Notes()
    path.write_bytes(b"a model")
    key = programs.key_of_files([path], {}, "torch 2")
    assert programs.of_file(key, notes) is None
    program = programs.key(mod, {})
    programs._write(str(program), [head_of(["a note"]), *(own.saved(eqsat_layout.compile(mod, own)) or ())])
    programs.keep_file(key, program)
    assert programs.of_file(key, notes) is not None
    assert list(notes) == ["a note"]
    assert programs.key_of_files([path], {}, "torch 3") != key
    assert programs.key_of_files([path], {"approx": False}, "torch 2") != key
    path.write_bytes(b"another model")
    assert programs.key_of_files([path], {}, "torch 2") != key
    assert programs.key_of_files([tmp_path / "none.pt2"], {}, "torch 2") is None
