"""Barriers and waits taken out of a generated kernel, one at a time: each must be missed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from targets.cuda.cases import matmul
from targets.cuda.running import Kernels, inputs_of, result_of

from eqsat_layout.soundness.cuda import KernelFault
from eqsat_layout.targets.cuda.kernels.product_kernel import product_kernel
from eqsat_layout.targets.cuda.kernels.product_plan import ProductPlan
from eqsat_layout.targets.cuda.kernels.products import product_of

PLAN = ProductPlan("float16", 32, 64, 32, warp_rows=32, warp_columns=32, stages=3)


@pytest.fixture(scope="module")
def product() -> Any:
    return matmul(40, 70, 200)("float16", "float32", "float16")


def weaker(text: str) -> Iterator[str]:
    """The text without one of its barriers, or with a wait for one group fewer; the last wait is for empty groups."""
    for found in re.finditer(r"__syncthreads\(\);", text):
        yield text[: found.start()] + text[found.end() :]
    for found in re.finditer(r"cp\.async\.wait_group ([1-9])", text):
        yield text[: found.start(1)] + str(int(found[1]) + 1) + text[found.end(1) :]


def test_no_barrier_and_no_wait_can_go(product: Any) -> None:
    kernels = Kernels(product_kernel(product_of(product), PLAN))
    ((name, text),) = kernels.sources.items()
    result_of(kernels, inputs_of(product))
    without = list(weaker(text))
    assert len(without) == 3
    for changed in without:
        faulty = Kernels(product_kernel(product_of(product), PLAN))
        faulty.sources[name] = changed
        with pytest.raises(KernelFault) as found:
            result_of(faulty, inputs_of(product))
        assert found.value.kind in ("race", "async", "unwritten")
