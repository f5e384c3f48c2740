"""Integers that are divided by 0, and indices that are out of range, on PoCL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from targets.integer_cases import DTYPES, check_divisions, check_floors, check_indices, check_joined
from targets.opencl.running import compiled, results


def run(mod: Any, inputs: Sequence[Any]) -> list[Any]:
    return results(compiled(mod), inputs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_divisions_by_0_are_0(dtype: str) -> None:
    check_divisions(run, dtype)


def test_indices_out_of_range_read_within() -> None:
    check_indices(run)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32"])
def test_ops_in_one_kernel_overflow_and_are_nan_as_one_by_one(dtype: str) -> None:
    check_joined(run, dtype)


def test_divisions_round_down_below_0() -> None:
    check_floors(run)
