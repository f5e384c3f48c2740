"""What no input may do: crash, hang, or give a wrong result. One row per malformed input.

A row says what is given and what comes: an exception of the package whose text names what is at fault, the input module
back, or a plan with a note.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from compare import assert_same_results
from programs import constant, program
from tvm.relax import op as R

import eqsat_layout


@dataclass(frozen=True)
class Row:
    """``given`` makes the options of a plan, or does something of its own and gives nothing.

    ``comes``: an exception class, or None for a plan that is right; ``says`` is in its text or among the notes.
    """

    name: str
    given: Callable[[Path], dict[str, Any] | None]
    comes: type[BaseException] | None
    says: Sequence[str] = ()
    mod: Callable[[], Any] | None = None


def relu_chain() -> Any:
    return program(lambda b, x: R.nn.relu(b.emit(R.nn.relu(x))), (4, 6))


def two_convolutions() -> Any:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(R.nn.conv2d(x, constant(8, 8, 1, 1)))
        return R.nn.conv2d(builder.emit(R.nn.relu(y)), constant(8, 8, 1, 1, seed=1))

    return program(body, (1, 8, 4, 4), frozen={"relax.nn.conv2d": ["NHWC", "OHWI"]})


def options(**given: Any) -> Callable[[Path], dict[str, Any]]:
    return lambda _: given


def check(row: Row, folder: Path) -> None:
    """What comes is what the row says."""
    given = row.given(folder)
    mod = (row.mod or two_convolutions)()
    if given is None:
        return
    if row.comes is not None:
        with pytest.raises(row.comes) as caught:
            eqsat_layout.plan(mod, **given)
        assert not [text for text in row.says if text not in str(caught.value)], str(caught.value)
        return
    plan = eqsat_layout.plan(mod, **given)
    if row.says == ["same"]:
        assert plan.module is mod
        return
    missing = [text for text in row.says if not any(text in note for note in plan.notes)]
    assert not missing, plan.notes
    assert_same_results(mod, plan.module)
