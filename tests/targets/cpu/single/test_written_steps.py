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


def window(depth: int, columns: int) -> tvm.tirx.PrimFunc:
    """Windows of 4x4 with strides, channels last."""
    x = te.placeholder((56 * 4, 56 * 4, depth), name="x")
    w = te.placeholder((columns // BLOCK, 4, 4, depth, BLOCK), name="w")
    v, u, k = (te.reduce_axis((0, extent)) for extent in (4, 4, depth))

    def element(i, j, o):
        return te.sum(x[4 * i + v, 4 * j + u, k] * w[o // BLOCK, v, u, k, o % BLOCK], axis=[v, u, k])

    y = te.compute((56, 56, columns), element, name="y")
    return te.create_prim_func([x, w, y], index_dtype_override="int64").with_attr("global_symbol", "main")


def product(rows: int, depth: int, columns: int) -> tvm.tirx.PrimFunc:
    """Rows times weights in blocks."""
    x = te.placeholder((rows, depth), name="x")
    w = te.placeholder((columns // BLOCK, depth, BLOCK), name="w")
    k = te.reduce_axis((0, depth), name="k")
    y = te.compute((rows, columns), lambda i, j: te.sum(x[i, k] * w[j // BLOCK, k, j % BLOCK], axis=k), name="y")
    return te.create_prim_func([x, w, y], index_dtype_override="int64").with_attr("global_symbol", "main")


def first_layer(channels: int, outputs: int, size: int, stride: int) -> tvm.tirx.PrimFunc:
    """Windows of 3x3 along rows of planes, results in blocks."""
    x = te.placeholder((channels, size, size), name="x")
    w = te.placeholder((outputs // BLOCK, channels, 3, 3, BLOCK), name="w")
    c, v, u = (te.reduce_axis((0, extent)) for extent in (channels, 3, 3))
    after = (size - 3) // stride + 1

    def element(o, i, j, b):
        return te.sum(x[c, stride * i + v, stride * j + u] * w[o, c, v, u, b], axis=[c, v, u])

    y = te.compute((outputs // BLOCK, after, after, BLOCK), element, name="y")
    return te.create_prim_func([x, w, y], index_dtype_override="int64").with_attr("global_symbol", "main")


@pytest.mark.parametrize(
    "func",
    [
        product(3136, 96, 288),
        product(196, 416, 1024),
        product(2000, 12, 192),
        window(3, 96),
        window(12, 96),
        first_layer(3, 16, 226, 2),
        first_layer(32, 64, 58, 1),
    ],
)
def test_no_vector_of_a_product_is_on_the_stack(func: tvm.tirx.PrimFunc) -> None:
    """Where 12 or 13 steps were written out, LLVM loaded ahead and spilled: Swin's products took 1.4 times as long.

    So it did in loops of two times 6 steps: patches of 4x4 (ViT) took 1.4 times as long. And so it does with what
    neighbouring places of a window share: the first layer of mobile networks took 1.3 times as long.
    """
    func = schedule_primfunc(func, HALVES)
    target = tvm.target.Target({"kind": "llvm", "mcpu": "znver4"})
    assembly = tvm.tirx.build(func, target, pipeline=pipeline_name()).inspect_source("asm")
    assert "zmm" in assembly
    assert not re.search(r"\(%rsp\).*, %zmm", assembly)  # what was spilled is read again
