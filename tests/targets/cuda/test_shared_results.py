"""Reductions to few results, which one thread each made: the threads of a block share one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import programs as small
import pytest
from targets.cuda.simulating import CUDA, check, compiled
from targets.opencl.running import check as check_on_pocl
from targets.opencl.running import compiled as compiled_for_opencl
from tvm import relax
from tvm.relax import op

from eqsat_layout.soundness.cuda.driver import simulated

Body = Callable[[Any], Any]


def program(body: Body, dtype: str) -> Any:
    x = relax.Var("x", relax.TensorType((8, 75), dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            output = builder.emit_output(builder.emit(body(x)))
        builder.emit_func_output(output)
    return builder.get()


_SCALE, _ONE = (relax.const(np.float32(value)) for value in (0.05, 1))

REDUCTIONS: dict[str, tuple[Body, str]] = {
    "place of the largest": (op.argmax, "float32"),
    "place of the smallest": (op.argmin, "float32"),
    "sum of integers": (op.sum, "int32"),
    "product": (lambda x: op.prod(op.add(op.multiply(x, _SCALE), _ONE)), "float32"),
    "deviation": (op.std, "float32"),
}


def most_threads(made: Any) -> int:
    """Of one launch: others finish one number."""
    launches = [launch for function in made.plan.functions for launch in function.launches]
    return max(math.prod((*launch.groups, *launch.items)) for launch in launches)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_threads_of_a_block_share_a_result(name: str) -> None:
    made = check(program(*REDUCTIONS[name]), orders=(0, 1, 2))
    assert most_threads(made) >= 32


def test_work_items_share_the_place_of_the_largest() -> None:
    check_on_pocl(program(*REDUCTIONS["place of the largest"]))


def test_sums_of_integers_are_shared_where_floats_are_added_up_as_stated() -> None:
    exact = {name: check(program(*REDUCTIONS[name]), approx=False) for name in ("sum of integers", "product")}
    assert most_threads(exact["sum of integers"]) >= 32
    assert most_threads(exact["product"]) == 1


@pytest.mark.parametrize("best", ["largest", "smallest"])
def test_of_equal_elements_the_first_is_found(best: str) -> None:
    """Whatever thread has it: parts of a row meet in an order of their own."""
    made = check(program(*REDUCTIONS[f"place of the {best}"]), CUDA)
    rng = np.random.default_rng(0)
    for order in range(3):
        device = simulated(made, order)
        for _ in range(4):
            x = rng.integers(0, 3, (8, 75)).astype("float32")
            assert int(device(x)) == int(x.argmax() if best == "largest" else x.argmin())


def test_results_that_would_leave_a_large_machine_idle_are_shared() -> None:
    """A thread for each of 2048 keeps a phone busy, and four of a hundred multiprocessors."""
    mod = small.program(lambda builder, x: builder.emit(op.max(x, axis=[1])), (4, 80, 512))
    (launch,) = compiled(mod, {"kind": "cuda", "arch": "sm_90"}).plan.functions[0].launches
    assert launch.groups[0] * launch.items[0] > 16_000
    (launch,) = compiled_for_opencl(mod).plan.functions[0].launches
    assert launch.groups[0] * launch.items[0] <= 2048
