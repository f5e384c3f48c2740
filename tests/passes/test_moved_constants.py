"""Constants of which ops only move the elements are folded in this process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from programs import program
from tvm import relax
from tvm.relax import op as R

from eqsat_layout.notes import Notes
from eqsat_layout.passes.fold_constants import fold_constants

GIVEN = np.arange(24, dtype="float32").reshape(2, 3, 4)


def folded(fold: Any) -> list[np.ndarray]:
    """The constants of ``x + fold(GIVEN)`` when it is folded."""
    mod = program(lambda b, x: b.emit(R.add(x, fold(b, relax.const(GIVEN)))), (1,))
    found: list[np.ndarray] = []

    def note(expr: Any) -> None:
        if isinstance(expr, tvm.ir.GenericConst):
            found.append(expr.value.numpy())

    relax.analysis.post_order_visit(fold_constants(mod, Notes(strict=True))["main"], note)
    return found


def moved(b: Any, c: Any) -> Any:
    turned = b.emit(R.permute_dims(c, [2, 0, 1]))
    return b.emit(R.expand_dims(b.emit(R.reshape(turned, (8, 3))), 0))


def in_blocks(b: Any, c: Any) -> Any:
    return b.emit(R.layout_transform(c, lambda i, j, k: (i, j, k // 2, k % 2)))


@pytest.mark.parametrize(
    ("fold", "wanted"),
    [(moved, GIVEN.transpose(2, 0, 1).reshape(1, 8, 3)), (in_blocks, GIVEN.reshape(2, 3, 2, 2))],
    ids=["chain", "layout"],
)
def test_what_only_moves_needs_no_other_process(monkeypatch: pytest.MonkeyPatch, fold: Any, wanted: np.ndarray) -> None:
    monkeypatch.setattr("eqsat_layout.passes.fold_constants.evaluate", None)
    (found,) = folded(fold)
    np.testing.assert_array_equal(found, wanted)


def test_what_is_computed_of_moved_constants_is_computed() -> None:
    (found,) = folded(lambda b, c: b.emit(R.sqrt(moved(b, c))))
    np.testing.assert_allclose(found, np.sqrt(GIVEN.transpose(2, 0, 1).reshape(1, 8, 3)), rtol=1e-6)


def test_copies_that_leave_elements_out_or_repeat_them_are_no_moves() -> None:
    (found,) = folded(lambda b, c: b.emit(R.strided_slice(c, [1], [1], [3])))
    np.testing.assert_array_equal(found, GIVEN[:, 1:3])
