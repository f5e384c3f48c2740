"""CUDA C++ and machine code on a machine without a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from targets.cuda.running import Kernels, in_double_precision, inputs_of, needs_compiler, relative_error, result_of
from tvm import s_tir, te

from eqsat_layout.targets.cuda.compiler import compiled
from eqsat_layout.targets.cuda.lowering import lowered

H100 = tvm.target.Target({"kind": "cuda", "arch": "sm_90"})


def row_sums(dtype: str) -> Any:
    x = te.placeholder((40, 96), dtype, name="x")
    k = te.reduce_axis((0, 96), "k")
    y = te.compute((40,), lambda i: te.sum(x[i, k], axis=k), name="y")
    return te.create_prim_func([x, y])


def scheduled() -> Any:
    """Rows by blocks, read through shared memory, added up by the threads of a warp."""
    sch = s_tir.Schedule(row_sums("float32"))
    block = sch.get_sblock("y")
    row, step = sch.get_loops(block)
    _, lane = sch.split(step, [None, 32])
    sch.bind(row, "blockIdx.x")
    sch.bind(lane, "threadIdx.x")
    copy = sch.cache_read(block, 0, "shared")
    sch.compute_at(copy, row)
    sch.bind(sch.split(sch.get_loops(copy)[-1], [None, 32])[-1], "threadIdx.x")
    return sch.mod["main"]


def test_a_schedule_gets_its_barriers() -> None:
    kernels = Kernels(scheduled())
    (source,) = kernels.sources.values()
    assert "__syncthreads" in source
    arrays = inputs_of(scheduled())
    assert relative_error(result_of(kernels, arrays), in_double_precision(row_sums("float64"), arrays)) < 1e-6


def test_each_kernel_is_a_file() -> None:
    found = lowered({"first": scheduled(), "second": scheduled()}, H100)
    assert set(found.host) == {"first", "second"}
    assert set(found.sources) == {"first_kernel", "second_kernel"}
    assert "second_kernel" not in found.sources["first_kernel"]


@needs_compiler
@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90"])
def test_machine_code_and_what_it_needs(arch: str) -> None:
    (source,) = lowered({"sums": scheduled()}, tvm.target.Target({"kind": "cuda", "arch": arch})).sources.values()
    made = compiled(source, arch)
    assert made.cubin.startswith(b"\x7fELF")
    facts = made.kernels["sums_kernel"]
    assert 0 < facts.registers < 64
    assert facts.shared_bytes >= 96 * 4
    assert facts.spilled_bytes == facts.stack_bytes == 0
