"""Products on tensor cores against double precision, in the simulator."""

from __future__ import annotations

import pytest

from targets.cuda.cases import Case, conv, matmul
from targets.cuda.running import Kernels, in_double_precision, inputs_of, relative_error, result_of
from eqsat_layout.targets.cuda.kernels.product_kernel import kernel_of
from eqsat_layout.targets.cuda.kernels.product_plan import ProductPlan
from eqsat_layout.targets.cuda.kernels.products import product_of

TOLERANCES = {"float16": 2e-3, "bfloat16": 2e-2, "tensorfloat32": 2e-3, "float32": 2e-6}


def small(arithmetic: str, **changes: int) -> ProductPlan:
    steps = 32 if "16" in arithmetic else 16
    sizes = {"block_rows": 32, "block_columns": 64, "block_steps": steps, "warp_rows": 32, "warp_columns": 32, "stages": 3}
    return ProductPlan(arithmetic, **(sizes | changes))


def check(case: Case, plan: ProductPlan, *, sums: str = "float32", result: str = "") -> None:
    dtype = "float32" if plan.arithmetic == "tensorfloat32" else plan.arithmetic
    func = case(dtype, sums, result or dtype)
    kernels = Kernels(kernel_of(product_of(func), plan))
    arrays = inputs_of(func)
    reference = in_double_precision(case("float64", "float64", "float64"), arrays)
    first = result_of(kernels, arrays, 0)
    assert relative_error(first, reference) < TOLERANCES[plan.arithmetic]
    for order in (1, 2):
        assert (result_of(kernels, arrays, order) == first).all(), "the result depends on the order of threads"


@pytest.mark.parametrize("arithmetic", TOLERANCES)
@pytest.mark.parametrize("right", ["kn", "nk"])
@pytest.mark.parametrize("left", ["mk", "km"])
def test_matrices_in_every_order(arithmetic: str, left: str, right: str) -> None:
    check(matmul(64, 64, 96, left=left, right=right), small(arithmetic))


@pytest.mark.parametrize("arithmetic", ["float16", "float32"])
@pytest.mark.parametrize("sizes", [(1, 40, 33), (37, 1, 20), (50, 52, 7), (33, 70, 100)])
def test_odd_sizes_are_right(arithmetic: str, sizes: tuple[int, int, int]) -> None:
    check(matmul(*sizes), small(arithmetic))
    check(matmul(*sizes, left="km", right="nk"), small(arithmetic))


@pytest.mark.parametrize("arithmetic", TOLERANCES)
def test_a_batch_of_matrices(arithmetic: str) -> None:
    check(matmul(33, 40, 24, batch=3), small(arithmetic))


WINDOWS = {
    "3x3": conv((9, 8), 16, 40, (3, 3), pad=1),
    "strides": conv((11, 9), 16, 32, (3, 3), pad=1, stride=2, batch=2),
    "dilation": conv((11, 9), 8, 32, (3, 2), dilation=2),
    "1x1": conv((7, 7), 24, 33, (1, 1)),
    "first layer": conv((12, 12), 3, 16, (7, 7), pad=3, stride=2),
    "four channels": conv((12, 12), 4, 16, (3, 3), pad=1),
    "line": conv((40,), 16, 24, (5,), pad=2),
    "cube": conv((5, 4, 6), 8, 16, (2, 3, 2), pad=1),
    "groups": conv((8, 8), 32, 48, (3, 3), pad=1, groups=2),
    "NCHW": conv((8, 8), 16, 24, (3, 3), pad=1, layout="NCHW"),
    "NCHW strides": conv((9, 8), 8, 40, (3, 3), stride=2, layout="NCHW", batch=2),
}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("arithmetic", ["float16", "float32"])
def test_windows(arithmetic: str, name: str) -> None:
    check(WINDOWS[name], small(arithmetic))


@pytest.mark.parametrize("arithmetic", ["float16", "float32"])
@pytest.mark.parametrize("splits", [2, 3])
def test_a_sum_in_parts(arithmetic: str, splits: int) -> None:
    check(matmul(33, 40, 150), small(arithmetic, splits=splits))
    check(conv((6, 5), 16, 24, (3, 3), pad=1), small(arithmetic, splits=splits))


def test_sums_of_halves_are_rounded_once() -> None:
    check(matmul(40, 40, 200), small("float16"), sums="float16")
