"""The grammar of Relax texts is wide enough: what TVM prints and reads is read here, to the same module."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import tvm
import tvm_ffi
from effort import tries
from tvm import relax

from eqsat_layout.models import resnet50
from eqsat_layout.readers.text.json_guard import checked_json
from eqsat_layout.readers.text.script import read_script
from eqsat_layout.soundness.programs.choices import Choices
from eqsat_layout.soundness.programs.generator import make_program

PASSES: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda mod: mod,
    "legalised": relax.transform.LegalizeOps(),
    "zero pipeline": relax.get_pipeline("zero"),
}


def same_after_reading(mod: Any) -> bool:
    """As TVM's own reader reads it; what that does not read is no text."""
    text = str(mod.script(show_meta=True))
    try:
        stock = tvm.script.from_source(text)
    except tvm.error.DiagnosticError:
        return True
    return bool(tvm_ffi.structural_equal(read_script(text), stock))


@pytest.mark.parametrize("name", list(PASSES))
def test_a_network_is_read_back(name: str) -> None:
    assert same_after_reading(PASSES[name](resnet50(image=32, width=16, blocks=(1, 1))))


@pytest.mark.parametrize("seed", range(tries(30)))
def test_random_programs_are_read_back(seed: int) -> None:
    mod = make_program(Choices(random.Random(seed).randrange)).module
    assert same_after_reading(mod)
    assert same_after_reading(relax.transform.LegalizeOps()(mod))


def test_names_may_be_those_of_builtins() -> None:
    """They are common: ``input`` is what frontends call a parameter."""
    builder = relax.BlockBuilder()
    x, y = (relax.Var(name, relax.TensorType((2, 3), "float32")) for name in ("input", "max"))
    with builder.function("main", [x, y]):
        z = builder.emit(relax.op.add(x, y), name_hint="sum")
        z = builder.emit(relax.op.nn.relu(z), name_hint="open")
        builder.emit_func_output(z)
    assert same_after_reading(builder.get())


def test_large_unsigned_constants_are_read_from_json() -> None:
    number = tvm.tirx.IntImm("uint64", (1 << 63) + 5)
    assert tvm_ffi.structural_equal(tvm.ir.load_json(checked_json(tvm.ir.save_json(number))), number)
