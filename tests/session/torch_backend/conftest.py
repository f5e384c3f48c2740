"""What the tests of the backend share: torch as after its start, and who ran a graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    torch = pytest.importorskip("torch")
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who ran a graph, in order: real runs of sessions."""
    from eqsat_layout.session import torch_backend

    seen: list[str] = []
    call = torch_backend._Compiled.__call__

    def seeing(self: Any, *given: Any) -> Any:
        seen.append("ours")
        return call(self, *given)

    monkeypatch.setattr(torch_backend._Compiled, "__call__", seeing)
    return seen
