"""Compiled programs beside TVM's own, on special values: those that are exact agree, and others are found."""

from __future__ import annotations

import pytest
from programs import program
from tvm.relax import op as R

from eqsat_layout.soundness.programs import compiled
from eqsat_layout.soundness.programs.choices import Choices
from eqsat_layout.soundness.programs.generator import RandomProgram, make_program


def test_random_programs_are_exact() -> None:
    found = [compiled.compiled_difference(make_program(Choices.of_seed(seed)), seed) for seed in (1, 45, 62, 109)]
    assert not any(found)
    assert "" in found


def test_what_the_default_gives_up_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest of rows with NaN, from partial results in the lanes of vectors."""
    mod = program(lambda b, x: R.max(x, axis=[1]), (8, 96))
    assert compiled.compiled_difference(RandomProgram(mod, {}), 0) == ""
    build = compiled.compiled
    monkeypatch.setattr(compiled, "compiled", lambda mod, **_: build(mod))
    assert "differs" in (compiled.compiled_difference(RandomProgram(mod, {}), 0) or "")
