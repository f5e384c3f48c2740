"""What programs of torch take and give beside tensors, and sizes that are multiples."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eqsat_layout

torch = pytest.importorskip("torch")
X = torch.arange(24.0).reshape(6, 4)


class _Of(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: Any, **named: Any) -> Any:
        return self.function(*given, **named)


def test_what_is_no_tensor_stays_as_it_was_exported(caplog: pytest.LogCaptureFixture) -> None:
    """ "'int' object has no attribute 'shape'", "Cannot determine shape and dtype for input"."""

    def function(x: Any, k: int, mask: Any = None, mode: str = "a") -> Any:
        return {"made": x * k if mask is None else x * mask, "hidden": None, "k": k, "mode": mode, "last": x + 1}

    program = torch.export.export(_Of(function).eval(), (X, 3), {"mask": None, "mode": "b"})
    with caplog.at_level(logging.INFO, "eqsat_layout"):
        session = eqsat_layout.Session(program)
    assert [len(session.inputs), len(session.outputs)] == [1, 2]
    made, last = session.run(None, {session.inputs[0].name: X})
    np.testing.assert_array_equal(made, X.numpy() * 3)
    np.testing.assert_array_equal(last, X.numpy() + 1)
    assert "what is no tensor stays as it was exported" in caplog.text


def test_a_program_that_writes_to_its_input_says_so(caplog: pytest.LogCaptureFixture) -> None:
    program = torch.export.export(_Of(lambda x: x.add_(1) * 2), (X.clone(),))
    session, given = eqsat_layout.Session(program), X.clone()
    np.testing.assert_array_equal(session.run(None, {session.inputs[0].name: given})[0], (X.numpy() + 1) * 2)
    assert torch.equal(given, X)
    assert "which stays as it is" in caplog.text


def test_a_size_that_is_a_multiple_is_a_symbol() -> None:
    """ "Var s69 is not defined": no input has the size that it is a multiple of."""
    n = torch.export.Dim("n", min=1, max=64)
    model = _Of(lambda x: x.unflatten(0, (-1, 2)).sum(1))
    session = eqsat_layout.Session(torch.export.export(model, (X,), dynamic_shapes={"given": ({0: 2 * n},)}))
    for rows in (6, 10):
        x = torch.randn(rows, 4)
        got = session.run(None, {session.inputs[0].name: x})
        np.testing.assert_allclose(got[0], model(x).numpy(), rtol=1e-6, atol=1e-6)


def test_sizes_are_called_as_the_user_calls_them() -> None:
    """ "expected float32 (s17, s94)": torch's own symbols, which no one can know or give to ``assume``."""
    dims = ({0: torch.export.Dim("rows")}, {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO})
    model = _Of(lambda x, y: (x + 1, torch.cat([y, y], 1)))
    session = eqsat_layout.Session(torch.export.export(model, (X, X.clone()), dynamic_shapes={"given": dims}))
    names = [spec.name for spec in session.inputs]
    assert [spec.shape for spec in session.inputs] == [("rows", 4), (f"{names[1]}_0", f"{names[1]}_1")]
    assert session.outputs[0].shape == ("rows", 4)
    got = session.run(None, {names[0]: X[:3], names[1]: X[:2, :3]})
    np.testing.assert_array_equal(got[1], np.concatenate([X[:2, :3]] * 2, 1))
