"""Values of narrow floats that have names in a kernel: TVM read the bits of bfloat16 as whole numbers there."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from programs import program
from tvm import relax
from tvm.relax import op

import eqsat_layout

X = np.random.default_rng(0).standard_normal((5, 20)).astype(ml_dtypes.bfloat16)
WIDE = X.astype("float32")

CASES: dict[str, tuple[Any, Any]] = {
    "exponentials of what is made float32": (
        lambda emit, x: emit(op.sigmoid(emit(op.astype(x, "float32")))),
        1 / (1 + np.exp(-WIDE)),
    ),
    "powers": (lambda emit, x: emit(op.power(emit(op.abs(x)), relax.const(1.5, "bfloat16"))), np.abs(WIDE) ** 1.5),
    "places of the largest": (lambda emit, x: emit(op.argmax(x, 1)), WIDE.argmax(1)),
    "sorts": (lambda emit, x: emit(op.sort(x)), np.sort(WIDE)),
    "places of sorts": (lambda emit, x: emit(op.argsort(x, 0)), np.argsort(WIDE, 0, kind="stable")),
    "the largest few": (lambda emit, x: emit(op.topk(x, 3, ret_type="values")), -np.sort(-WIDE)[:, :3]),
    "what is NaN": (lambda emit, x: emit(op.isnan(x)), np.isnan(WIDE)),
}


@pytest.mark.parametrize("name", CASES)
def test_bfloat16(name: str) -> None:
    make, expected = CASES[name]
    session = eqsat_layout.Session(program(lambda b, x: make(b.emit, x), X.shape, dtype="bfloat16"))
    (got,) = session.run(None, {session.inputs[0].name: X})
    np.testing.assert_allclose(np.asarray(got).astype("float32"), expected.astype("float32"), rtol=1e-2)
