"""Programs of what bytes stand for, and what the pass over them is held to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from compare import stock_results
from tvm import relax
from tvm.relax import op

from eqsat_layout.passes.quantised.byte_products import multiply_bytes
from eqsat_layout.tir.structural import nodes_of

CHANNELS, OUTPUTS = 8, 6
RNG = np.random.default_rng(0)
Emit = Callable[[Any], Any]


def module_of(shape: tuple[Any, ...], body: Callable[[Emit, Any], Any], dtype: str = "float32") -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(body(builder.emit, x))
        builder.emit_func_output(out)
    return builder.get()


def number(value: float, dtype: str = "float32") -> Any:
    return relax.const(np.array(value, dtype), dtype)


def stands_for(emit: Emit, values: Any, scale: Any, zero: Any, axis: int = 1) -> Any:
    return emit(op.dequantize(values, scale, zero, axis=axis, out_dtype="float32"))


def rounded(emit: Emit, x: Any, scale: float = 0.05, zero: int = 3, dtype: str = "uint8") -> Any:
    """What the bytes that ``x`` is rounded to stand for."""
    both = number(scale), number(zero, dtype)
    return stands_for(emit, emit(op.quantize(x, *both, axis=1, out_dtype=dtype)), *both)


def quantised(emit: Emit, x: Any) -> Any:
    return emit(op.quantize(x, number(0.05), number(3, "uint8"), axis=1, out_dtype="uint8"))


def bytes_of(*shape: int) -> Any:
    return relax.const(RNG.integers(-128, 128, shape).astype("int8"), "int8")


def weights(emit: Emit, *shape: int, dtype: str = "int8", zero: Any = 0, scale: Any = 0.02, axis: int = 0) -> Any:
    low, high = (-128, 128) if dtype == "int8" else (0, 256)
    values = relax.const(RNG.integers(low, high, shape).astype(dtype), dtype)
    zeros = relax.const(np.asarray(zero, dtype), dtype)
    return stands_for(emit, values, relax.const(np.asarray(scale, "float32"), "float32"), zeros, axis)


def products_of(mod: tvm.IRModule) -> int:
    """Products of unsigned by signed bytes."""
    calls = [call for call in nodes_of(mod["main"], tvm.ir.Call) if hasattr(call.attrs, "out_dtype")]
    types = [[str(getattr(arg.ty, "dtype", "")) for arg in call.args] for call in calls]
    return types.count(["uint8", "int8"])


def run(mod: tvm.IRModule, data: Any) -> Any:
    (result,) = stock_results(mod, data)
    return result


def checked(mod: tvm.IRModule, products: int = 1, tolerance: float = 1e-5) -> tvm.IRModule:
    written = multiply_bytes(mod)
    relax.analysis.well_formed(written)
    assert products_of(written) == products
    if not products:
        assert written.same_as(mod)
        return written
    (x,) = mod["main"].params
    shape = [int(extent) for extent in x.ty.shape]
    data = RNG.uniform(-6, 6, shape) if str(x.ty.dtype) == "float32" else RNG.integers(0, 255, shape)
    data = data.astype(str(x.ty.dtype))
    expected, own = run(mod, data), run(written, data)
    np.testing.assert_allclose(own, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())
    return written


def convolution(emit: Emit, x: Any, w: Any, **how: Any) -> Any:
    return op.nn.conv2d(x, w, **{"padding": 1, **how})


SCALES = RNG.uniform(0.01, 0.05, OUTPUTS)
