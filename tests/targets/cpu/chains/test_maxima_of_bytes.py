"""Maxima of floats that were bytes are taken of the bytes, where that is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from targets.cpu.byte_kernels import HERE, operands, ran
from tvm import te, tirx

from eqsat_layout.targets.cpu.chains.maxima_of_bytes import maxima_of_bytes
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.tir.blocks import block_of, statements_of

LOWEST = -3.4028234663852886e38
SIZE, CHANNELS = 9, 32


def pooled(
    dtype: str = "uint8",
    *,
    scale: float = 0.5,
    zero: int = 3,
    edge: int = 1,
    border: float = LOWEST,
    stride: int = 2,
    then: str = "same",
    also: bool = False,
) -> Any:
    """Windows of 3 x 3. ``then``: what follows, the same bytes again, others, or floats. ``also``: another reader."""
    x = te.placeholder((1, SIZE, SIZE, CHANNELS), dtype, "x")
    float_of = te.compute(
        x.shape, lambda *i: (x(*i).astype("int32") - zero).astype("float32") * te.const(scale, "float32"), "float_of"
    )

    def padded(n: Any, y: Any, z: Any, c: Any) -> Any:
        inside = tirx.all(edge <= y, y < SIZE + edge, edge <= z, z < SIZE + edge)
        return tirx.if_then_else(inside, float_of[n, y - edge, z - edge, c], te.const(border, "float32"))

    source = te.compute((1, SIZE + 2 * edge, SIZE + 2 * edge, CHANNELS), padded, "padded") if edge else float_of
    r, s = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 3), "s")
    places = (SIZE + 2 * edge - 3) // stride + 1
    shape = (1, places, places, CHANNELS)
    window = te.compute(
        shape, lambda n, y, z, c: te.max(source[n, y * stride + r, z * stride + s, c], axis=[r, s]), "window"
    )
    low, high = (0, 255) if dtype == "uint8" else (-128, 127)

    def byte(*i: Any) -> Any:
        value = tirx.round(window(*i) * te.const(1 / scale if then == "same" else 1.7, "float32")) + float(zero)
        return tirx.max(tirx.min(value, te.const(high, "float32")), te.const(low, "float32")).astype(dtype)

    result = window if then == "floats" else te.compute(shape, byte, "byte")
    others = [te.compute(x.shape, lambda *i: float_of(*i) + 1.0, "other")] if also else []
    return te.create_prim_func([x, *others, result], index_dtype_override="int64")


def names(func: Any) -> list[str]:
    return [str(block_of(statement).name_hint) for statement in statements_of(func)]


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({}, ["padded", "window"]),
        ({"then": "others"}, ["padded", "window", "widened", "byte"]),
        ({"then": "floats"}, ["padded", "window", "widened"]),
        ({"edge": 0}, ["window"]),
        ({"dtype": "int8", "zero": -7, "stride": 1}, ["padded", "window"]),
        ({"dtype": "int8", "scale": 0.013, "then": "others", "edge": 2}, ["padded", "window", "widened", "byte"]),
    ],
)
def test_bytes_are_compared(options: dict[str, Any], left: list[str]) -> None:
    func = pooled(**options)
    changed = maxima_of_bytes(func)
    assert names(changed) == left
    arrays = operands(func)
    np.testing.assert_array_equal(
        ran(schedule_primfunc(changed, HERE.machine), arrays), ran(schedule_primfunc(func, HERE.machine), arrays)
    )


@pytest.mark.parametrize(
    "options",
    [
        {"scale": -0.5},  # the largest byte is the smallest float
        {"border": -1.0},  # larger than some
        {"edge": 3},  # windows of nothing but the border
        {"also": True},  # floats that others read
        {"scale": float("inf")},
    ],
)
def test_others_are_left_alone(options: dict[str, Any]) -> None:
    func = pooled(**options)
    assert maxima_of_bytes(func).same_as(func)


def test_a_step_between_the_bytes_and_the_border_is_left_alone() -> None:
    """Was a fault, and no reason."""
    x = te.placeholder((1, 8, 32), "uint8", "x")
    made = te.compute(x.shape, lambda *i: x(*i).astype("float32") * te.const(0.5, "float32"), "made")
    positive = te.compute(x.shape, lambda *i: te.max(made(*i), te.const(1.0, "float32")), "positive")
    inside = te.compute(
        (1, 10, 32),
        lambda n, y, c: tirx.if_then_else(tirx.all(y >= 1, y < 9), positive[n, y - 1, c], te.const(LOWEST, "float32")),
    )
    k = te.reduce_axis((0, 3), "k")
    func = te.create_prim_func([x, te.compute((1, 8, 32), lambda n, y, c: te.max(inside[n, y + k, c], axis=k))])
    assert maxima_of_bytes(func).same_as(func)


def test_sums_are_left_alone() -> None:
    x, k = te.placeholder((8, 32), "uint8", "x"), te.reduce_axis((0, 32), "k")
    func = te.create_prim_func([x, te.compute((8,), lambda i: te.sum(x[i, k].astype("float32"), axis=k))])
    assert maxima_of_bytes(func).same_as(func)


def wrapped(step: str) -> Any:
    """Largest of bytes that wrap around before they are compared."""
    dtype = "int8" if step == "cast" else "uint8"
    x, k = te.placeholder((4, 32), dtype, "x"), te.reduce_axis((0, 32), "k")
    steps = {"cast": lambda value: value.astype("uint8"), "product": lambda value: value * te.const(3, "uint8")}
    made = te.compute(x.shape, lambda i, j: steps[step](x[i, j]), "made")
    return te.create_prim_func([x, te.compute((4,), lambda i: te.max(made[i, k], axis=k))])


@pytest.mark.parametrize("step", ["cast", "product"])
def test_bytes_that_wrap_around_are_left_alone(step: str) -> None:
    """The largest of int8 as uint8 was the largest of int8: differences of unsigned bytes wrap around, too."""
    func = wrapped(step)
    assert maxima_of_bytes(func).same_as(func)
