"""Arithmetic on float32: numbers, polynomials, and names for what occurs twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx


def f32(value: float) -> Any:
    """A float32."""
    return tirx.const(value, "float32")


def i32(value: int) -> Any:
    """An int32: bits of a float32, or a count."""
    return tirx.const(value, "int32")


def polynomial(coefficients: Sequence[float], x: Any) -> Any:
    """Highest power first."""
    total: Any = f32(coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + f32(coefficient)
    return total


def named(value: Any, body: Callable[[Any], Any]) -> Any:
    """``body`` of a variable that stands for ``value``."""
    variable = tirx.Var("v", value.ty)
    return tirx.Let(variable, value, body(variable))
