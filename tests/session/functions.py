"""Small functions for tests of sessions, with what they are given and give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import eqsat_layout


@I.ir_module
class Affine:
    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 3), "float32"), b: R.Tensor(("n", 3), "float32")
    ) -> R.Tuple(R.Tensor(("n", 3), "float32"), R.Tensor(("n", 4), "float32")):
        with R.dataflow():
            y = R.add(R.matmul(x, w), b)
            z = R.nn.relu(x)
            R.output(y, z)
        return (y, z)


def feed(rows: int = 5, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    shapes = {"x": (rows, 4), "w": (4, 3), "b": (rows, 3)}
    return {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}


def expected(given: dict[str, Any]) -> tuple[Any, Any]:
    return given["x"] @ given["w"] + given["b"], np.maximum(given["x"], 0)


def function_of(body: Callable[..., Any], shape: tuple[int, ...], dtype: str = "float32") -> tvm.IRModule:
    """``main`` of one parameter ``x`` without a dataflow block, so that nothing is planned and it is built fast."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        builder.emit_func_output(body(builder.emit, x))
    return builder.get()


def identity(shape: tuple[int, ...], dtype: str) -> eqsat_layout.Session:
    return eqsat_layout.Session(function_of(lambda emit, x: x, shape, dtype))
