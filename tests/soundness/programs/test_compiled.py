"""Compiled programs beside TVM's own, on special values: those that are exact agree, and others are found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from programs import program
from tvm import relax
from tvm.relax import op as R

from eqsat_layout.soundness.programs import compiled
from eqsat_layout.soundness.programs.choices import Choices
from eqsat_layout.soundness.programs.generator import RandomProgram, make_program


def test_random_programs_are_exact() -> None:
    found = [compiled.compiled_difference(make_program(Choices.of_seed(seed)), seed) for seed in (1, 45, 62, 109)]
    assert not any(found)
    assert "" in found


@pytest.mark.parametrize("seed", [74300000000016, 75300000000015])
def test_what_is_documented_is_no_difference(seed: int) -> None:
    """Steps of quantisation behind exact products of bytes."""
    assert compiled.compiled_difference(make_program(Choices.of_seed(seed)), seed) == ""


def test_kernels_of_other_types_than_relax_says_are_not_compared() -> None:
    """TVM's outer product of integers and float16 is float16, in the place of the integers that its type says."""

    def body(b: Any, x: Any) -> Any:
        whole = b.emit(R.astype(x, "int32"))
        return R.astype(b.emit(R.outer(whole, relax.const(np.float16([0.5, 1.5, 2.5])))), "float32")

    assert compiled.compiled_difference(RandomProgram(program(body, (5,)), {}), 0) is None


def test_what_tvm_cannot_legalise_is_not_compared() -> None:
    """The negative of uint8, which TVM refuses as it legalises: the error ended the check, and the fuzzer failed."""
    mod = program(lambda b, x: R.astype(b.emit(R.negative(R.astype(x, "uint8"))), "float32"), (5,))
    assert compiled.compiled_difference(RandomProgram(mod, {}), 0) is None


def test_what_the_default_gives_up_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest of rows with NaN, from partial results in the lanes of vectors."""
    mod = program(lambda b, x: R.max(x, axis=[1]), (8, 96))
    assert compiled.compiled_difference(RandomProgram(mod, {}), 0) == ""
    build = compiled.compiled
    monkeypatch.setattr(compiled, "compiled", lambda mod, **_: build(mod))
    assert "differs" in (compiled.compiled_difference(RandomProgram(mod, {}), 0) or "")


def test_what_tvm_cannot_run_is_not_compared() -> None:
    """The first ones of truth values, which TVM's library of sorts refuses: the error was said to be the package's."""
    mod = program(lambda b, x: R.topk(R.astype(x, "bool"), 2, -1, "values"), (2, 5))
    assert compiled.compiled_difference(RandomProgram(mod, {}), 0) is None
