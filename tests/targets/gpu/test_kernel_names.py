"""Kernels, and tensors inside of them, have names that compilers of C take."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from compare import stock_results
from tvm import relax, s_tir, te
from tvm.relax import op

from eqsat_layout.graph.legalize import legalize
from eqsat_layout.targets.gpu.kernel_names import with_kernel_names
from eqsat_layout.tir.structural import nodes_of

WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def names(mod: tvm.IRModule) -> set[str]:
    """Of all tensors and loops in the PrimFuncs of a module."""
    funcs = [func for func in mod.functions.values() if isinstance(func, tvm.tirx.PrimFunc)]
    assert funcs
    found = {var for func in funcs for var in (*func.params, *nodes_of(func.body, tvm.ir.Var))}
    found |= {b for func in funcs for one in nodes_of(func.body, s_tir.SBlock) for b in one.alloc_buffers}
    return {str(var.name) for var in found}


@pytest.mark.parametrize("name", ["/layer4/layer4.1/Relu_output_0", "1.x", "x:0", "größe"])
def test_tensors_of_kernels_of_one_op_are_called_by_words(name: str) -> None:
    """Kernels had the names of tensors of torch's ONNX files, and no compiler of C or CUDA took them."""
    builder = relax.BlockBuilder()
    x = relax.Var(name, relax.TensorType((4, 8), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit_te(lambda a: te.compute((4, 8), lambda i, j: a[i, j] + 1, name), x))
    mod = builder.get()
    assert not all(map(WORD.fullmatch, names(mod))), "what TVM makes of it"
    changed = with_kernel_names(mod)
    assert all(map(WORD.fullmatch, names(changed)))
    (result,) = stock_results(changed, np.ones((4, 8), "float32"))
    assert result.max() == 2


def test_names_that_are_words_stay() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.normalize(op.nn.relu(x)))
    mod = legalize(builder.get())
    assert with_kernel_names(mod).same_as(mod)
