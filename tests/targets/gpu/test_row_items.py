"""Rows that a work item each computes from end to end, on PoCL and on the simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from programs import constant, program
from targets.cuda.simulating import check as on_simulator
from targets.cuda.simulating import launches as launches_of_cuda
from targets.opencl.running import check as on_pocl
from targets.opencl.running import launches as launches_of_opencl
from tvm import te, tirx
from tvm.relax import op

RUN = [pytest.param(on_pocl, launches_of_opencl, id="opencl"), pytest.param(on_simulator, launches_of_cuda, id="cuda")]
nn = op.nn


@pytest.mark.parametrize(("check", "launches"), RUN)
def test_softmax_over_a_middle_axis_is_one_launch(check: Any, launches: Callable[[Any], list[str]]) -> None:
    """It took four: two reductions, the exponentials and the quotients."""
    made = check(program(lambda builder, x: builder.emit(nn.softmax(x, 1)), (2, 9, 8, 7)))
    assert len(launches(made)) == 1


@pytest.mark.parametrize(("check", "launches"), RUN)
def test_norms_of_short_rows_are_one_launch(check: Any, launches: Callable[[Any], list[str]]) -> None:
    def body(builder: Any, x: Any) -> Any:
        return builder.emit(nn.layer_norm(x, constant(12), constant(12, seed=1), [-1]))

    made = check(program(body, (tirx.Var("n", "int64"), 3, 12)))
    assert len(launches(made)) == 1


def test_many_long_rows_side_by_side_are_one_launch() -> None:
    made = on_pocl(program(lambda builder, x: builder.emit(nn.log_softmax(x, 1)), (1, 33, 33, 32)))
    assert len(launches_of_opencl(made)) == 1


@pytest.mark.parametrize("shape", [(8, 40, 7), (1100, 40)], ids=["few", "apart"])
def test_long_rows_that_are_few_or_lie_one_after_the_other_are_several(shape: tuple[int, ...]) -> None:
    made = on_pocl(program(lambda builder, x: builder.emit(nn.softmax(x, 1)), shape))
    assert len(launches_of_opencl(made)) > 1


@pytest.mark.parametrize(("check", "launches"), RUN)
def test_what_reads_the_numbers_of_two_rows_is_a_launch_of_its_own(check: Any, launches: Any) -> None:
    def differences(x: Any) -> Any:
        k = te.reduce_axis((0, 6), "k")
        sums = te.compute((9,), lambda i: te.sum(x[i, k], axis=k), "sums")
        return te.compute((9, 9), lambda i, j: sums[i] - sums[j], "differences")

    made = check(program(lambda builder, x: builder.emit_te(differences, x), (9, 6)))
    assert len(launches(made)) == 2
