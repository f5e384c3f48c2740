"""CUDA C++ and machine code on a machine without a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from effort import but_for
from programs import program
from targets.cuda import simulating
from targets.cuda.cases import matmul
from targets.cuda.running import H100 as HOPPER
from targets.cuda.running import Kernels, machine_code, needs_compiler
from tvm import te
from tvm.relax import op

from eqsat_layout.targets.cuda.kernels.product_kernel import product_kernel
from eqsat_layout.targets.cuda.kernels.product_model import plans_for
from eqsat_layout.targets.cuda.kernels.products import product_of
from eqsat_layout.targets.cuda.kernels.row_kernel import row_kernel
from eqsat_layout.targets.cuda.lowering import lowered

H100 = tvm.target.Target({"kind": "cuda", "arch": "sm_90"})


def row_sums(dtype: str) -> Any:
    x = te.placeholder((40, 96), dtype, name="x")
    k = te.reduce_axis((0, 96), "k")
    y = te.compute((40,), lambda i: te.sum(x[i, k], axis=k), name="y")
    return te.create_prim_func([x, y])


def launches() -> Any:
    return row_kernel(row_sums("float32"))


def test_each_kernel_is_a_file() -> None:
    found = lowered({"first": launches(), "second": launches()}, H100)
    assert set(found.host) == {"first", "second"}
    assert set(found.sources) == {"first_kernel", "second_kernel"}
    assert "second_kernel" not in found.sources["first_kernel"]


@needs_compiler
@pytest.mark.parametrize("arch", but_for(["sm_80", "sm_86", "sm_89", "sm_90"], ["sm_86", "sm_89"]))
def test_machine_code_and_what_it_needs(arch: str) -> None:
    (source,) = lowered({"sums": launches()}, tvm.target.Target({"kind": "cuda", "arch": arch})).sources.values()
    made = machine_code(source, arch)
    assert made.cubin.startswith(b"\x7fELF")
    facts = made.kernels["sums_kernel"]
    assert 0 < facts.registers < 64
    assert facts.spilled_bytes == facts.stack_bytes == 0


def test_tiles_of_registers_and_stages_are_loops_of_the_text() -> None:
    """Written out, they took TVM, the compiler and the simulator two to three times as long."""
    product = product_of(matmul(256, 256, 256)("float16", "float32", "float16"))
    plan = max(plans_for(product, HOPPER), key=lambda one: (one.warp_rows * one.warp_columns, one.stages, -one.splits))
    (source,) = Kernels(product_kernel(product, plan)).sources.values()
    calls = source[source.rindex('extern "C"') :]
    units = plan.block_steps * (plan.block_rows + plan.block_columns) // 8
    assert calls.count("mma_sync") == plan.block_steps // 16
    assert calls.count("cp_async_cg") == 2 * units // plan.threads, "once before the loop over tiles, and once in it"


def test_indices_have_32_bits() -> None:
    """TVM narrows few of those that are not simplified before: quotients of 64 bits take ten times as long."""
    pooled = simulating.compiled(program(lambda _, x: op.nn.max_pool2d(x, [3, 3], [2, 2], [1, 1]), (1, 16, 14, 14)))
    (source,) = pooled.sources.values()
    assert "int64_t" not in source[source.rindex('extern "C"') :]
