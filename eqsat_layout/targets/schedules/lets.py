"""Expressions with names for what occurs twice in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx


def polynomial(coefficients: Sequence[float], x: Any) -> Any:
    """Highest power first."""
    total: Any = tirx.const(coefficients[0], "float32")
    for coefficient in coefficients[1:]:
        total = total * x + tirx.const(coefficient, "float32")
    return total


def named(value: Any, body: Callable[[Any], Any]) -> Any:
    """``body`` of a variable that stands for ``value``."""
    variable = tirx.Var("v", value.ty)
    return tirx.Let(variable, value, body(variable))
