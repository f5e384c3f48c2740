"""Interrupts while TVM is at work."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import tvm
from programs import program
from tvm import relax

import eqsat_layout
from eqsat_layout.system.sigterm import sigterm_exits


@pytest.mark.parametrize(
    "raised", [KeyboardInterrupt(), SystemExit(143), SystemExit(), SystemExit("text"), TimeoutError("late")]
)
def test_what_a_handler_raises_inside_of_tvm_is_that_outside(raised: BaseException) -> None:
    """It was a RuntimeError, which counts as what TVM can't do."""
    assert eqsat_layout.compile  # it is imported

    @tvm.ir.transform.module_pass(opt_level=0)
    def interrupted(*_: Any) -> Any:
        raise raised

    with pytest.raises(type(raised)) as found:
        interrupted(tvm.IRModule())
    assert str(found.value) in (str(raised), "None")
    if isinstance(raised, SystemExit):
        assert found.value.code == raised.code


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_an_interrupt_in_a_pass_ends_the_compilation(
    number: int, expected: type[BaseException], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Ctrl-C was lost: the command went on and ended with exit code 0, its kernels without schedules."""
    monkeypatch.setenv("EQSAT_LAYOUT_STRICT", "")
    legalize = relax.transform.LegalizeOps

    def interrupting(*given: Any, **options: Any) -> Any:
        @tvm.ir.transform.module_pass(opt_level=0)
        def late(mod: Any, _: Any) -> Any:
            os.kill(os.getpid(), number)
            return legalize(*given, **options)(mod)

        return late

    monkeypatch.setattr(relax.transform, "LegalizeOps", interrupting)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with sigterm_exits(), pytest.raises(expected):
        # of a shape that no other test has: what was legalised is remembered
        eqsat_layout.compile(program(lambda b, x: relax.op.exp(b.emit(relax.op.nn.relu(x))), (3, 41, number)))
