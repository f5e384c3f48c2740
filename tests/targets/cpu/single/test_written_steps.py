"""So many steps of a product are written out that its accumulators stay in registers."""

from __future__ import annotations

import re

import pytest
import tvm
from targets.machines import HALVES
from tvm import te

from eqsat_layout.targets.cpu.lowering import pipeline_name
from eqsat_layout.targets.cpu.schedule import schedule_primfunc

BLOCK = 16


def product(rows: int, depth: int, columns: int) -> tvm.tirx.PrimFunc:
    """Rows times weights in blocks."""
    x = te.placeholder((rows, depth), name="x")
    w = te.placeholder((columns // BLOCK, depth, BLOCK), name="w")
    k = te.reduce_axis((0, depth), name="k")
    y = te.compute((rows, columns), lambda i, j: te.sum(x[i, k] * w[j // BLOCK, k, j % BLOCK], axis=k), name="y")
    return te.create_prim_func([x, w, y], index_dtype_override="int64").with_attr("global_symbol", "main")


@pytest.mark.parametrize(("rows", "depth", "columns"), [(3136, 96, 288), (196, 416, 1024)])
def test_no_vector_of_a_product_is_on_the_stack(rows: int, depth: int, columns: int) -> None:
    """Where 12 or 13 steps were written out, LLVM loaded ahead and spilled: Swin's products took 1.4 times as long."""
    func = schedule_primfunc(product(rows, depth, columns), HALVES)
    target = tvm.target.Target({"kind": "llvm", "mcpu": "znver4"})
    assembly = tvm.tirx.build(func, target, pipeline=pipeline_name()).inspect_source("asm")
    assert "zmm" in assembly
    assert not re.search(r"vmov[au]ps.*(zmm.*\(%rsp|\(%rsp.*zmm)", assembly)
