"""Constants are what they were in every region of a function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from compare import assert_same_fast
from tvm import relax
from tvm.relax import op as R

import eqsat_layout


def in_two_regions(body: Any) -> tvm.IRModule:
    """A function that applies ``body`` to 0, 1 and the value before; no region holds the ``match_cast`` in between."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 8, 6, 6), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            first = builder.emit(body(builder.emit, 0, x))
            cast = builder.match_cast(first, first.ty)
            result = builder.emit_output(body(builder.emit, 1, cast))
        builder.emit_func_output(result)
    return builder.get()


def convolved(emit: Any, number: int, x: Any) -> Any:
    weight = np.random.default_rng(number).standard_normal((8, 8, 3, 3))
    return R.nn.conv2d(x, relax.const(weight.astype("float32")), padding=1)


def convolved_with_made_weights(emit: Any, number: int, x: Any) -> Any:
    weight = np.random.default_rng(number).standard_normal((8, 8, 3, 3))
    made = emit(R.exp(emit(R.negative(relax.const(weight.astype("float32"))))))
    return R.nn.conv2d(x, made, padding=1)


@pytest.mark.parametrize("body", [convolved, convolved_with_made_weights])
def test_constants_of_two_regions_are_told_apart(body: Any) -> None:
    """Names of constants are those of a region: both weights were the first one's (Swin-T was wrong by its size)."""
    mod = in_two_regions(body)
    optimized = eqsat_layout.optimize(mod, desired_layouts={"relax.nn.conv2d": ["NHWC", "OHWI"]})
    assert "(1, 6, 6, 8)" in optimized.script(show_meta=False)
    assert_same_fast(mod, optimized)
