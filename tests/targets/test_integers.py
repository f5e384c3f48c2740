"""Integers divided by 0, and the least one by -1, on devices; indices that are out of range; and what TVM's simplifier
takes NaN and overflow for impossible in, once ops are put into one another."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from programs import program
from targets.devices import Device, each_device
from tvm import relax
from tvm.relax import op

pytestmark = each_device

OPS: Final = ("floor_divide", "divide", "floor_mod", "mod")
DTYPES: Final = ("int8", "int32", "int64", "uint8", "uint64")
FAR: Final = np.array([1 << 62, -(1 << 62), 1 << 31, -1, 8, 2])


@pytest.mark.parametrize("dtype", DTYPES)
def test_divisions_by_0_are_0(device: Device, dtype: str) -> None:
    """All four, one program: 0 where the divisor is 0, and the least integer by -1 is itself."""
    least = int(np.iinfo(dtype).min)
    a = np.array([7, 7, least, least, least, 9, 100, 23] * 5, dtype)
    by = np.array([0, 2, 0, -1 if least else 1, 3, -1 if least else 4, 7, 9] * 5, dtype)

    def body(builder: Any, x: Any, y: Any) -> Any:
        return tuple(builder.emit(getattr(op, name)(x, y)) for name in OPS)

    got = device.run(program(body, a.shape, a.shape, dtype=dtype), (a, by))
    pairs = [(int(x), int(y)) for x, y in zip(a, by, strict=True)]
    floors = [x // y if y else 0 for x, y in pairs]
    quotients = [q + (q < 0 and q * y != x) for q, (x, y) in zip(floors, pairs, strict=True)]
    left = [[x - q * y if y else 0 for q, (x, y) in zip(of, pairs, strict=True)] for of in (floors, quotients)]
    for name, one, numbers in zip(OPS, got, (floors, quotients, *left), strict=True):
        expected = np.array([n & (1 << 64) - 1 for n in numbers], "uint64").astype(dtype)
        np.testing.assert_array_equal(one, expected, err_msg=name)


def test_indices_out_of_range_read_within(device: Device) -> None:
    """The nearest element is read; the last index overflows, and reads some element."""
    x = np.arange(32, dtype="int64").reshape(8, 4)
    at = np.stack([FAR, FAR, np.full(6, (1 << 63) - 1), np.full(6, -(1 << 63))], axis=1)

    def body(builder: Any, x: Any, at: Any) -> Any:
        far = builder.emit(op.add(at, op.full_like(at, relax.const(5, "int64"))))
        made = (op.take(x, at, axis=0), op.gather_elements(x, at, axis=0), op.take(x, far, axis=0))
        return tuple(builder.emit(one) for one in made)

    taken, gathered, overflowed = device.run(program(body, x.shape, at.shape, dtype="int64"), (x, at))
    np.testing.assert_array_equal(taken, x[np.clip(at, 0, 7)])
    np.testing.assert_array_equal(gathered, np.take_along_axis(x, np.clip(at, 0, 7), 0))
    assert np.isin(overflowed[..., 0], x[:, 0]).all()


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32"])
def test_ops_in_one_kernel_overflow_and_are_nan_as_one_by_one(device: Device, dtype: str) -> None:
    """``x < x + 1`` was true of all, of unsigned integers an error of TVM's; ``not (x < 0)`` was ``x >= 0``."""
    is_float = dtype.startswith("float")
    x = np.array([7, np.nan, -1, 0] if is_float else [7, np.iinfo(dtype).max, 1, 0], dtype)

    def body(builder: Any, x: Any) -> Any:
        if is_float:
            return op.logical_not(builder.emit(op.less(x, relax.const(0, dtype))))
        return op.less(x, builder.emit(op.add(x, relax.const(1, dtype))))

    (got,) = device.run(program(body, x.shape, dtype=dtype), (x,))
    np.testing.assert_array_equal(got, [True, is_float, not is_float, True])


def test_divisions_round_down_below_0(device: Device) -> None:
    """What is below 0, and made in the same kernel, was taken for positive, and so was a divisor from memory."""
    x, y = np.arange(-8, 8, dtype="int32"), np.resize(np.array([-7, 3, -2], "int32"), 16)

    def body(builder: Any, x: Any, y: Any) -> Any:
        below, seven = builder.emit(op.add(x, y)), relax.const(7, "int32")
        made = (op.floor_mod(below, seven), op.floor_divide(below, seven), op.floor_mod(x, y), op.floor_divide(x, y))
        return tuple(builder.emit(one) for one in made)

    for got, expected in zip(
        device.run(program(body, x.shape, y.shape, dtype="int32"), (x, y)),
        ((x + y) % 7, (x + y) // 7, x % y, x // y),
        strict=True,
    ):
        np.testing.assert_array_equal(got, expected)
