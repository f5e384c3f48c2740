"""Running sums and products: all elements at once where their order is free."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from programs import program
from targets.cuda.simulating import check, compiled
from tvm import relax, tirx
from tvm.relax import op

CASES: list[tuple[tuple[int, ...], int | None, str, bool]] = [
    ((3, 70), 1, "float32", False),
    ((3, 70), -1, "int64", True),
    ((2, 35, 3), 1, "float32", True),
    ((7, 10), None, "int64", False),
]


def scans(axis: int | None, *, exclusive: bool) -> Any:
    def body(builder: Any, x: Any) -> Any:
        total = builder.emit(op.cumsum(x, axis=axis, exclusive=exclusive))
        return builder.emit(op.add(total, builder.emit(op.cumprod(x, axis=axis, exclusive=exclusive))))

    return body


@pytest.mark.parametrize(("shape", "axis", "dtype", "exclusive"), CASES)
def test_scans_are_of_pieces(shape: tuple[int, ...], axis: int | None, dtype: str, exclusive: bool) -> None:
    notes: list[str] = []
    made = check(program(scans(axis, exclusive=exclusive), shape, dtype=dtype), orders=(0, 1, 2), notes=notes)
    assert max(launch.groups[0] * launch.items[0] for launch in made.plan.functions[0].launches) >= 70
    assert not notes


def long_row(length: int) -> Any:
    return program(lambda builder, x: builder.emit(op.cumsum(x, axis=0)), (length,), dtype="int32")


def test_no_element_of_a_long_row_adds_up_many_numbers() -> None:
    """Threads share sums, so that it is the turns of all their loops together that say how many there are."""
    check(long_row(4200))
    length = 1 << 20
    made = compiled(long_row(length))
    steps = 0
    for launch in made.plan.functions[0].launches:
        loops = re.findall(r"for \(.*?< (\d+);", made.sources[launch.kernel])
        steps += launch.groups[0] * launch.items[0] * math.prod(map(int, loops))
    assert steps < 8 * length  # 18, where each piece adds up all in front of it


def test_floats_are_added_in_order_where_that_is_asked_for() -> None:
    made = check(program(scans(1, exclusive=False), (3, 70)), approx=False)
    assert max(launch.groups[0] * launch.items[0] for launch in made.plan.functions[0].launches[:2]) < 70


def test_rows_of_a_length_that_is_known_at_run_time() -> None:
    x = relax.Var("x", relax.TensorType((2, tirx.Var("n", "int64")), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            output = builder.emit_output(scans(1, exclusive=False)(builder, x))
        builder.emit_func_output(output)
    check(builder.get(), sizes=(1, 64, 65, 150))
