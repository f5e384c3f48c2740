"""Functions of kernels begin their stacks at a whole cache line."""

from __future__ import annotations

import platform
import re

import pytest
import tvm
from tvm import te

from eqsat_layout.targets.cpu.lowering import pipeline_name

pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="stacks of x86")

ALIGNED = re.compile(r"andq\s+\$-64, %rsp")


def functions_of(cpu: str, *, parallel: bool) -> dict[str, str]:
    """The assembly of a kernel that adds one, by function."""
    x = te.placeholder((64, 1024), name="x")
    func = te.create_prim_func([x, te.compute(x.shape, lambda i, j: x[i, j] + 1, name="sum")])
    sch = tvm.s_tir.Schedule(tvm.IRModule({"main": func.with_attr("global_symbol", "main")}))
    outer, inner = sch.get_loops(sch.get_sblock("sum"))
    if parallel:
        sch.parallel(outer)
    sch.vectorize(sch.split(inner, [None, 16])[1])
    target = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": cpu})
    text = tvm.tirx.build(sch.mod, target=target, pipeline=pipeline_name()).inspect_source("asm")
    parts = re.split(r"^([A-Za-z_][\w.$]*):", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("cpu", ["znver4", "haswell"])
def test_vectors_that_are_spilled_lie_in_one_line(cpu: str, parallel: bool) -> None:
    """A convolution that spills took 314 or 645 us, by where the stack of its process began."""
    computing = [text for text in functions_of(cpu, parallel=parallel).values() if "vaddps" in text]
    assert computing
    assert all(ALIGNED.search(text) for text in computing)


def test_vectors_as_long_as_the_stack_is_aligned_need_nothing() -> None:
    assert not any(map(ALIGNED.search, functions_of("x86-64", parallel=False).values()))
