"""A model of torch, and any by our backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from eqsat_layout.session import torch_backend


def compiled(model: Any, **options: Any) -> Callable[..., Any]:
    return torch.compile(model, backend=torch_backend.backend, **options)  # type: ignore[no-any-return]


def net() -> Any:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten()
    ).eval()
