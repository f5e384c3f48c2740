"""Products of four warps together, in the simulator and as machine code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from targets.cuda.cases import Case, conv, matmul
from targets.cuda.running import (
    H100,
    Kernels,
    check_case,
    in_double_precision,
    inputs_of,
    instructions,
    machine_code,
    needs_compiler,
    relative_error,
    result_of,
)
from targets.cuda.test_products import TOLERANCES

from eqsat_layout.soundness.cuda import KernelFault
from eqsat_layout.targets.cuda.kernels.product_kernel import product_kernel
from eqsat_layout.targets.cuda.kernels.product_model import plans_for
from eqsat_layout.targets.cuda.kernels.product_plan import ProductPlan
from eqsat_layout.targets.cuda.kernels.products import product_of

CASES = {
    "matrices": matmul(70, 40, 200, right="nk"),
    "a batch": matmul(33, 72, 64, batch=2, right="nk"),
    "3x3": conv((9, 8), 16, 40, (3, 3), pad=1),
    "strides": conv((11, 9), 24, 32, (3, 3), pad=1, stride=2, batch=2),
}


def plan_of(dtype: str, **changes: Any) -> ProductPlan:
    return replace(ProductPlan(dtype, 64, 64, 64, 16, 64, 2, in_groups=True), **changes)


def kernels_of(case: Case, dtype: str, **changes: Any) -> tuple[Any, Kernels]:
    func = case(dtype, "float32", dtype).with_attr("eqsat_layout.constants", ["w"])  # launches overlap
    return func, Kernels(product_kernel(product_of(func), plan_of(dtype, **changes)), "sm_90a")


@pytest.mark.parametrize(
    ("name", "dtype", "changes"),
    [
        ("matrices", "float16", {}),
        ("matrices", "bfloat16", {"block_rows": 128, "stages": 3}),
        ("a batch", "float16", {"block_columns": 128, "warp_columns": 128}),
        ("3x3", "float16", {"splits": 2}),
        ("strides", "bfloat16", {"stages": 6}),
    ],
)
def test_products(name: str, dtype: str, changes: dict[str, Any]) -> None:
    check_case(CASES[name], *kernels_of(CASES[name], dtype, **changes), TOLERANCES[dtype])


@pytest.mark.parametrize(
    ("left_out", "why"),
    [
        ("fence.proxy.async.shared::cta;", "without fence.proxy.async"),
        ("wgmma.fence.sync.aligned;", "without wgmma.fence"),
    ],
)
def test_fences_that_are_left_out_are_found(left_out: str, why: str) -> None:
    func, kernels = kernels_of(CASES["matrices"], "float16")
    ((name, source),) = kernels.sources.items()
    assert left_out in source
    kernels.sources[name] = source.replace(left_out, "")
    with pytest.raises(KernelFault, match=why):
        result_of(kernels, inputs_of(func))


def test_products_that_are_not_waited_for_are_found() -> None:
    """The tile that they read is filled anew, and the sums are not there yet."""
    func, kernels = kernels_of(CASES["matrices"], "float16")
    ((name, source),) = kernels.sources.items()
    kernels.sources[name] = source.replace("wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 7;")
    assert kernels.sources[name] != source
    arrays = inputs_of(func)
    reference = in_double_precision(CASES["matrices"]("float64", "float64", "float64"), arrays)
    with pytest.raises((KernelFault, AssertionError)):
        assert relative_error(result_of(kernels, arrays), reference) < 0.5


def test_large_products_take_them() -> None:
    grouping = replace(H100, warpgroups=True)
    large, across = (matmul(1024, 1024, 1024, right=order)("float16", "float32", "float16") for order in ("nk", "kn"))
    assert plans_for(product_of(large), grouping)[0].in_groups
    assert not any(plan.in_groups for plan in plans_for(product_of(large), H100))
    assert not any(plan.in_groups for plan in plans_for(product_of(across), grouping))


def test_a_tile_is_copied_while_products_are_under_way() -> None:
    """All warps copied first, and nothing was multiplied meanwhile."""
    _, kernels = kernels_of(CASES["matrices"], "float16")
    (source,) = kernels.sources.values()
    turn = source[source.index("wait_group", source.index("main_kernel(")) :]
    begun, copied, finished = (turn.index(f"ptx_{name}") for name in ("wgmma_commit", "cp_async_cg", "wgmma_wait"))
    assert begun < copied < finished


@needs_compiler
@pytest.mark.parametrize("columns", [64, 128, 256])
def test_machine_code_spills_nothing(columns: int) -> None:
    changes = {"block_rows": 128, "block_columns": columns, "warp_columns": columns, "stages": 3}
    case = conv((56, 56), 64, 256, (3, 3), pad=1)
    _, kernels = kernels_of(case, "float16", **changes)
    (source,) = kernels.sources.values()
    code = machine_code(source, "sm_90a")
    (facts,) = code.kernels.values()
    assert instructions(code.cubin)["HGMMA"] > 0
    assert facts.spilled_bytes == 0
    plan = plan_of("float16", **changes)
    assert facts.registers <= plan.registers + 32
    assert facts.registers * plan.threads <= H100.registers
