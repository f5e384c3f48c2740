"""Calls of convolutions, what is recognised in them, and how far an algorithm's result is from theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from compare import machine
from tvm import relax
from tvm.relax import op

from eqsat_layout.graph.legalised_calls import legalise_calls
from eqsat_layout.implementations.algorithms import convolution_of
from eqsat_layout.tir.signature import analyse


def called(shape: tuple[int, ...], kernel: tuple[int, ...], **attrs: Any) -> tuple[Any, list[Any]]:
    """A call of conv2d over variables; shapes as NCHW and OIHW."""
    data_layout, kernel_layout = attrs.get("data_layout", "NCHW"), attrs.get("kernel_layout", "OIHW")
    x = relax.Var("x", relax.TensorType([shape["NCHW".index(a)] for a in data_layout], "float32"))
    w = relax.Var("w", relax.TensorType([kernel["OIHW".index(a)] for a in kernel_layout], "float32"))
    return relax.BlockBuilder().normalize(op.nn.conv2d(x, w, **attrs)), [x, w]


def called_transposed(shape: tuple[int, ...], kernel: tuple[int, ...], **attrs: Any) -> tuple[Any, list[Any]]:
    """A call of conv1d_transpose, conv2d_transpose or conv3d_transpose over variables."""
    x, w = (relax.Var(name, relax.TensorType(s, "float32")) for name, s in (("x", shape), ("w", kernel)))
    function = getattr(op.nn, f"conv{len(shape) - 2}d_transpose")
    return relax.BlockBuilder().normalize(function(x, w, **attrs)), [x, w]


def recognised(call: Any) -> Any:
    computation = analyse(legalise_calls([call])[0].func)
    assert computation is not None
    return convolution_of(computation)


def module_of(call: Any, params: list[Any]) -> Any:
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(call)
        builder.emit_func_output(out)
    return builder.get()


def run(mod: Any, arrays: list[Any]) -> Any:
    """Without schedules: of the kernels that algorithms are made of, other tests say that they keep the numbers."""
    return machine(mod)["main"](*map(tvm.runtime.tensor, arrays)).numpy()


def error(call: Any, params: list[Any], algorithm: Any) -> float | None:
    """Largest difference of the results, relative to the largest result; None where the algorithm does not apply."""
    conv = recognised(call)
    if conv is None:  # axes of one element leave no trace in a block
        assert 1 in [int(e) for ty in (call.ty, *(p.ty for p in params)) for e in list(ty.shape)[1:]]
        return None
    other = algorithm.of(conv)
    assert (algorithm.why_not(conv) is None) == (other is not None)
    if other is None:
        return None
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal([int(e) for e in p.ty.shape], dtype=np.float32) for p in params]
    wanted, got = run(module_of(call, params), arrays), run(other, arrays)
    assert wanted.shape == got.shape
    return float(np.max(np.abs(wanted - got)) / np.max(np.abs(wanted)))


def calls_of(module: tvm.IRModule) -> list[Any]:
    values = [b.value for block in module["main"].body.blocks for b in block.bindings]
    return [value for value in values if isinstance(value, tvm.ir.Call)]
