"""``torch.compile(model, backend="eqsat_layout")``: what it runs, and what it leaves to torch."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from eqsat_layout.session import torch_backend  # noqa: E402


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who ran a graph, in order: real runs of sessions."""
    seen: list[str] = []
    call = torch_backend._Compiled.__call__

    def seeing(self: Any, *given: Any) -> Any:
        seen.append("ours")
        return call(self, *given)

    monkeypatch.setattr(torch_backend._Compiled, "__call__", seeing)
    return seen


def compiled(model: Any, **options: Any) -> Callable[..., Any]:
    return torch.compile(model, backend=torch_backend.backend, **options)  # type: ignore[no-any-return]


def net() -> Any:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten()
    ).eval()


def test_the_entry_point_names_the_backend() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    ((name, path),) = tomllib.loads(text)["project"]["entry-points"]["torch_dynamo_backends"].items()
    assert (name, path) == ("eqsat_layout", "eqsat_layout.session.torch_backend:backend")


def test_a_model_is_run_by_us_for_one_size_and_for_any(runs: list[str]) -> None:
    model = net()
    fast = compiled(model)
    with torch.no_grad():
        for batch in (1, 3, 5, 7):
            x = torch.randn(batch, 3, 8, 8)
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    assert runs == ["ours"] * 4


def test_graph_breaks_give_a_graph_each(runs: list[str]) -> None:
    def model(x: Any) -> Any:
        y = torch.relu(x) + 1
        torch._dynamo.graph_break()
        return y * 2

    x = torch.randn(4)
    torch.testing.assert_close(compiled(model)(x), model(x))
    assert runs == ["ours", "ours"]


def test_weights_that_change_are_not_run_as_they_were(runs: list[str], caplog: pytest.LogCaptureFixture) -> None:
    model = net()
    fast, x = compiled(model), torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        fast(x)
        model[0].weight.mul_(2)
        with caplog.at_level(logging.WARNING, "eqsat_layout"):
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    assert "parameters were changed" in caplog.text


@pytest.mark.parametrize("case", ["gradients", "writes"])
def test_what_we_can_not_run_torch_runs(case: str, runs: list[str], caplog: pytest.LogCaptureFixture) -> None:
    def writes(x: Any) -> Any:
        x.add_(1)
        return x * 2

    with caplog.at_level(logging.WARNING, "eqsat_layout"):
        if case == "gradients":
            model, x = net(), torch.randn(1, 3, 8, 8)
            compiled(model)(x).sum().backward()
            assert model[0].weight.grad is not None
        else:
            x = torch.zeros(3)
            torch.testing.assert_close(compiled(writes)(x), torch.full((3,), 2.0))
            torch.testing.assert_close(x, torch.ones(3))
    assert "torch runs a graph" in caplog.text
    assert not runs


def test_numbers_of_a_model_are_known_where_sizes_are_dynamic(
    runs: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Dynamo gives the eps of a norm as an input then: every transformer was left to torch."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.Dropout(0.1)).eval()
    fast = compiled(model, dynamic=True)
    with torch.no_grad():
        for rows in (3, 5):
            x = torch.randn(rows, 8)
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
        assert runs == ["ours", "ours"]
        model[1].eps = 0.5
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    assert not [record for record in caplog.records if "torch runs a graph of" in record.message]
